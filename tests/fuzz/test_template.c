/* The fuzz target of chat templates over its corpus and seeded mutations of it; it aborts on a fault. */
#include "fuzz_template.c"
#include "mutate_text.h"

static const char *const pieces[] = {
    "{% if x %}", "{% endif %}", "{% for x in messages %}", "{% endfor %}", "{{ messages }}", "{{", "}}", "{%-",
    "-%}", "{#", "#}", "(", ")", "[", "]", "[::-1]", "[1:]", "|tojson", "|join(',')", "|upper", ".split()",
    ".items()", "|list", "|sort", " is defined", "{% set ns.x = x ~ x %}", "{% macro f(x) %}", "{% endmacro %}",
    "{{ f(x) }}", "namespace(x='')", "x", " + ", " * ", "99999", "'a'", " in ", " not ", " and ", " if x else ",
    "loop.index", "messages[0].content", "|map(attribute=messages[3].content)", "messages[3].content|int", "'{:>9}'.format(x)", "{!r}", "'%s' % (x,)", "|safe",
    "\n", " ", "\"", "'", "\\", "range(9)", "|replace('a', 'bb')",
};

TEST(the_corpus_and_its_mutations_pass_the_template_target)
{
    const text_pieces p = {.at = pieces, .n = sizeof pieces / sizeof *pieces};
    CHECK(replay_folder(HEARTH_SOURCE_DIR "/tests/fuzz/corpus/template", &p, test_is_long() ? 20000 : 300) > 15);
}
