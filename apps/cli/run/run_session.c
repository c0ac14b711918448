/* Reads and writes the sessions of hearth run. With one file for both options a prompt is computed once: the first run
 * makes the file, later ones read it. */
#define _GNU_SOURCE
#include "cli/run/run_session.h"

#include "engine/engine.h"
#include "file/atomic_writer.h"

#include <errno.h>
#include <unistd.h>

int run_session_check(const args *a)
{
    const char *out = args_text(a, "save-session", NULL);
    hearth_error err;
    if (!out) return 0;
    int status = check_output_beside(a, args_text(a, "file", NULL), out, OUTPUT_SESSION);
    if (status) return status;
    return hth_atomic_writer_check(out, &err) == HEARTH_OK ? 0 : report(&err);
}

/* The first of several runs that have the same file for both options. */
static bool is_made_by_this_run(const args *a)
{
    const char *in = args_text(a, "session", NULL), *out = args_text(a, "save-session", NULL);
    return out && name_one_file(in, out) && access(in, F_OK) != 0 && errno == ENOENT;
}

bool run_session_open(const args *a, hearth_session *session)
{
    const char *in = args_text(a, "session", NULL);
    hearth_error err;
    if (args_has(a, "save-session") && hth_engine_prepare_save(session, &err) != HEARTH_OK) {
        report(&err);
        return false;
    }
    if (!in) return true;
    if (is_made_by_this_run(a)) {
        print_status("%s is not there yet: it is made at the end", in);
        return true;
    }
    if (hearth_session_restore(session, in, &err) == HEARTH_OK) return true;
    report(&err);
    return false;
}

bool run_session_save(const args *a, const hearth_model *model, const hearth_session *session)
{
    const char *out = args_text(a, "save-session", NULL);
    hearth_error err;
    if (!out) return true;
    if (hearth_session_position(session) == 0) { /* an older file is worth more than an empty one */
        print_warning("%s is not written: no token was evaluated", out);
        return true;
    }
    if (hearth_session_save(session, out, &err) != HEARTH_OK) {
        report(&err);
        return false;
    }
    print_status("%s holds %u tokens", out, hearth_session_position(session));
    if (model_info(model).gpu)
        print_warning("%s: without what lies on the GPU, which --session computes again", out);
    return true;
}
