/* The template language: what Python's Jinja2 makes of the same templates
 * (jinja_cases.jsonl, written by make_jinja_cases.py), where each byte came from, every
 * limit, every message with its line, and every allocation that fails. */
#include "base/alloc.h"
#include "support/guard.h"
#include "support/models/json_lines.h"
#include "support/test.h"
#include "chat/template.h"

#include <pthread.h>

/* 26 July 2024, 15:04:05, as make_jinja_cases.py has it. */
static const int64_t the_time = 1722006245;

static hth_str word(const char *text) { return (hth_str){text, strlen(text)}; }

/* Opens and renders; *r is empty after a failure. */
static hearth_status render_bytes(const char *source, size_t n, const hth_template_input *in, hth_rendered *r,
                                  hearth_error *err)
{
    CLOSED(hth_template) *t = NULL;
    *r = (hth_rendered){0};
    hearth_status st = hth_template_open(source, n, &t, err);
    if (st == HEARTH_OK) st = hth_template_render(t, in, r, err);
    return st;
}

static hearth_status render(const char *source, const hth_template_input *in, hth_rendered *r,
                            hearth_error *err)
{
    return render_bytes(source, strlen(source), in, r, err);
}

static const hth_message hello = {.role = {"user", 4}, .content = {"Hello", 5}};
static const hth_template_input plain = {.messages = &hello, .n_message = 1, .seconds = &the_time};

static void expect(const char *source, const char *wanted)
{
    CLEANUP(hth_rendered_free) hth_rendered r;
    hearth_error why = {0};
    if (render(source, &plain, &r, &why) != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", source, why.message);
    else CHECK_TEXT(r.text, wanted);
}

static void refused(const char *source, hearth_status status, const char *says)
{
    CLEANUP(hth_rendered_free) hth_rendered r;
    hearth_error why = {0};
    hearth_status st = render(source, &plain, &r, &why);
    if (st != status || !strstr(why.message, says))
        test_fail(__FILE__, __LINE__, "%.80s: '%s', \"%s\"; wanted '%s', \"%s\"", source,
                  hearth_status_name(st), why.message, hearth_status_name(status), says);
    CHECK(r.text == NULL && r.parts == NULL);
}
static void malformed(const char *source, const char *says) { refused(source, HEARTH_ERROR_FORMAT, says); }
static void unsupported(const char *source, const char *says) { refused(source, HEARTH_ERROR_UNSUPPORTED, says); }

/* ---- the language -------------------------------------------------------------------------------------- */

/* Contents end at an unreadable page, and no NUL is behind them. */
TEST(no_byte_behind_a_text_is_read)
{
    static const char *const contents[] = {"1234567890123456", "0", "-12.5e3", " a b ", "x", "%s", "{}", "[1]", "\xC3\xA9"};
    static const char *const sources[] = {
        "{{ [[1]]|map(attribute=messages[0].content)|list }}", "{{ [{'a': {'1': 2}}]|map(attribute='a.' ~ messages[0].content)|list }}",
        "{{ [[1]]|selectattr(messages[0].content)|list }}", "{{ [[1, 2]]|sort(attribute=messages[0].content) }}",
        "{{ messages[0].content|int }}{{ messages[0].content|float }}", "{{ messages[0].content|trim|title|capitalize|e|wordcount }}",
        "{{ messages[0].content.split() }}{{ messages[0].content|indent }}", "{{ messages[0].content.format(1) }}",
        "{{ messages[0].content|format(1) }}", "{{ messages[0].content % 1 }}", "{{ messages[0].content|from_json }}",
        "{{ messages[0][messages[0].content] }}{{ messages|attr(messages[0].content) }}", "{{ '{:>9}'.format(messages[0].content) }}",
        "{{ messages[0].content|replace(messages[0].content, 'b') }}", "{{ messages[0].content.isdigit() }}{{ messages[0].content|tojson }}",
        "{{ strftime_now(messages[0].content) }}", "{{ messages[0].content.lower().splitlines() }}"};
    guard g;
    guard_open(&g, 64);
    for (size_t c = 0; c < sizeof contents / sizeof *contents; c++) {
        size_t n = strlen(contents[c]);
        char *content = guard_place(&g, n, GUARD_BEHIND, 0);
        memcpy(content, contents[c], n);
        const hth_message m = {.role = {"user", 4}, .content = {content, n}};
        const hth_template_input in = {.messages = &m, .n_message = 1, .seconds = &the_time};
        for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
            CLEANUP(hth_rendered_free) hth_rendered r;
            hearth_error why = {0};
            hearth_status st = render(sources[i], &in, &r, &why);
            CHECK(st == HEARTH_OK || strstr(why.message, "line 1"));
        }
    }
    guard_close(&g);
    expect("{{ [[1, 2]]|map(attribute='1')|list }}{{ [{'01a': 3}]|map(attribute='01a')|list }}", "[2][3]");
    expect("{{ [{'1234567890': 3}]|map(attribute='1234567890')|list }}", "[3]"); /* longer than indices are */
}

TEST(templates_mean_what_they_mean_in_python)
{
    size_t n, n_case = 0;
    FREED char *lines = test_read_file(HEARTH_SOURCE_DIR "/tests/chat/jinja_cases.jsonl", &n);
    char *rest = lines;
    if (!CHECK(lines != NULL)) return;
    char *line = json_next_line(&rest), *variables = json_text_of(json_field(line, "variables"), &n);
    hth_template_input in = {.seconds = &the_time, .variables = {variables, n}};
    for (; (line = json_next_line(&rest)) != NULL; n_case++) {
        FREED char *source = json_text_of(json_field(line, "template"), &n);
        CLEANUP(hth_rendered_free) hth_rendered r;
        hearth_error why = {0};
        hearth_status st = render_bytes(source, n, &in, &r, &why);
        const char *out = json_field(line, "out");
        FREED char *wanted = out ? json_text_of(out, &n) : NULL;
        if (!out && st == HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: is refused by Jinja2, not here", source);
        if (out && st != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", source, why.message);
        if (out && st == HEARTH_OK && (r.n != n || memcmp(r.text, wanted, n) != 0))
            test_fail(__FILE__, __LINE__, "%s: \"%.*s\", not \"%s\"", source, (int)r.n, r.text, wanted);
    }
    CHECK(n_case > 150);
    free(variables);
}

/* What Jinja2 does otherwise, or does not have. */
TEST(templates_have_some_ways_of_their_own)
{
    expect("{{ '{\"a\": [1, 2.5, \"\\\\u00e9\\\\ud83d\\\\ude42\\\\n\", null, true, false, -3, "
           "1e2]}'|from_json }}",
           "{'a': [1, 2.5, '\xC3\xA9\xF0\x9F\x99\x82\\n', None, True, False, -3, 100.0]}");
    expect(
        "{{ '[]'|fromjson }}{{ ' {} '|fromjson }}{{ '\"\\\\ud800x\"'|fromjson }}{{ '[ 1 , 2 ]'|fromjson }}",
        "[]{}\xEF\xBF\xBDx[1, 2]");
    expect("{{ '9223372036854775807'|fromjson }} {{ '-9223372036854775808'|fromjson }} {{ "
           "'9223372036854775808'|fromjson }}",
           "9223372036854775807 -9223372036854775808 9223372036854775808");
    expect("{{ '[18446744073709551615,1e400,8.0,1e1]'|fromjson|tojson }} {{ ('-1e400'|fromjson) < 0 }} "
           "{{ ('18446744073709551615'|fromjson) is integer }} {{ ('1e400'|fromjson) is integer }}",
           "[18446744073709551615, 1e400, 8.0, 10.0] True True False");
    expect("{{ '\xC3\xA9'|upper }}{{ '\xC3\x89'|lower }}", "\xC3\xA9\xC3\x89"); /* cases of ASCII only */
    expect("{% set l = [1] %}{{ l.append(2) }}{{ l.extend([3]) }}{{ l.insert(0, 9) }}{{ l.insert(-1, 8) }}{{ "
           "l.insert(99, 7) }}{{ l }}"
           "{{ l.pop() }}{{ l.pop(0) }}{{ l }}",
           "NoneNoneNoneNoneNone[9, 1, 2, 8, 3, 7]79[1, 2, 8, 3]");
    expect("{% set d = {'a': 1} %}{{ d.update({'b': 2}, c=3) }}{{ d.setdefault('a', 5) }}{{ "
           "d.setdefault('z', 5) }}{{ d.pop('a') }}"
           "{{ d.pop('q', 0) }}{{ d }}",
           "None1510{'b': 2, 'c': 3, 'z': 5}");
    expect("{{ strftime_now('%F %T %-d %-m %e %-H %-I %-M %-S %-j') }}", "2024-07-26 15:04:05 26 7 26 15 3 4 5 208");
    expect("{{ messages[0].content }}{{ messages|length }}{{ add_generation_prompt }}{{ bos_token }}{{ "
           "eos_token }}",
           "Hello1False");
    expect("{% generation %}{{ 'a' }}{% if true %}b{% endif %}{% endgeneration %}c", "abc");
    expect("", "");
    expect("\n", "");
    expect("{{ 'a\\\nb' }}", "ab");
    expect("{{ '\\0' == '\\x00' }}", "True");
    expect("{{ '1.2.3'|float }} {{ '1.2.3'|int }} {{ '..5'|float }} {{ '1.5'|float }}", "0.0 0 0.0 1.5");
    /* a limit below zero is none, however far below */
    expect("{% set least = -9223372036854775807 - 1 %}{{ 'a b  c'.split(none, least) }}"
           "{{ 'a,b,c'.split(',', least) }}{{ 'aba'|replace('a', 'c', least) }}",
           "['a', 'b', 'c']['a', 'b', 'c']cbc");
}

/* As Python has them; what templates rarely do. */
TEST(rare_values_mean_what_they_mean_in_python)
{
    expect("{{ 1 if 0.5 else 0 }}{{ 1 if 0.0 else 0 }}{{ 1 if {} else 0 }}{{ 1 if {'a': 1} else 0 }}"
           "{% set ns = namespace() %}{{ 1 if ns else 0 }}{% macro f() %}{% endmacro %}{{ 1 if f else 0 }}"
           "{{ 1 if range else 0 }}{% for x in [1] %}{{ 1 if loop else 0 }}{% endfor %}",
           "10011111");
    expect("{{ 1.5 < 2 }}{{ 2 > 2.5 }}{{ 0.5 * 4 }}{{ [1, 2] < [1, 2, 3] }}", "TrueFalse2.0True");
    expect("{{ [[1, 2], [3, 4]]|map(attribute='1')|join(',') }}", "2,4");
    expect("{% set a = namespace() %}{% set b = namespace() %}{{ a == a }}{{ a == b }}", "TrueFalse");
    expect("{{ 1e308 * 10 }} {{ -1e308 * 10 }} {{ 1e308 * 10 - 1e308 * 10 }}", "inf -inf nan");
}

/* The bytes of a template are characters (C7 of docs/reliability.md); those of a message
 * need not be: one that is none counts as one. */
TEST(templates_are_utf_8_and_contents_any_bytes)
{
    malformed("\xFF", "line 1: not UTF-8");
    malformed("{{ '\xC3' }}", "not UTF-8");
    malformed("\xED\xA0\x80", "not UTF-8");
    const hth_message m = {.role = word("user"), .content = {"\xFF\xC3", 2}};
    hth_template_input in = {.messages = &m, .n_message = 1};
    CLEANUP(hth_rendered_free) hth_rendered r;
    CHECK_OK(render("{{ messages[0].content|length }}{{ messages[0].content[1:]|length }}", &in, &r, err));
    CHECK_TEXT(r.text, "21");
}

TEST(dates_are_those_of_the_calendar)
{
    static const struct {
        int64_t seconds;
        const char *wanted;
    } dates[] = {
        {0, "1970-01-01 00:00:00 Thursday 001"},
        {-1, "1969-12-31 23:59:59 Wednesday 365"},
        {951782400, "2000-02-29 00:00:00 Tuesday 060"},
        {1709251199, "2024-02-29 23:59:59 Thursday 060"},
        {1735689599, "2024-12-31 23:59:59 Tuesday 366"},
        {4107542400, "2100-03-01 00:00:00 Monday 060"},
        {-2208988800, "1900-01-01 00:00:00 Monday 001"},
        {INT64_MIN, "-292277022657-01-27 08:29:52 Sunday 027"},
    };
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        hth_template_input in = {.seconds = &dates[i].seconds};
        CLEANUP(hth_rendered_free) hth_rendered r;
        CHECK_OK(render("{{ strftime_now('%Y-%m-%d %H:%M:%S %A %j') }}", &in, &r, err));
        CHECK_TEXT(r.text, dates[i].wanted);
    }
}

TEST(without_a_clock_there_is_no_time)
{
    hth_template_input in = {.messages = &hello, .n_message = 1};
    CLEANUP(hth_rendered_free) hth_rendered r;
    CHECK_OK(render("{{ strftime_now is defined }}", &in, &r, err));
    CHECK_TEXT(r.text, "False");
}

TEST(variables_come_as_json)
{
    hth_template_input in = {.variables = word("{\"a\": {\"b\": [1]}, \"add_generation_prompt\": 5}")};
    hth_rendered r;
    hearth_error why;
    CHECK_OK(render("{{ a.b[0] }}{{ add_generation_prompt }}", &in, &r, err));
    CHECK_TEXT(r.text, "15");
    hth_rendered_free(&r);
    static const char *const bad[] = {
        "[]", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{\"a\":01}", "{\"a\":1.}", "{\"a\":1e}",
        "{\"a\":\"\\x\"}", "{\"a\":\"\\u12\"}", "{\"a\":\"\n\"}", "{\"a\":\"", "{} x", "{\"a\":tru}", "{\"a\":-}",
        "[1 2]", "{\"a\" 1}", "{\"a\":1 \"b\":2}", "{1:2}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        in.variables = word(bad[i]);
        hearth_status st = render("", &in, &r, &why);
        if (st == HEARTH_OK || strncmp(why.message, "chat template: ", 15) != 0)
            test_fail(__FILE__, __LINE__, "%s: \"%s\"", bad[i], why.message);
    }
}

/* ---- where bytes came from ------------------------------------------------------------------------------ */

/* Renders with one message by a user whose content is "<U>"; wanted has the bytes that
 * are not template text in brackets. */
static void expect_origin(const char *source, const char *wanted)
{
    const hth_message m = {.role = {"user", 4}, .content = {"<U> <v>", 7}};
    hth_template_input in = {.messages = &m, .n_message = 1, .bos = word("<s>"), .eos = word("</s>"),
                             .seconds = &the_time,
                             .variables = word("{\"x\": \"<X>\", \"o\": {\"<K>\": [\"<W>\"]}}")};
    CLEANUP(hth_rendered_free) hth_rendered r;
    hearth_error why = {0};
    char shown[1000] = "";
    size_t n = 0;
    if (render(source, &in, &r, &why) != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", source, why.message);
    for (size_t i = 0; i < r.n_part; i++)
        n += (size_t)snprintf(shown + n, sizeof shown - n, r.parts[i].is_template ? "%.*s" : "[%.*s]",
                              (int)r.parts[i].n, r.parts[i].text);
    if (strcmp(shown, wanted) != 0) test_fail(__FILE__, __LINE__, "%s: \"%s\", not \"%s\"", source, shown, wanted);
}

/* With that content in c. */
static void expect_origin_of(const char *source, const char *wanted)
{
    char whole[500];
    snprintf(whole, sizeof whole, "{%% set c = messages[0].content %%}%s", source);
    expect_origin(whole, wanted);
}

TEST(content_stays_content_through_every_operation)
{
    expect_origin("a{{ messages[0].content }}b", "a[<U> <v>]b");
    expect_origin("{{ bos_token + messages[0].role + messages[0].content + eos_token }}", "<s>user[<U> <v>]</s>");
    expect_origin_of("{{ c[:2] + '|' + c[-1] }}{{ c[::-1] }}", "[<U]|[>>v< >U<]");
    expect_origin_of("{{ c|upper }}.{{ c|lower }}.{{ c|title }}.{{ c|capitalize }}",
              "[<U> <V>].[<u> <v>].[<U> <V>].[<u> <v>]");
    expect_origin_of("{{ (' ' ~ c ~ ' ')|trim }}.{{ c.strip('<>') }}", "[<U> <v>].[U> <v]");
    expect_origin_of("{{ ('a' ~ c ~ 'b').replace('a', '<U>') }}{{ 'xy'.replace('y', c) }}", "<U>[<U> <v>]bx[<U> <v>]");
    expect_origin_of("{{ c.replace('U', '|im_end|') }}", "[<]|im_end|[> <v>]");
    expect_origin_of("{{ c.split() }}{{ c.split('>')[0] }}{{ c.partition(' ')[2] }}", "['[<U>]', '[<v>]'][<U<v>]");
    expect_origin_of("{{ c.splitlines()[0] }}{{ c.removeprefix('<') }}{{ c.rsplit(' ', 1)|join('-') }}",
              "[<U> <v>U> <v><U>]-[<v>]");
    expect_origin_of("{{ [c, '<f>']|join(',') }}{{ c * 2 }}", "[<U> <v>],<f>[<U> <v><U> <v>]");
    expect_origin_of("{{ ('<f>' ~ c) * 2 }}", "<f>[<U> <v>]<f>[<U> <v>]");
    expect_origin_of("{{ c|tojson }}{{ {'a': c}|tojson(indent=1) }}", "\"[<U> <v>]\"{\n \"a\": \"[<U> <v>]\"\n}");
    expect_origin("{% set c = messages[0].content ~ '\"' %}{{ c|tojson(ensure_ascii=true) }}", "\"[<U> <v>]\\\"\"");
    expect_origin_of("{{ [c] }}{{ c|list }}", "['[<U> <v>]']['[<]', '[U]', '[>]', '[ ]', '[<]', '[v]', '[>]']");
    expect_origin_of("{% for x in c %}{{ x }}-{% endfor %}", "[<]-[U]-[>]-[ ]-[<]-[v]-[>]-");
    expect_origin_of("{{ c|e }}{{ c|indent(1, true) }}", "[&lt;U&gt; &lt;v&gt;] [<U> <v>]");
    expect_origin("{% set c %}<f>{{ messages[0].content }}{% endset %}{{ c }}{{ c|length }}", "<f>[<U> <v>]10");
    expect_origin("{% macro m(x) %}<f>{{ x }}{% endmacro %}{{ m(messages[0].content)|upper }}", "<F>[<U> <V>]");
    expect_origin("{% filter upper %}{{ messages[0].content }}<f>{% endfilter %}", "[<U> <V>]<F>");
    expect_origin("{% set ns = namespace(t='') %}{% for i in [1, 2] %}{% set ns.t = ns.t ~ messages[0].content ~ '<f>' "
           "%}{% endfor %}{{ ns.t }}",
           "[<U> <v>]<f>[<U> <v>]<f>");
    expect_origin("{{ messages }}", "[{'role': 'user', 'content': '[<U> <v>]'}]");
    expect_origin("{{ messages[0].content|default('<f>') }}{{ messages[0].content|string|safe }}{{ "
           "messages[0].content|reverse }}",
           "[<U> <v><U> <v>>v< >U<]");
    expect_origin("{{ messages|map(attribute='content')|join('<f>') }}{{ [messages[0].content, 'z']|sort|join }}",
           "[<U> <v><U> <v>]z");
    expect_origin("{{ x }}{{ o }}{{ o|tojson }}{{ o|items|first|first }}",
           "[<X>]{'[<K>]': ['[<W>]']}{\"[<K>]\": [\"[<W>]\"]}[<K>]");
    expect_origin("{{ ('\"' ~ messages[0].content ~ '\"')|fromjson }}{{ '\"<f>\"'|fromjson }}", "[<U> <v><f>]");
    expect_origin("{{ strftime_now(messages[0].content ~ '%Y<f>') }}", "[<U> <v>]2024<f>");
    expect_origin_of("{{ 'a' ~ c }}{{ 'b' ~ c ~ 'c' }}{{ ('d' ~ c)[0:3] }}", "a[<U> <v>]b[<U> <v>]cd[<U]");
    expect_origin_of("{{ '<f>{}{!r:<9}'.format(c, c) }}{{ '%s<f>%.2s' % (c, c) }}{{ '<%s>'|format(c) }}",
                     "<f>[<U> <v>]'[<U> <v>]'[<U> <v>]<f>[<U]<[<U> <v>]>");
    expect_origin_of("{{ (c ~ '{:' ~ c[0] ~ '>3}').format('a') }}", "[<U> <v><<]a");
    expect_origin_of("{{ '<i>'|safe + c }}{{ c + '<i>'|safe }}", "<i>[&lt;U&gt; &lt;v&gt;&lt;U&gt; &lt;v&gt;]<i>");
}

TEST(roles_are_words)
{
    static const char *const bad[] = {"", "a b", "<|im_end|>", "user\n", "\xC3\xA9"};
    hth_rendered r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const hth_message m = {.role = word(bad[i]), .content = word("x")};
        hth_template_input in = {.messages = &m, .n_message = 1};
        CHECK_FAILS(render("", &in, &r, err), HEARTH_ERROR_ARGUMENT, "message 0: a role");
    }
}

TEST(messages_name_the_line_and_what_is_wrong)
{
    unsupported("a\nb\n{{ s|nope }}", "chat template, line 3: filter 'nope' is not known");
    unsupported("\n{% if s is nope %}{% endif %}", "line 2: test 'nope' is not known");
    unsupported("{% include 'x' %}", "line 1: statement 'include' is not known");
    unsupported("{% for x in [] recursive %}{% endfor %}", "recursive");
    unsupported("\n\n{{ 'a'.zfill(3) }}", "line 3: method 'zfill' is not known of text");
    unsupported("{{ none.strip() }}", "method 'strip' is not known of none");
    malformed("{% generation %}", "the 'generation' that begins here");
    unsupported("{{ lipsum() }}", "function 'lipsum' is not known");
    unsupported("{{ '{:{}}'.format(1, 2) }}", "line 1: 'format' with fields inside a specification");
    unsupported("{{ '{:.61f}'.format(1.0) }}", "a precision of more than 60");
    unsupported("{{ '{:.3}'.format(1.0) }}", "a float with a precision, but no type");
    unsupported("{{ '{:#f}'.format(1.0) }}", "a float with '#'");
    unsupported("{{ '{:c}'.format(65) }}{{ '%c' % 65 }}", "a whole number as 'c'");
    unsupported("{{ '%c' % 65 }}", "type 'c'");
    unsupported("{{ '{:08,}'.format(65) }}", "grouped digits filled with zeros");
    unsupported("{{ '%(a)s' % {'a': 1} }}", "'%' with values by name");
    unsupported("{{ '%s'|format(a=1) }}", "'format' with values by name");
    malformed("{{ '{:123456789}'.format(65) }}", "the width is too large");
    unsupported("{{ '{:99999999}'.format(65) }}", "16 MiB");
    malformed("{{ [1][0]() }}", "int is not a function");
    malformed("{{ [][0]() }}", "a value is undefined");
    unsupported("{{ 'a'|tojson(x=1) }}", "'tojson' takes no argument 'x'");
    malformed("\n{{ 'a' + 1 }}", "line 2: '+' of text and int");
    malformed("{{ x.y + 1 }}", "'x' is undefined");
    malformed("{{ x + 'a' }}", "'x' is undefined, so '+' cannot be computed");
    malformed("{% if x %}\n{% for y in x %}\n", "line 2: the 'for' that begins here is not ended");
    malformed("{% if x %}{% endfor %}", "'endfor' does not end the 'if' of line 1");
    malformed("a\n{% endif %}", "line 2: 'endif' ends nothing");
    malformed("{{ 'abc }}", "not closed by its quotation mark");
    malformed("{# abc", "not closed by #}");
    malformed("{{ 1", "not closed by }}");
    malformed("{% if", "not closed by %}");
    malformed("{{ ) }}", "was not opened");
    malformed("{{ 1 $ 2 }}", "no expression has");
    malformed("{{ '\\xZZ' }}", "lacks digits");
    malformed("{{ '\\ud800' }}", "is no character");
    malformed("{{ 99999999999999999999 }}", "too large");
    malformed("{{ 1e999 }}", "too large");
    malformed("{{ 1111111111111111111111111111111111111111111111111111111111111111111111 }}", "60 digits");
    refused("{{ raise_exception('no \x01 such') }}", HEARTH_ERROR_ARGUMENT, "refuses these messages: no \\x01 such");
    unsupported("{{ strftime_now('%Q') }}", "'%Q' is not known");
    malformed("{{ strftime_now(none) }}", "wants a format");
    unsupported("{{ 9223372036854775807 + 1 }}", "too large");
    unsupported("{{ (-9223372036854775807 - 1) // -1 }}", "too large");
    unsupported("{{ 10 ** 30 }}", "too large");
    unsupported("{{ 3037000500 ** 2 }}", "too large");
    unsupported("{{ 2 ** 0.5 }}", "'**'");
    malformed("{{ range }}", "function cannot be printed");
    malformed("{{ [namespace()]|tojson }}", "namespace cannot be written as JSON");
    malformed("{{ 1.5[1:] }}", "float cannot be sliced");
    malformed("{{ [1][:'a'] }}", "expected a whole number, not text");
    malformed("{{ 'a'.startswith(1) }}", "expected a text, not int");
    unsupported("{{ 'a'|indent(100) }}", "indent");
    unsupported("{{ 1|tojson(indent=100) }}", "indent");
    malformed("{{ 1|tojson(separators=1) }}", "separators");
    unsupported("{{ 1|round(99) }}{{ 1.5|round(99) }}", "'round'");
    unsupported("{{ [1]|map('nope') }}", "filter 'nope' is not known");
    unsupported("{{ [1]|select('nope') }}", "test 'nope' is not known");
    malformed("{{ [1]|map }}", "expected the name of a filter");
    malformed("{{ [1]|selectattr }}", "expected the name of an attribute");
    malformed("{{ [1, 'a']|sort }}", "no order");
    malformed("{{ 5|items }}", "int has no items");
    malformed("{{ 5|dictsort }}", "int has no items");
    malformed("{{ [].pop() }}", "no such item");
    malformed("{{ {}.pop('a') }}", "the key is not there");
    malformed("{{ {}.update(1) }}", "takes a dict");
    malformed("{{ namespace(1) }}", "takes a dict or names");
    malformed("{{ ','.join([1]) }}", "'join' of int");
    unsupported("{{ 'a b c'.rsplit(none, 1) }}", "rsplit");
    malformed("{{ 'a'.partition('') }}", "empty text");
    malformed("{{ 'a'.count('') }}", "empty text");
    malformed("{{ 'a'.find(none) }}", "expected a text");
    malformed("{{ 1|fromjson }}", "expected a text");
    malformed("{{ 'a'|round }}", "'round' of text");
    malformed("{% for x in [1] %}{{ loop.cycle() }}{% endfor %}", "'cycle' of nothing");
    malformed("{% set a, b = 5 %}", "int is nothing to loop over");
    malformed("{{ 1 in 5 }}", "int is nothing to loop over");
}

/* ---- limits --------------------------------------------------------------------------------------------------- */

/* Enough copies of a piece, with something before and behind. */
static char *repeated(const char *before, const char *piece, size_t n, const char *behind)
{
    size_t size = strlen(piece);
    char *text = malloc(strlen(before) + n * size + strlen(behind) + 1), *at = text;
    at = stpcpy(at, before);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, piece);
    stpcpy(at, behind);
    return text;
}

static void refused_repeated(const char *before, const char *piece, size_t n, const char *behind,
                             const char *says)
{
    FREED char *text = repeated(before, piece, n, behind);
    refused(text, HEARTH_ERROR_UNSUPPORTED, says);
}

/* Operations count the bytes and elements that they read: a million of any of them end in seconds. */
TEST(what_reads_long_values_counts_what_it_reads)
{
    static const char *const reads[] = {"s|int == 3", "s|float == 3", "a == b", "a < b"};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        char source[300];
        hth_rendered r;
        snprintf(source, sizeof source,
                 "{%% set s = '9' * 4000000 %%}{%% set a = range(9000)|list %%}{%% set b = range(9000)|list %%}"
                 "{%% for x in range(300) %%}{%% for y in range(300) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}{%% endfor %%}",
                 reads[i]);
        hearth_error why = {0};
        CHECK_INT(render(source, &plain, &r, &why), HEARTH_ERROR_UNSUPPORTED);
        CHECK(strstr(why.message, "nodes were evaluated") != NULL);
        hth_rendered_free(&r);
    }
}

TEST(sources_are_limited)
{
    char *text = repeated("", "a", HTH_TEMPLATE_MAX_SOURCE, "");
    hth_rendered r;
    CHECK_OK(render(text, &plain, &r, err));
    CHECK_INT(r.n, HTH_TEMPLATE_MAX_SOURCE);
    hth_rendered_free(&r);
    free(text);
    refused_repeated("", "a", HTH_TEMPLATE_MAX_SOURCE + 1, "", "at most 4 MiB");
    refused_repeated("{{ [", "1,", 1000000, "] }}", "16 MiB of memory");
    refused_repeated("", "{% set a = 1 %}", 270000, "", "16 MiB of memory");
}

TEST(nesting_is_limited)
{
    refused_repeated("", "{% if 1 %}", 1000, "", "64 levels of nesting");
    refused_repeated("", "{% for x in [1] %}", 100000, "", "64 levels of nesting");
    refused_repeated("{{ ", "(", 100000, "1", "64 levels of nesting");
    refused_repeated("{{ ", "[", 100000, "1", "64 levels of nesting");
    refused_repeated("{{ ", "{1:", 100000, "1", "64 levels of nesting");
    refused_repeated("{{ ", "f(", 100000, "1", "64 levels of nesting");
    refused_repeated("{{ ", "a[", 100000, "1", "64 levels of nesting");
    refused_repeated("{{ ", "1 if 1 else ", 100000, "1 }}", "64 levels of nesting");
    refused_repeated("{{ a", "|upper", 100000, " }}", "evaluations inside one another");
    refused_repeated("{{ a", ".a", 100000, " }}", "evaluations inside one another");
    refused_repeated("{{ ", "not ", 100000, "1 }}", "evaluations inside one another");
    refused_repeated("{{ ", "- ", 100000, "1 }}", "evaluations inside one another");
    refused_repeated("{{ 1", " is defined", 100000, " }}", "evaluations inside one another");
    FREED char *text = repeated("{{ 'a'", " + 'a'", 50000, " }}"); /* a long chain is no nesting */
    CLEANUP(hth_rendered_free) hth_rendered r;
    CHECK_OK(render(text, &plain, &r, err));
    CHECK_INT(r.n, 50001);
}

TEST(what_is_evaluated_is_limited)
{
    unsupported("{% for x in range(1000000000) %}{% endfor %}", "MiB of memory");
    unsupported("{% for x in range(2000) %}{% for y in range(2000) %}{% endfor %}{% endfor %}",
                "more than 1000000 nodes");
    unsupported("{% for i in range(1000) %}{% for j in range(999) %}{% if i %}{% endif %}{% endfor %}{% endfor %}",
                "more than 1000000 nodes");
    unsupported("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "inside one another");
    unsupported("{% set l = [] %}{{ l.append(l) }}{{ l }}", "inside one another");
    unsupported("{% set l = [] %}{{ l.append(l) }}{{ l|tojson }}", "inside one another");
    unsupported("{% set l = [] %}{% set m = [] %}{{ l.append(m) }}{{ m.append(l) }}{{ l == m }}",
                "inside one another");
    unsupported("{% set l = [] %}{% set m = [] %}{{ l.append(m) }}{{ m.append(l) }}{{ l < m }}",
                "inside one another");
    unsupported("{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor "
            "%}{{ ns.l|length }}{{ ns.l }}",
                "more than 1000000 nodes");
    unsupported("{% set l = range(100)|list %}{% for i in l %}{{ l.extend(l) }}{% endfor %}", "");
    unsupported("{% set s = 'ab' * 4000000 %}{% for i in range(1000) %}{% if 'c' in s %}{% endif %}{% endfor %}",
                "more than 1000000 nodes");
    unsupported("{% set s = 'ab' * 4000000 %}{{ s.split('b')|length }}", "");
    unsupported("{% set s = ' ' * 8000000 %}{% for i in range(1000) %}{{ s|trim }}{% endfor %}", "nodes");
    unsupported("{% set d = {} %}{% for i in range(100000) %}{{ d.update({i: i}) }}{% endfor %}", "nodes");
    /* a set of characters is walked for each character: 4 * 10^12 steps */
    unsupported("{{ ('a' * 2000000).strip('b' * 2000000 ~ 'a')|length }}", "nodes");
    unsupported("{{ ('a' * 2000000).rstrip('b' * 2000000 ~ 'a')|length }}", "nodes");
    malformed("{% set l = [] %}{{ l.append(l) }}{{ l|map('map', 'map', 'map')|list|length }}",
              "expected the name of a filter");
    char *text = repeated("{% set m = 'map' %}{% set l = [] %}{{ l.append(l) }}{{ l|map(m", ", m", 60000,
                          ")|length }}");
    refused(text, HEARTH_ERROR_UNSUPPORTED, "inside one another");
    free(text);
    text = repeated("{{ ", "a", 255, " }}");
    expect(text, "");
    free(text);
    text = repeated("{{ ", "a", 256, " }}");
    refused(text, HEARTH_ERROR_FORMAT, "a name has more than 255 bytes");
    free(text);
}

/* A long message may be cut at each of its lines: a search counts what it reads. */
TEST(long_contents_may_be_cut_at_every_line)
{
    FREED char *content = repeated("", "A line of fifty bytes, or so, as people write it.\n", 40000, "");
    const hth_message m = {.role = word("user"), .content = {content, 2000000}};
    hth_template_input in = {.messages = &m, .n_message = 1};
    CLEANUP(hth_rendered_free) hth_rendered r;
    CHECK_OK(render("{% set c = messages[0].content %}{{ c.split('\n')|length }} {{ c.count('\n') }} "
                    "{{ c|replace('\n', '')|length }}",
                    &in, &r, err));
    CHECK_TEXT(r.text, "40001 40000 1960000");
}

/* Texts of many spans of either origin: every operation walks them once, or counts. */
TEST(many_origins_cost_no_square)
{
    static const char *const operations[] = {
        "c|e", "c|tojson", "c|tojson(ensure_ascii=true)", "[c]", "c|upper", "c.split('<')|length", "c|list|length",
        "c|replace('<', '>')", "c[::-1]", "c|indent", "c.splitlines()|length", "strftime_now(c)", "c|trim",
        "c.startswith('<')", "c ~ c", "c * 2", "c == c", "c|wordcount",
    };
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        char source[200];
        CLEANUP(hth_rendered_free) hth_rendered r;
        hearth_error why = {0};
        snprintf(source, sizeof source, "{%% set c = (messages[0].content[0] ~ '<') * 30000 %%}{{ %s }}",
                 operations[i]);
        hearth_status st = render(source, &plain, &r, &why);
        if (st != HEARTH_OK && st != HEARTH_ERROR_UNSUPPORTED)
            test_fail(__FILE__, __LINE__, "%s: %s", source, why.message);
    }
}

TEST(what_is_written_is_limited)
{
    unsupported("{{ 'a' * 1000000000 }}", "a text of more than 16 MiB");
    unsupported("{% for i in range(20) %}{{ messages[0].content }}{{ 'a' * 1000000 }}{% endfor %}", "16 MiB");
    unsupported("{% set ns = namespace(s='a') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor "
            "%}{{ ns.s }}",
                "16 MiB");
    unsupported("{{ 'a'|replace('', 'b' * 9000000) }}", "16 MiB");
    unsupported("{{ ['a' * 9000000] * 2 }}", "16 MiB");
    unsupported("{{ [1] * 100000000 }}", "");
    /* contents are not copied: 8 MiB of them, printed once, pass */
    FREED char *content = repeated("", "x", 8 << 20, "");
    const hth_message m = {.role = word("user"), .content = {content, 8 << 20}};
    hth_template_input in = {.messages = &m, .n_message = 1};
    CLEANUP(hth_rendered_free) hth_rendered r;
    CHECK_OK(render("{% for m in messages %}{{ '<' + m.role + '>' + m.content + '</>' }}{% endfor %}", &in,
                    &r, err));
    CHECK_INT(r.n, (8 << 20) + 9);
}

/* A conversation as long as they get: 4,000 messages through a template of a model. */
TEST(long_conversations_stay_within_the_limits)
{
    enum { N = 4000 };
    FREED hth_message *m = malloc(N * sizeof *m);
    for (size_t i = 0; i < N; i++)
        m[i] = (hth_message){i % 2 ? word("assistant") : word("user"), word("Some words of an ordinary message."), {"", 0}, NULL, 0};
    hth_template_input in = {
        .messages = m, .n_message = N, .seconds = &the_time, .bos = word("<s>"), .eos = word("</s>")};
    static const char *const names[] = {"own-llama-3.2", "qwen3", "mistral-v3", "own-deepseek3"};
    for (size_t i = 0; i < 4; i++) {
        char name[100];
        size_t n = 0;
        snprintf(name, sizeof name, "chat/%s.jinja", names[i]);
        const char *path = test_data(name);
        if (!path) break;
        FREED char *source = test_read_file(path, &n);
        CLEANUP(hth_rendered_free) hth_rendered r;
        CHECK_OK(render_bytes(source, n, &in, &r, err));
        CHECK(r.n > N * 30);
    }
}

/* ---- a small stack
 * ------------------------------------------------------------------------------------------------ */

static void *render_deep(void *user)
{
    hearth_error why = {0};
    CLEANUP(hth_rendered_free) hth_rendered r;
    render(user, &plain, &r, &why);
    return NULL;
}

static void on_small_stack(const char *source)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    size_t size = 4 << 20; /* red zones take more than the code */
#else
    size_t size = 256 << 10;
#endif
    CHECK_INT(pthread_attr_setstacksize(&attr, size), 0);
    if (CHECK_INT(pthread_create(&thread, &attr, render_deep, (void *)(uintptr_t)source), 0))
        pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

TEST(a_stack_of_256_kib_holds_the_deepest)
{
    static const char *const sources[] = {
        "{% macro f(x) %}{% for i in [1] %}{% if 1 %}{{ ((f((x)|upper))|trim) ~ '' }}{% endif %}{% endfor "
        "%}{% endmacro %}{{ f('') }}",
        "{% set l = [] %}{{ l.append(l) }}{{ l }}",
        "{% set l = [] %}{{ l.append({'a': l}) }}{{ l|tojson(sort_keys=true, indent=1) }}",
        "{% set l = [] %}{% set m = [] %}{{ l.append(m) }}{{ m.append(l) }}{{ l == m }}",
        "{% macro f() %}{% filter upper %}{% set x %}{{ f() }}{% endset %}{% endfilter %}{% endmacro %}{{ "
        "f() }}",
        "{% macro f(a=f2()) %}{% endmacro %}{% macro f2(a=f()) %}{{ f() }}{% endmacro %}{{ f2() }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) on_small_stack(sources[i]);
    static const char *const pieces[][3] = {
        {"{{ ", "(", "1"},
        {"{{ ", "[-a.b(1)[", "1"},
        {"{{ ", "1 if x is eq (", "1"},
        {"", "{% if 1 == 2 + 3 * (4 ** 5) %}", ""},
        {"{{ 'a", "'|upper|trim ~ (-x.y * ('", "' }}"},
        {"{{ a", "|upper", " }}"},
        {"{{ ", "not ", "1 }}"},
        {"{{ '", "[", "'|fromjson }}"},
        {"{{ ", "a or b and not c == d + e ~ f * g ** (", " }}"},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        for (size_t n = 50; n <= 300; n += 13) {
            FREED char *text = repeated(pieces[i][0], pieces[i][1], n, pieces[i][2]);
            on_small_stack(text);
        }
    }
    /* as deep as it may be, and closed, so that it is evaluated */
    char *open = repeated("{{ ", "(1 + ", 60, "1"), *text = repeated(open, ")", 60, " }}");
    on_small_stack(text);
    expect(text, "61");
    free(open);
    free(text);
    text = repeated("{% set l = [] %}{{ l.append(l) }}{{ l|map('map'", ", 'map'", 300, ") }}");
    on_small_stack(text);
    free(text);
}

/* ---- allocations that fail
 * ------------------------------------------------------------------------------------------ */

static const char broad[] =
    "{% macro m(a, b=[1]) %}{% for x in b if x %}{{ loop.index }}{{ a ~ x }}{% endfor %}{% endmacro %}"
    "{% set ns = namespace(t='', d={'k': [1, 2]}) %}{% for c in messages[0].content %}{% set ns.t = ns.t + "
    "c|upper %}{% endfor %}"
    "{{ m(ns.t, b=[3, 1, 2]|sort) }}{{ ns.d|tojson(indent=2) }}{{ messages[0].content.split('l') }}{{ "
    "'a,b'.replace(',', ns.t) }}"
    "{{ messages|selectattr('role', 'eq', 'user')|map(attribute='content')|join(',') }}{{ '[1, {\"a\": "
    "null}]'|from_json }}"
    "{% set x %}{{ strftime_now('%d %b') }}{% endset %}{{ x|indent(2, true) }}{{ messages[0].content[::-1] "
    "}}{{ [1, 2][1:] + [3] * 2 }}"
    "{{ ns.d|dictsort }}{{ ns.d.items()|list }}{{ 'abc'|title|list|reverse|unique|join }}{{ y|default('z') "
    "}}{{ 'x'|e }}{{ range(3) }}";

TEST(every_allocation_may_fail)
{
    uint64_t held = hth_alloc_in_use();
    for (int sticky = 0; sticky < 2; sticky++) {
        hearth_status st = HEARTH_ERROR_MEMORY;
        uint64_t n = 1;
        for (; st != HEARTH_OK && n < 5000; n++) {
            hth_rendered r;
            hearth_error why = {0};
            hth_alloc_fail_at(n, sticky);
            st = render(broad, &plain, &r, &why);
            hth_alloc_fail_at(0, 0);
            hth_rendered_free(&r);
            if (!CHECK_INT(hth_alloc_in_use(), held)) return;
            if (st == HEARTH_OK) break;
            if (st != HEARTH_ERROR_MEMORY || !why.message[0])
                test_fail(__FILE__, __LINE__, "allocation %llu: '%s', %s", (unsigned long long)n,
                          hearth_status_name(st), why.message);
        }
        CHECK(n > 8 && n < 5000);
    }
}

/* The same with a limit of memory that comes at any place. */
TEST(errors_need_no_error_to_write_to)
{
    hth_rendered r;
    CHECK_INT(render("{{ 1 / 0 }}", &plain, &r, NULL), HEARTH_ERROR_FORMAT);
    CHECK_INT(render("{{ ", &plain, &r, NULL), HEARTH_ERROR_FORMAT);
    hth_template_close(NULL);
}
