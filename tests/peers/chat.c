/* What Hearth writes for a conversation, for tests/peers/peers.py.
 *
 *     chat formats                                     the names of the formats, one a line
 *     chat format NAME 0|1 [ROLE TEXT]...              a conversation in one of them
 *     chat template FILE 0|1 [ROLE TEXT]...            the same by a template: exit status 3 where
 *                                                      the template itself refuses the messages,
 *                                                      4 where it has what Hearth does not know */
#include "support/test.h"
#include "chat/chat_formats.h"
#include "chat/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGE = 64, REFUSED = 3, UNSUPPORTED = 4 };

/* What some templates ask for beside the messages. */
static const char more[] = "{\"functions\": \"none\", \"datetime\": \"26 Jul 2024\"}";

static const int64_t a_day = 1721995200; /* 26 July 2024, noon */

static hth_str word(const char *text) { return (hth_str){text, strlen(text)}; }

static int list_formats(void)
{
    const hth_chat_format *f;
    for (size_t i = 0; (f = hth_chat_format_at(i)) != NULL; i++) puts(hth_chat_format_name(f));
    return 0;
}

static hearth_status render(const char *way, const char *name, const hth_template_input *in, hth_rendered *r,
                            hearth_error *err)
{
    if (strcmp(way, "format") == 0) return hth_chat_format_render(hth_chat_format_find(word(name)), in, r, err);
    hth_template *t = NULL;
    size_t n = 0;
    char *source = test_read_file(name, &n);
    hearth_status status = hth_template_open(source, n, &t, err);
    if (status == HEARTH_OK) status = hth_template_render(t, in, r, err);
    hth_template_close(t);
    free(source);
    return status;
}

int main(int argc, char **argv)
{
    hth_message messages[MAX_MESSAGE];
    hth_rendered r = {0};
    hearth_error why = {0};
    if (argc == 2 && strcmp(argv[1], "formats") == 0) return list_formats();
    if (argc < 4 || (argc - 4) / 2 > MAX_MESSAGE) return 2;
    size_t n = (size_t)(argc - 4) / 2;
    for (size_t i = 0; i < n; i++) messages[i] = (hth_message){word(argv[4 + 2 * i]), word(argv[5 + 2 * i]), {"", 0}};
    hth_template_input in = {.messages = messages, .n_message = n, .add_generation_prompt = argv[3][0] == '1',
                             .bos = word("<s>"), .eos = word("</s>"), .seconds = &a_day, .variables = word(more)};
    hearth_status status = render(argv[1], argv[2], &in, &r, &why);
    if (status != HEARTH_OK) {
        fprintf(stderr, "%s\n", why.message);
        if (status == HEARTH_ERROR_UNSUPPORTED) return UNSUPPORTED;
        return strstr(why.message, "refuses these messages") ? REFUSED : 1;
    }
    fwrite(r.text, 1, r.n, stdout);
    hth_rendered_free(&r);
    return 0;
}
