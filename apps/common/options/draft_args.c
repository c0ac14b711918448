/* Opens the model of --draft and gives sessions drafts, as run and chat do; the server's engine has the options. */
#include "common/options/draft_args.h"

#include "common/options/model_args.h"
#include "common/output.h"

#include <string.h>

/* The file of --draft; NULL: there is none. */
static const char *draft_file(const args *a)
{
    const char *path = args_text(a, "draft", NULL);
    return path && strcmp(path, "none") != 0 ? path : NULL;
}

int drafts_check(const args *a)
{
    if (!draft_file(a)) return 0;
    if (args_uint(a, "speculate", 1) == 0)
        return usage_error("--draft and --speculate 0 contradict each other");
    if (args_has(a, "ram"))
        return usage_error(
            "--draft: the second model is not within the limit of --ram; leave one of them out");
    return 0;
}

hearth_status drafts_try_open(const args *a, hearth_draft_options *options, hearth_model **model,
                              hearth_error *err)
{
    uint64_t n = args_uint(a, "speculate", UINT64_MAX);
    const char *path = draft_file(a);
    *options = (hearth_draft_options){.n_draft = n == UINT64_MAX ? HEARTH_DRAFT_AUTO
                                                 : n == 0        ? HEARTH_DRAFT_NONE
                                                                 : (uint32_t)n,
                                      .no_mtp = args_has(a, "draft")};
    *model = NULL;
    if (!path) return HEARTH_OK;
    hearth_model_options o = hearth_model_defaults();
    o.n_thread = (uint32_t)args_uint(a, "threads", 0);
    hearth_status st = try_open_model(a, path, &o, model, err);
    options->model = *model;
    return st;
}

bool drafts_open(const args *a, hearth_draft_options *options, hearth_model **model)
{
    hearth_error err;
    if (drafts_try_open(a, options, model, &err) == HEARTH_OK) return true;
    report(&err);
    return false;
}

bool drafts_use(hearth_session *session, const hearth_draft_options *options, const hearth_sampler *sampler)
{
    hearth_error err;
    if (hearth_session_use_drafts(session, options, sampler, &err) == HEARTH_OK) return true;
    report(&err);
    return false;
}

void drafts_print(const hearth_session *session)
{
    hearth_draft_stats s = {0};
    (void)hearth_session_get_draft_stats(session, &s);
    if (s.n_drafted > 0)
        print_requested("drafts: %llu tokens evaluated ahead, %llu of them were the next (%.0f %%)",
                        (unsigned long long)s.n_drafted, (unsigned long long)s.n_accepted,
                        100.0 * (double)s.n_accepted / (double)s.n_drafted);
}

void drafts_print_json(json *j, const hearth_session *session)
{
    hearth_draft_stats s = {0};
    (void)hearth_session_get_draft_stats(session, &s);
    json_uint(j, "draft_tokens", s.n_drafted);
    json_uint(j, "draft_tokens_accepted", s.n_accepted);
}
