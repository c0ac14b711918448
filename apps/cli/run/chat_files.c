/* /save and /load of chat. The messages are the conversation; the session beside them only spares computing them
 * again: whatever is wrong with it, the conversation goes on. */
#define _GNU_SOURCE
#include "cli/run/chat.h"

#include "common/output_file.h"
#include "common/text_file.h"
#include "engine/session_int.h"

#include <errno.h>
#include <sys/stat.h>

typedef struct session_path {
    char text[4096 + sizeof ".session"];
} session_path;

static session_path beside(const char *path)
{
    session_path p;
    snprintf(p.text, sizeof p.text, "%s.session", path);
    return p;
}

/* Truncates the session to the conversation. Returns the number of tokens that are left. */
static size_t keep_conversation(chat *c)
{
    hearth_error err;
    int32_t *ids = NULL;
    size_t n;
    uint32_t same = 0;
    if (chat_tokenize(c, false, &ids, &n, &err) == HEARTH_OK) same = hth_session_count_same(c->session, ids, n);
    hearth_free(ids);
    return hearth_session_truncate(c->session, same, &err) == HEARTH_OK ? hearth_session_n_cached(c->session) : 0;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static bool may_replace(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return errno == ENOENT;
    return S_ISREG(st.st_mode) && is_empty_or_begins(path, SAVED_SESSION_MAGIC);
}

/* Messages that were forgotten are not written, although the session may still have them. */
static bool save_session(chat *c, const char *path)
{
    hearth_error err;
    if (model_info(c->model).gpu) return false; /* a saved session does not contain a KV cache that is on a GPU */
    if (keep_conversation(c) == 0) return false;
    if (!may_replace(path)) {
        print_warning("%s stays as it is: it is not a saved session", path);
        return false;
    }
    if (hearth_session_save(c->session, path, &err) == HEARTH_OK) return true;
    print_warning("%s; the messages are saved", err.message);
    return false;
}

void chat_save(chat *c, const char *path)
{
    session_path session = beside(path);
    if (c->transcript.n == 0) { /* a file with an earlier conversation would be lost */
        report_text("nothing is saved: the conversation has no messages");
        c->failed = true;
        return;
    }
    if (!transcript_save(&c->transcript, path)) c->failed = true;
    else if (!save_session(c, session.text)) print_status("%zu messages are in %s", c->transcript.n, path);
    else
        print_status("%zu messages are in %s, and %u computed tokens in %s", c->transcript.n, path,
                     hearth_session_position(c->session), session.text);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Conversations that were written by hand, or on a GPU, have no session. */
static void load_session(chat *c, const char *path)
{
    hearth_error err;
    struct stat st;
    if (stat(path, &st) != 0 && errno == ENOENT) return;
    if (hearth_session_restore(c->session, path, &err) != HEARTH_OK)
        print_warning("%s; the messages are read again", err.message);
}

void chat_load(chat *c, const char *path)
{
    if (!transcript_load(&c->transcript, path)) {
        c->failed = true;
        return;
    }
    load_session(c, beside(path).text);
    if (!chat_open_sampler(c)) c->ends = true; /* as in a program that begins with this conversation */
    print_status("the conversation has %zu messages, of which %zu tokens are computed", c->transcript.n,
                 keep_conversation(c));
}
