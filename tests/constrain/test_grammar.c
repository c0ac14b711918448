/* GBNF grammars and choices: which texts they allow, and what is refused by line and column. */
#include "support/test.h"
#include "support/texts.h"

#define GRAMMAR(...) CHECK_TEXTS(HEARTH_CONSTRAINT_GRAMMAR, __VA_ARGS__)
#define TAKES(...) .takes = {__VA_ARGS__}
#define REFUSES(...) .refuses = {__VA_ARGS__}
#define BAD(SOURCE, STATUS, WORDS)                                                                           \
    CHECK_REFUSED(HEARTH_CONSTRAINT_GRAMMAR, SOURCE, HEARTH_ERROR_##STATUS, WORDS)

TEST(grammar_of_texts_and_classes)
{
    GRAMMAR("root ::= \"yes\" | \"no\"", TAKES("yes", "no"), REFUSES("y", "yesno", "", "maybe"));
    GRAMMAR("root ::= [a-c] [^a-c\\n] . ", TAKES("ad\xC3\xA9", "b\xE2\x82\xAC\n"),
            REFUSES("dd.", "aa.", "a\n."));
    GRAMMAR("root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\\t\"", TAKES("A\xC3\xA9\xF0\x9F\x98\x80\"\\\t"),
            REFUSES("A"));
    GRAMMAR("root ::= [\\]\\-a-] [-+]", TAKES("]-", "-+", "a-"), REFUSES("b-"));
}

TEST(grammar_of_rules_and_groups)
{
    GRAMMAR("# comment\nroot ::= item (\",\" item)* # more\nitem ::= num |\n  \"x\"\n\nnum ::= [0-9]+",
            TAKES("1", "12,x,3", "x"), REFUSES("", ",", "1,", "xx"));
    GRAMMAR("root ::= (\n  \"a\" |\n  (\"b\" | )\n  \"c\"\n)", TAKES("a", "bc", "c"), REFUSES("b", "ac"));
    GRAMMAR("root ::= \"(\" root \")\" | \"x\"", TAKES("x", "(x)", "(((x)))"), REFUSES("(x", "x)", "()"));
    GRAMMAR("root ::= e\ne ::= t (\"+\" t)*\nt ::= \"n\" | \"(\" e \")\"", TAKES("n+n", "(n+(n))+n"),
            REFUSES("n+", "()"));
    GRAMMAR("root ::= ws \"a\" ws\nws ::= ([ \\t] ws)?", TAKES("a", "  a\t "), REFUSES(" "));
    GRAMMAR("root ::=\n \"a\"", TAKES("a"), REFUSES("b"));
}

TEST(grammar_of_repetitions)
{
    GRAMMAR("root ::= \"ab\"{2} [x]{1,3} \"y\"{2,} \"z\"? ", TAKES("ababxyy", "ababxxxyyyyz"),
            REFUSES("abxyy", "ababyy", "ababxxxxyy", "ababxy"));
    GRAMMAR("root ::= (\"a\"?){3} \"b\"{0,0} \"c\"{0,1000000}", TAKES("", "aaa", "ccc", "ac"),
            REFUSES("aaaa", "b"));
    GRAMMAR("root ::= (\"a\"*)* \"b\"", TAKES("b", "aab"), REFUSES("a"));
}

TEST(a_recursive_grammar_of_json)
{
    GRAMMAR(
        "root ::= object\n"
        "value ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
        "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
        "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
        "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}))* "
        "\"\\\"\" ws\n"
        "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
        "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
        TAKES("{}", "{\"a\": [1, 2.5e3, \"\\u00e9\"],\n  \"b\": {}}\n"),
        REFUSES("[]", "{\"a\"}", "{\"a\": }"));
}

TEST(grammars_are_refused_by_line_and_column)
{
    BAD("", FORMAT, "grammar: |no rule root");
    BAD("a ::= \"b\"", FORMAT, "no rule root");
    BAD("root ::= a", FORMAT, "line 1 column 10: there is no rule a");
    BAD("root ::= \"a\"\nroot ::= \"b\"", FORMAT, "line 2 column 1: |defined twice");
    BAD("root = \"a\"", FORMAT, "line 1 column 6: ::= is expected");
    BAD("root ::= \"a", FORMAT, "ends in the midst");
    BAD("root ::= [a", FORMAT, "ends in the midst");
    BAD("root ::= (\"a\"", FORMAT, ") is expected");
    BAD("root ::= \"a\")", FORMAT, "line 1 column 13: an unexpected character");
    BAD("root ::= *", FORMAT, "nothing to repeat");
    BAD("root ::= \"a\"{3,2}", FORMAT, "exchanged");
    BAD("root ::= \"a\"{x}", FORMAT, "number of repetitions");
    BAD("root ::= \"a\"{99999999999}", FORMAT, "too many repetitions");
    BAD("root ::= \"\\q\"", FORMAT, "escape");
    BAD("root ::= \"\\x4\"", FORMAT, "hexadecimal");
    BAD("root ::= \"\\uD800\"", FORMAT, "no character");
    BAD("root ::= \"\\uDFFF\"", FORMAT, "no character");
    BAD("root ::= [b-a]", FORMAT, "upside down");
    BAD("root ::= \"\xFF\"", FORMAT, "no UTF-8");
    BAD("root ::= <think>", UNSUPPORTED, "tokens");
    BAD("root ::= root \"a\" | \"b\"", UNSUPPORTED, "grammar: root begins with itself");
    BAD("root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a \"y\" | \"z\"", UNSUPPORTED, "begins with itself");
    BAD("root ::= (root)*", UNSUPPORTED, "begins with itself");
    BAD("root ::= \"a\" root", ARGUMENT, "allows no text");
    BAD("root ::= []", ARGUMENT, "allows no text");
    BAD("root ::= (\"a\"?){0,100}", UNSUPPORTED, "can be empty");
    BAD("\nroot ::= \"a\"\n  ::", FORMAT, "line 3 column 3: the name of a rule");
}

static void check_choices(const char *const *choices, size_t n, const char *text, bool takes)
{
    hth_token_trie *trie = texts_bytes_trie();
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_CHOICES, .choices = choices, .n_choice = n};
    hearth_constraint_end end;
    bool all =
        texts_follow(trie, &o, text, strlen(text), &end) == strlen(text) && end != HEARTH_CONSTRAINT_INCOMPLETE;
    if (all != takes) test_fail(__FILE__, __LINE__, "%s: %d", text, all);
    hth_token_trie_close(trie);
}

TEST(choices_allow_their_texts_alone)
{
    static const char *const choices[] = {"yes", "no", "not at all", "\xC3\xA9\n\""};
    for (size_t i = 0; i < 4; i++) check_choices(choices, 4, choices[i], true);
    check_choices(choices, 4, "ye", false);
    check_choices(choices, 4, "yesno", false);
    check_choices(choices, 4, "", false);
    static const char *const empty[] = {"a", ""};
    hth_token_trie *trie = texts_bytes_trie();
    hearth_constraint *c = NULL;
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_CHOICES, .choices = empty, .n_choice = 2};
    CHECK_FAILS(hth_constraint_open(trie, &o, NULL, &c, err), HEARTH_ERROR_ARGUMENT,
                "choices: choice 1 is empty");
    o.n_choice = 0;
    CHECK_FAILS(hth_constraint_open(trie, &o, NULL, &c, err), HEARTH_ERROR_ARGUMENT,
                "n_choice is 0");
    o.kind = (hearth_constraint_kind)9;
    CHECK_FAILS(hth_constraint_open(trie, &o, NULL, &c, err), HEARTH_ERROR_ARGUMENT, "kind is 9");
    hth_token_trie_close(trie);
}
