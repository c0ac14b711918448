/* chat/normalise.c: what each rule makes of a conversation, the order of sets, failures of memory. With templates:
 * tests/serve/test_templates.py. */
#include "chat/normalise.h"

#include "support/faults.h"
#include "support/test.h"

static hth_message of(const char *role, const char *content, const char *members)
{
    return (hth_message){.role = {role, strlen(role)}, .content = {content, strlen(content)}, .members = {members, strlen(members)}};
}

/* "role content members|..." */
static void check(unsigned rules, const hth_message *m, size_t n, bool is_new, const char *wanted)
{
    hth_plain_messages out = {0};
    bool found_new = false;
    char text[2000];
    size_t at = 0;
    CHECK_OK(hth_normalise(m, n, rules, &out, &found_new, err));
    for (size_t i = 0; i < out.n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.*s %.*s %.*s", i ? "|" : "", (int)out.at[i].role.n,
                               out.at[i].role.bytes, (int)out.at[i].content.n, out.at[i].content.bytes,
                               (int)out.at[i].members.n, out.at[i].members.bytes);
    CHECK_TEXT(text, wanted);
    CHECK_INT(found_new, is_new);
    hth_plain_messages_free(&out);
}
#define CHECK_RULES(RULES, IS_NEW, WANTED, ...)                                                                \
    check(RULES, (const hth_message[]){__VA_ARGS__}, sizeof((const hth_message[]){__VA_ARGS__}) / sizeof(hth_message), \
          IS_NEW, WANTED)

TEST(sets_of_few_rules_come_first)
{
    const hth_message m[] = {of("assistant", "a", "{\"tool_calls\":[{\"id\":\"1\"},{\"id\":\"2\"}]}"),
                             of("tool", "r", "{\"tool_call_id\":\"1\"}"), of("user", "", ""), of("system", "t", "")};
    hth_normal_sets sets;
    unsigned n = 0, all = 0, last = 0, set;
    CHECK_OK(hth_normal_begin(m, 4, &sets, err));
    CHECK_INT(sets.possible, 1023);
    for (; (set = hth_normal_next(&sets)) != 0; n++, all |= set, last = set) {
        CHECK(!(set & HTH_NORMAL_LATER && set & HTH_NORMAL_SYSTEM));
        CHECK(__builtin_popcount(set) > __builtin_popcount(last) || (__builtin_popcount(set) == __builtin_popcount(last) && set > last));
    }
    CHECK_INT(n, 2 * 4 * 64 - 1);
    CHECK_INT(all, 1023);
    CHECK_OK(hth_normal_begin(&(hth_message){.role = {"user", 4}, .content = {"a", 1}, .members = {"", 0}}, 1, &sets, err));
    CHECK(sets.possible == 0 && hth_normal_next(&sets) == 0);
}

TEST(messages_of_the_system_move_to_the_user)
{
    CHECK_RULES(HTH_NORMAL_LATER | HTH_NORMAL_MERGE, true, "system s |user a\n\nt |assistant b ", of("system", "s", ""),
                of("user", "a", ""), of("system", "t", ""), of("assistant", "b", ""));
    CHECK_RULES(HTH_NORMAL_SYSTEM | HTH_NORMAL_MERGE, true, "user s\n\na ", of("system", "s", ""), of("user", "a", ""));
    CHECK_RULES(HTH_NORMAL_SYSTEM | HTH_NORMAL_MERGE, true, "user s |assistant b ", of("system", "s", ""),
                of("assistant", "b", ""));
    CHECK_RULES(HTH_NORMAL_LATER | HTH_NORMAL_MERGE, false, "system s |user a ", of("system", "s", ""), of("user", "a", ""));
}

TEST(messages_of_one_role_become_one)
{
    CHECK_RULES(HTH_NORMAL_MERGE, true, "user a\n\nb\n\nc ", of("user", "a", ""), of("user", "b", ""), of("user", "c", ""));
    CHECK_RULES(HTH_NORMAL_MERGE, true, "user b |tool x |tool y ", of("user", "", ""), of("user", "b", ""), of("tool", "x", ""),
                of("tool", "y", ""));
    CHECK_RULES(HTH_NORMAL_MERGE, true, "assistant a\n\nb {\"tool_calls\": [1]}|assistant c ", of("assistant", "a", ""),
                of("assistant", "b", "{\"tool_calls\": [1]}"), of("assistant", "c", ""));
    CHECK_RULES(HTH_NORMAL_MERGE, false, "user a |assistant b ", of("user", "a", ""), of("assistant", "b", ""));
}

TEST(turns_are_filled_with_empty_messages)
{
    CHECK_RULES(HTH_NORMAL_FIRST, true, "user  |assistant a ", of("assistant", "a", ""));
    CHECK_RULES(HTH_NORMAL_FIRST, true, "system s |user  |assistant a ", of("system", "s", ""), of("assistant", "a", ""));
    CHECK_RULES(HTH_NORMAL_FIRST, false, "user a |assistant b ", of("user", "a", ""), of("assistant", "b", ""));
    CHECK_RULES(HTH_NORMAL_ALTERNATE, true, "tool r |assistant  |user a ", of("tool", "r", ""), of("user", "a", ""));
}

TEST(texts_beside_calls_move_or_are_none)
{
    static const char calls[] = "{\"tool_calls\":[{\"id\":\"1\"}]}";
    hth_plain_messages out;
    bool is_new;
    CHECK_RULES(HTH_NORMAL_APART, true, "assistant a |assistant  {\"tool_calls\":[{\"id\":\"1\"}]}", of("assistant", "a", calls));
    CHECK_RULES(HTH_NORMAL_APART, false, "assistant a ", of("assistant", "a", ""));
    CHECK_RULES(HTH_NORMAL_FILL, true, "user ... |assistant ... ", of("user", "", ""), of("assistant", "", ""));
    CHECK_RULES(HTH_NORMAL_FILL, false, "assistant  {\"tool_calls\":[{\"id\":\"1\"}]}|tool  ", of("assistant", "", calls),
                of("tool", "", ""));
    const hth_message m[] = {of("assistant", "", calls), of("assistant", "a", calls), of("user", "", "")};
    CHECK_OK(hth_normalise(m, 3, HTH_NORMAL_NONE, &out, &is_new, err));
    CHECK(is_new && !out.at[0].content.bytes && out.at[1].content.bytes && out.at[2].content.bytes);
    hth_plain_messages_free(&out);
}

TEST(ids_become_nine_letters_and_calls_keep_their_results)
{
    hth_plain_messages out;
    bool is_new;
    const hth_message m[] = {of("assistant", "", "{\"tool_calls\":[{\"id\":\"call_1\",\"n\":1e400},{\"id\":\"abcDEF123\"}]}"),
                             of("tool", "r", "{\"tool_call_id\":\"call_1\"}")};
    CHECK_OK(hth_normalise(m, 2, HTH_NORMAL_IDS, &out, &is_new, err));
    CHECK(is_new && out.n == 2);
    CHECK(hth_str_contains(out.at[0].members, "abcDEF123") && hth_str_contains(out.at[0].members, "1e400"));
    CHECK(!hth_str_contains(out.at[0].members, "call_1"));
    char id[10] = "";
    CHECK_INT(sscanf(out.at[1].members.bytes, "{\"tool_call_id\":\"%9[0-9A-Za-z]\"}", id), 1);
    CHECK(strlen(id) == 9 && hth_str_contains(out.at[0].members, id));
    hth_plain_messages_free(&out);
    CHECK_OK(hth_normalise(&m[1], 0, HTH_NORMAL_IDS, &out, &is_new, err));
    CHECK(!is_new && out.n == 0);
    hth_plain_messages_free(&out);
}

TEST(an_answer_of_several_calls_becomes_several)
{
    CHECK_RULES(HTH_NORMAL_SPLIT, true,
                "assistant a {\"reasoning_content\":\"t\",\"tool_calls\":[{\"id\":\"1\"}]}|tool r {\"tool_call_id\":\"1\"}|"
                "assistant  {\"tool_calls\":[{\"id\":\"2\"}]}|tool s {\"tool_call_id\":\"2\"}|user b ",
                of("assistant", "a", "{\"reasoning_content\":\"t\",\"tool_calls\":[{\"id\":\"1\"},{\"id\":\"2\"}]}"),
                of("tool", "s", "{\"tool_call_id\":\"2\"}"), of("tool", "r", "{\"tool_call_id\":\"1\"}"), of("user", "b", ""));
    CHECK_RULES(HTH_NORMAL_SPLIT, true,
                "assistant  {\"tool_calls\":[{\"id\":\"1\"}]}|assistant  {\"tool_calls\":[{\"id\":\"1\"}]}|tool r |"
                "tool s {\"tool_call_id\":\"3\"}",
                of("assistant", "", "{\"tool_calls\":[{\"id\":\"1\"},{\"id\":\"1\"}]}"), of("tool", "r", ""),
                of("tool", "s", "{\"tool_call_id\":\"3\"}"));
    CHECK_RULES(HTH_NORMAL_SPLIT, false, "assistant a {\"tool_calls\":[{\"id\":\"1\"}]}",
                of("assistant", "a", "{\"tool_calls\":[{\"id\":\"1\"}]}"));
}

TEST(what_a_prompt_shows)
{
    const hth_message m[] = {of("user", " one, two!\n", ""), of("assistant", "<think>x y</think>\n\nthree", ""),
                             of("user", "\"\\\"", "")};
    CHECK(hth_shows_messages("<one, two!> three", 17, m, 3));
    CHECK(!hth_shows_messages("three one", 9, m, 3) && !hth_shows_messages("one", 3, m, 3));
    const hth_message call = of("assistant", "", "{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 12}\"}}]}");
    CHECK(hth_shows_messages("<f {\"a\"}>", 9, &call, 1) && !hth_shows_messages("<f>", 3, &call, 1));
    CHECK(!hth_shows_messages("a", 1, &call, 1));
    CHECK(hth_shows_messages("", 0, m, 0) && hth_shows_messages("", 0, &m[2], 1));
}

static hearth_status normalise_all(const fault_paths *p, hearth_error *err)
{
    const hth_message m[] = {of("system", "s", ""), of("assistant", "a", "{\"tool_calls\":[{\"id\":\"1\"},{\"id\":\"2\"}]}"),
                             of("tool", "r", "{\"tool_call_id\":\"1\"}"), of("user", "b", ""), of("system", "t", "")};
    hth_plain_messages out;
    bool is_new;
    (void)p;
    hearth_status st = hth_normalise(m, 5, 1023 - HTH_NORMAL_SYSTEM, &out, &is_new, err);
    if (st == HEARTH_OK) hth_plain_messages_free(&out);
    return st;
}

TEST(every_allocation_may_fail) { fault_survive("normalise", normalise_all, 4, 0, 0); }
