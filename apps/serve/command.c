/* hearth serve: options, access, the model, and the two threads. */
#define _GNU_SOURCE
#include "base/format_errno.h"
#include "cli/commands.h"
#include "common/chat_format.h"
#include "common/options/draft_args.h"
#include "common/options/model_args.h"
#include "common/output.h"

#if HEARTH_SERVE

#include "base/disk_cache.h"
#include "base/system/folder.h"
#include "engine/engine.h"
#include "serve/engine.h"
#include "serve/model_list.h"
#include "serve/notify.h"
#include "serve/sandbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#endif

/* clang-format off: a table */
static const option_spec options[] = {
    OPT_TEXT("host", 0, "ADDR", "listen there; default 127.0.0.1 and ::1"),
    OPT_UINT("port", 0, "N", 0, 65535, "default 8080; 0: any that is free"),
    OPT_FILE("unix-socket", 0, "PATH", "listen there instead; with --host, --port too"),
    OPT_FILE("template", 0, "NAME|FILE", "a chat format by name, or a file with a template"),
    TEMPLATE_VARIABLE_OPTIONS,
    OPT_UINT("predict", 'n', "N", 1, 16777216, "tokens of answers that say no limit; default: none",
             .flags = OPTION_OPEN | OPTION_ADVANCED),
    OPT_CHOICE("pooling", 0, "HOW", "mean|cls|last|rank", "of embeddings, instead of the file's", ADVANCED),
    OPT_FLAG("no-page", 0, "no page at /", ADVANCED),
    OPT_TEXT("alias", 0, "NAME", "name of the model; default: the file's"),
    OPT_FILE("api-key-file", 0, "FILE", "keys, one a line; of mode 600"),
    OPT_FLAG("insecure-no-key", 0, "let other machines ask without a key"),
    OPT_TEXT("cors-origin", 0, "URL", "pages of this origin may ask; repeatable", .flags = OPTION_REPEATS),
    OPT_TEXT("allow-host", 0, "NAME", "one more name of this host; repeatable", .flags = OPTION_REPEATS),
    OPT_TEXT("api-prefix", 0, "PATH", "paths may begin with it, as /llm"),
    OPT_FLAG("no-sandbox", 0, "keep the rights to other files and programs"),
    OPT_FLAG("check", 0, "check options, addresses, models, then end"),
    OPT_UINT("max-models", 0, "N", 1, 64, "models in memory at once; default 1"),
    OPT_UINT("parallel", 0, "N", 1, 256, "requests in a step; default 16"),
    DRAFT_OPTIONS,
    OPT_FILE("kv-dir", 0, "DIR", "keep the cache of requests there between runs"),
    OPT_SIZE("kv-dir-size", 0, "BYTES", 1, 1e15, "of its files; default 8G", ADVANCED),
    OPT_FLOAT("kv-dir-seconds", 0, "X", 0.01, 1e6, "written after so long without requests; default 30",
              ADVANCED),
    OPT_SIZE("responses-store", 0, "BYTES", 0, 1e12, "kept for previous_response_id; default 64M, 0: off", ADVANCED),
    OPT_FLAG("keep-billing-header", 0, "leave that line in system prompts", ADVANCED),
    OPT_UINT("max-waiting", 0, "N", 1, 100000, "requests beyond --parallel; default 64", ADVANCED),
    OPT_UINT("max-connections", 0, "N", 1, 100000, "default 1024", ADVANCED),
    OPT_SIZE("max-body", 0, "BYTES", 1, 1e9, "of a request; default 16M", ADVANCED),
    OPT_FLOAT("idle-seconds", 0, "X", 0.01, 86400, "for a connection without a request; default 75",
              ADVANCED),
    OPT_FLOAT("head-seconds", 0, "X", 0.01, 86400, "for the head of a request; default 10", ADVANCED),
    OPT_FLOAT("body-seconds", 0, "X", 0.01, 86400, "for its body, and one for each MiB; default 60",
              ADVANCED),
    OPT_FLOAT("write-seconds", 0, "X", 0.01, 86400, "while a client takes nothing; default 60", ADVANCED),
    OPT_FLOAT("max-request-seconds", 0, "X", 0.01, 1e6, "for a request and its answer; default: no limit",
              ADVANCED),
    OPT_FLOAT("shutdown-seconds", 0, "X", 0.01, 86400, "for requests that run at the end; default 30",
              ADVANCED),
    {0},
};
/* clang-format on */

#if HEARTH_SERVE

enum { MAX_WAITING = 64 };
/* As the scheduler chooses by itself. */
enum { N_PARALLEL = 16, N_CONTEXT = 4, LEAST_POSITION = 256 };
#define RESPONSES_SIZE ((uint64_t)64 << 20)
#define KEPT_SIZE ((uint64_t)8 << 30)
#define KEEP_NS (30 * (uint64_t)1000000000)

/* ---- options ------------------------------------------------------------------------------------------- */

static hearth_status read_access(const args *a, access_rules *out, hearth_error *err)
{
    const char *file = args_text(a, "api-key-file", NULL), *key = getenv("HEARTH_API_KEY"), *text;
    hearth_status st = file ? access_read_keys(out, file, err) : access_read_credential(out, err);
    if (st == HEARTH_OK && key && *key) st = access_add_key(out, key, strlen(key), "HEARTH_API_KEY", err);
    for (size_t i = 0; st == HEARTH_OK && (text = args_text_at(a, "cors-origin", i)); i++)
        st = access_add_origin(out, text, err);
    for (size_t i = 0; st == HEARTH_OK && (text = args_text_at(a, "allow-host", i)); i++)
        st = access_add_name(out, text, err);
    return st;
}

static void read_seconds(const args *a, const char *name, uint64_t *ns)
{
    if (args_has(a, name)) *ns = (uint64_t)(args_float(a, name, 0.0) * 1e9);
}

/* As many connections as the system gives descriptors for. */
static size_t allowed_connections(size_t wanted)
{
    const size_t others = 64; /* files, listening sockets, threads of the store */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted + others) return wanted;
    size_t n = limit.rlim_cur > 2 * others ? (size_t)limit.rlim_cur - others : others;
    print_warning("the system allows %llu open files: at most %zu connections are taken",
                  (unsigned long long)limit.rlim_cur, n);
    return n;
}

static server_limits read_limits(const args *a)
{
    server_limits l = server_default_limits();
    l.max_connections = allowed_connections((size_t)args_uint(a, "max-connections", l.max_connections));
    l.max_body = (size_t)args_size(a, "max-body", l.max_body);
    if (l.max_bodies < l.max_body) l.max_bodies = l.max_body;
    read_seconds(a, "idle-seconds", &l.idle_ns);
    read_seconds(a, "head-seconds", &l.head_ns);
    read_seconds(a, "body-seconds", &l.body_ns);
    read_seconds(a, "write-seconds", &l.write_ns);
    read_seconds(a, "shutdown-seconds", &l.shutdown_ns);
    return l;
}

static hearth_status listen_as_asked(const args *a, server *s, hearth_error *err)
{
    const char *host = args_text(a, "host", NULL), *path = args_text(a, "unix-socket", NULL);
    unsigned port = (unsigned)args_uint(a, "port", 8080), n_passed = 0;
    bool by_tcp = host || args_has(a, "port");
    hearth_status st = server_listen_passed(s, &n_passed, err);
    if (st == HEARTH_OK && path) st = server_listen_unix(s, path, err);
    if (st != HEARTH_OK || (!by_tcp && (path || n_passed > 0))) return st;
    return host ? server_listen(s, host, &port, err) : server_listen_loopback(s, &port, err);
}

/* Other machines can reach the server: then it needs a key, and its addresses are names of it. */
static hearth_status check_exposure(const args *a, const server *s, access_rules *rules, hearth_error *err)
{
    if (!server_is_exposed(s)) return HEARTH_OK;
    rules->any_address = true;
    if (*rules->weak)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: other machines could guess the key of %s; a key of at least %d bytes is needed, %d of "
                        "them different, as of: openssl rand -hex 24",
                        server_addresses(s), rules->weak, ACCESS_STRONG_KEY, ACCESS_STRONG_DIFFERENT);
    if (rules->n_key > 0) return HEARTH_OK;
    if (args_has(a, "insecure-no-key")) {
        print_warning("other machines can use this server without a key");
        return HEARTH_OK;
    }
    return hth_fail(
        err, HEARTH_ERROR_ARGUMENT,
        "%s: other machines could use this server; give it keys by --api-key-file FILE or HEARTH_API_KEY, or "
        "allow that by --insecure-no-key",
        server_addresses(s));
}

/* ---- the models ---------------------------------------------------------------------------------------- */

/* Memory is planned for the cache of the scheduler, and for its steps, which may have more tokens than a small cache. */
static hearth_model_options wanted_of(const args *a, const served_model *m)
{
    uint32_t n_batch = m->engine->scheduling.n_batch, n_ctx = m->facts.n_ctx, least = n_batch > 0 ? n_batch : LEAST_POSITION;
    uint32_t n_position = n_ctx <= UINT32_MAX / N_CONTEXT ? N_CONTEXT * n_ctx : n_ctx;
    hearth_model_options o = wanted_model(a, m->path, n_position < least ? least : n_position);
    o.gpu.n_batch = n_batch;
    /* One more is kept of an earlier request, so that another one can continue it. */
    if (args_has(a, "parallel")) o.gpu.n_session = m->engine->scheduling.n_running + 1;
    return o;
}

static bool may_load(void *user, uint64_t done, uint64_t total)
{
    const engine *e = user;
    (void)done, (void)total;
    return !atomic_load(&e->stops);
}

static hearth_status load(void *user, served_model *m, hearth_error *err)
{
    const args *a = user;
    hearth_model_options o = wanted_of(a, m);
    o.progress = may_load, o.progress_user = m->engine;
    hearth_status st = try_open_model(a, m->path, &o, &m->model, err);
    if (st != HEARTH_OK) return st;
    if (wanted_sampling(a, m->model, &m->sampling) != 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: the sampling options do not fit it", m->id);
    warn_of_context(m->model, served_model_n_ctx(m));
    if (m->format && (st = chat_format_open(m->format, m->model, &m->chat, err)) != HEARTH_OK) return st;
    st = drafts_try_open(a, &m->scheduling.draft, &m->draft, err);
    if (!args_has(a, "no-sandbox")) sandbox_seal();
    return st;
}

/* Without a limit of memory the system tells when it is opened. */
static bool fits(void *user, const served_model *m)
{
    const args *a = user;
    hearth_model_options o = wanted_of(a, m);
    hth_memory_division division;
    hearth_model *opened;
    hearth_error ignored;
    if (o.ram == 0) return true;
    if (hth_engine_open_divided(m->path, &o, &opened, &division, &ignored) != HEARTH_OK) return false;
    bool fits = division.fits;
    hth_memory_division_free(&division);
    hearth_model_close(opened);
    return fits;
}

static void say_loaded(const served_model *m)
{
    print_status("%s is ready (%s, %.1f M parameters%s; context %u; %s%s); %s (%s)", m->id, m->info.architecture,
                 (double)m->info.n_parameter * 1e-6, m->info.synthetic ? ", synthetic weights" : "", served_model_n_ctx(m),
                 served_model_is_reranker(m) ? "a reranker: /v1/rerank"
                 : m->chat                   ? "chat by: "
                                             : "no chat template: chats are refused",
                 m->chat && !served_model_is_reranker(m) ? hearth_chat_name(m->chat) : "",
                 placement_text(&m->info).text, m->info.cpu);
}

static void say_ready(void) { notify_manager("READY=1"); }

/* It is made if it is missing, and a file is made in it, as rights alone do not tell that one can be. */
static hearth_status make_kept_folder(const char *folder, hearth_error *err)
{
    char *path;
    struct stat of_folder;
    hearth_error why;
    if (!folder) return HEARTH_OK;
    if (hth_folder_make(folder, 0700, &why) != HEARTH_OK)
        return hth_fail(err, HEARTH_ERROR_IO, "--kv-dir %s", why.message);
    if (stat(folder, &of_folder) == 0 && of_folder.st_mode & 077)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "--kv-dir %s: its mode is %04o, so others could read or plant prompts there; chmod 700 %s", folder,
                        (unsigned)(of_folder.st_mode & 07777), folder);
    if (asprintf(&path, "%s/hearth-XXXXXX", folder) < 0)
        return hth_fail_memory(err, strlen(folder), "a path");
    int fd = mkstemp(path), reason = errno;
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    free(path);
    if (fd >= 0) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_IO, "--kv-dir %s: nothing can be written there: %s", folder,
                    hth_format_errno(reason).text);
}

static hearth_status list_models(const args *a, const chat_format *format, model_list *l, hearth_error *err)
{
    const char *path = args_operand(a, 0), *alias = args_text(a, "alias", NULL);
    const hearth_model_options o = wanted_model(a, path, 0);
    unsigned i = 0;
    hearth_status st;
    do st = model_list_add(l, path, err);
    while (st == HEARTH_OK && path && (path = args_operand(a, ++i)) != NULL);
    if (st == HEARTH_OK) st = model_list_finish(l, &o, err);
    if (st == HEARTH_OK) st = make_kept_folder(args_text(a, "kv-dir", NULL), err);
    if (st == HEARTH_OK) st = model_list_keep(l, args_text(a, "kv-dir", NULL), err);
    if (st == HEARTH_OK && format->text) {
        l->at[0].format = format; /* check_single refuses it with several models */
        st = model_facts_set_template(&l->at[0].facts, format->text, format->n, err);
    }
    if (st != HEARTH_OK || !alias || l->n > 1) return st;
    free(l->at[0].id);
    l->at[0].id = strdup(alias);
    return l->at[0].id ? HEARTH_OK : hth_fail_memory(err, strlen(alias), "a name");
}

/* A part of decoded paths: an escape or a query would never match. */
static int check_prefix(const char *prefix)
{
    size_t n = prefix ? strlen(prefix) : 0;
    bool is_path = n > 1 && *prefix == '/' && prefix[n - 1] != '/' && n < ROUTE_MAX_PATH / 2 && !strstr(prefix, "//") &&
                   !strstr(prefix, "/.");
    bool hides = prefix && (strcmp(prefix, "/v1") == 0 || strcmp(prefix, "/api") == 0);
    if (hides) return usage_error("--api-prefix %s: it would hide the API's own paths below %s; another path is expected", prefix, prefix);
    if (!prefix || (is_path && !strpbrk(prefix, "?#% "))) return 0;
    return usage_error(
        "--api-prefix %.100s: a path as /llm is expected, with a slash at its beginning and none at its end",
        prefix);
}

/* Refuses options that belong to one model if several are served. Returns 0, or the exit status. */
static int check_single(const args *a, const model_list *l)
{
    static const char *const names[] = {"alias", "template", "draft", "predictors", "thresholds"};
    for (size_t i = 0; l->n > 1 && i < sizeof names / sizeof *names; i++)
        if (args_has(a, names[i]))
            return usage_error("--%s belongs to one model, and %zu are served", names[i], l->n);
    return 0;
}

/* ---- the sandbox --------------------------------------------------------------------------------------- */

/* Files of options that are opened with a model; but for the template, which was read. */
static const char *const files_of_models[] = {"draft", "predictors", "thresholds", "placement"};

/* "sim:FILE", among other devices. */
static void allow_simulated_devices(const args *a, const sandbox *s)
{
    const char *names = args_text(a, "gpu", NULL);
    char *copy = names ? strdup(names) : NULL, *rest = NULL;
    for (char *name = copy ? strtok_r(copy, ",", &rest) : NULL; name; name = strtok_r(NULL, ",", &rest))
        if (strncmp(name, "sim:", 4) == 0) sandbox_allow_read(s, name + 4);
    free(copy);
}

/* Models are read within it, also the first one. The only thread calls this. */
static void enter_sandbox(const args *a, const engine *e)
{
    sandbox s;
    char cache[HTH_DISKCACHE_PATH];
    if (args_has(a, "no-sandbox")) return;
    sandbox_open(&s);
    for (size_t i = 0; i < e->n_model; i++) sandbox_allow_model(&s, e->models[i].path);
    for (size_t i = 0; i < sizeof files_of_models / sizeof *files_of_models; i++)
        sandbox_allow_model(&s, args_text(a, files_of_models[i], NULL));
    allow_simulated_devices(a, &s);
    sandbox_allow_write(&s, args_text(a, "kv-dir", NULL));
    if (hth_diskcache_folder(cache)) sandbox_allow_cache(&s, cache);
    sandbox_allow_removal(&s, args_text(a, "unix-socket", NULL)); /* at the end */
    const char *missing = sandbox_enter(&s);
    if (missing)
        print_warning("the sandbox is incomplete, as this system refuses it %s; --no-sandbox leaves it out", missing);
}

/* ---- the server ---------------------------------------------------------------------------------------- */

static void log_request(const char *line) { print_status("%s", line); }

static void stop(void *user)
{
    engine_stop_loading(user);
    notify_manager("STOPPING=1");
}

/* Opens all models as the server does, one after the other. */
static int check_models(engine *e, const server *s)
{
    int status = 0;
    for (size_t i = 0; i < e->n_model; i++) {
        hearth_error err;
        if (served_model_open(&e->models[i], &err) == HEARTH_OK) served_model_close(&e->models[i]);
        else status = report(&err);
    }
    if (status == 0) print_requested("all is well: %s", server_addresses(s));
    return status;
}

static int serve(server *s, engine *e)
{
    print_status("listening on %s", server_addresses(s));
    if (!server_start(s) || !engine_start(e)) return report_text("the system gives no threads for requests");
    int number = server_run(s);
    if (number != 0) _exit(EXIT_SIGNAL + number); /* the engine thread may be at work */
    engine_stop(e);
    clear_interrupt(); /* cancelled requests set the flag too; it must not look as if a signal ended the program */
    return e->failed ? EXIT_OTHER : 0;
}

static void read_scheduling(const args *a, engine *e)
{
    hearth_session_options session = session_options(a, 0);
    hearth_scheduler_options *o = &e->scheduling;
    bool has_batch = args_has(a, "batch");
    *o = hearth_scheduler_defaults();
    o->n_ctx = session.n_ctx, o->kv = session.kv, o->n_thread = session.n_thread;
    o->n_batch = session.n_batch;
    o->n_running =
        (uint32_t)args_uint(a, "parallel", has_batch && o->n_batch < N_PARALLEL ? o->n_batch : N_PARALLEL);
}

/* One of the choices, or "": as the file says. */
static hearth_pooling wanted_pooling(const char *name)
{
    if (strcmp(name, "mean") == 0) return HEARTH_POOLING_MEAN;
    if (strcmp(name, "cls") == 0) return HEARTH_POOLING_FIRST;
    if (strcmp(name, "rank") == 0) return HEARTH_POOLING_RANK;
    return strcmp(name, "last") == 0 ? HEARTH_POOLING_LAST : HEARTH_POOLING_AUTO;
}

static void read_engine(const args *a, engine *e)
{
    read_scheduling(a, e);
    e->max_loaded = (uint32_t)args_uint(a, "max-models", 1);
    e->max_waiting = (uint32_t)args_uint(a, "max-waiting", MAX_WAITING);
    e->responses_size = args_size(a, "responses-store", RESPONSES_SIZE);
    e->max_token = args_uint(a, "predict", 0) == UINT64_MAX ? 0 : (uint32_t)args_uint(a, "predict", 0);
    e->has_seed = args_uint(a, "seed", UINT64_MAX) != UINT64_MAX;
    e->seed = args_uint(a, "seed", 0);
    e->pooling = wanted_pooling(args_text(a, "pooling", ""));
    e->has_no_page = args_has(a, "no-page");
    e->keeps_billing = args_has(a, "keep-billing-header");
    read_seconds(a, "max-request-seconds", &e->max_request_ns);
    e->kept_size = args_size(a, "kv-dir-size", KEPT_SIZE);
    e->keep_ns = KEEP_NS;
    read_seconds(a, "kv-dir-seconds", &e->keep_ns);
}

static int open_and_serve(const args *a, engine *e)
{
    static access_rules rules; /* many keys */
    hearth_error err;
    server *s = NULL;
    server_options o = {.limits = read_limits(a),
                        .routes = serve_routes,
                        .prefix = args_text(a, "api-prefix", NULL),
                        .access = &rules,
                        .call_user = e,
                        .log = log_request,
                        .on_stop = stop,
                        .on_cancel = interrupt_evaluations};
    /* A burst may wait in the exchange alone, while the engine is in a step. */
    if (o.limits.max_waiting < engine_max_requests(e)) o.limits.max_waiting = engine_max_requests(e);
    hearth_status st = read_access(a, &rules, &err);
    if (st == HEARTH_OK) st = server_open(&o, &s, &err);
    if (st == HEARTH_OK) st = listen_as_asked(a, s, &err);
    if (st == HEARTH_OK) st = check_exposure(a, s, &rules, &err);
    e->server = s;
    notify_open();
    if (st == HEARTH_OK) enter_sandbox(a, e);
    int status = st != HEARTH_OK ? report(&err) : args_has(a, "check") ? check_models(e, s) : serve(s, e);
    server_close(s);
    return status;
}

static int read_variables(const args *a, engine *e)
{
    hearth_error err;
    const char *text = wanted_variables(a);
    hth_json *variables = text ? hth_json_open(text, strlen(text), NULL, &err) : NULL;
    if (text && !variables) return usage_error("--template-vars: %s", err.message);
    if (variables && variables->kind != HTH_JSON_OBJECT) {
        hth_json_close(variables);
        return usage_error("--template-vars: an object is expected: {\"enable_thinking\": false}");
    }
    e->variables = variables;
    return 0;
}

static int run_serve(const args *a)
{
    hearth_error err;
    static const char *const of_kept[] = {"kv-dir-size", "kv-dir-seconds"};
    model_list models = {0};
    chat_format format;
    engine e = {.load = load,
                .fits = fits,
                .user = (void *)(uintptr_t)a,
                .on_loaded = say_loaded,
                .on_ready = say_ready};
    if (drafts_check(a)) return EXIT_USAGE;
    for (int i = 0; i < 2; i++)
        if (args_has(a, of_kept[i]) && !args_has(a, "kv-dir"))
            return usage_error("--%s is about the folder of --kv-dir, which is not given", of_kept[i]);
    if (check_prefix(args_text(a, "api-prefix", NULL))) return EXIT_USAGE;
    if (!*args_text(a, "alias", "-")) return usage_error("--alias '': a name is expected, by which requests name the model");
    if (read_variables(a, &e)) return EXIT_USAGE;
    if (!chat_format_read(args_text(a, "template", NULL), &format)) {
        hth_json_close(e.variables);
        return EXIT_OTHER;
    }
    read_engine(a, &e);
    engine_init(&e);
    int status =
        list_models(a, &format, &models, &err) == HEARTH_OK ? check_single(a, &models) : report(&err);
    e.models = models.at, e.n_model = models.n;
    for (size_t i = 0; i < models.n; i++) {
        models.at[i].engine = &e;
        problem_hide_folder(models.at[i].path);
        problem_hide_folder(models.at[i].kept);
    }
    problem_hide_folder(args_text(a, "template", NULL));
    problem_hide_folder(args_text(a, "kv-dir", NULL));
    for (size_t i = 0; i < sizeof files_of_models / sizeof *files_of_models; i++)
        problem_hide_folder(args_text(a, files_of_models[i], NULL));
    if (status == 0) status = open_and_serve(a, &e);
    model_list_free(&models);
    chat_format_free(&format);
    hth_json_close(e.variables);
    return status;
}

#else

static int run_serve(const args *a)
{
    (void)a;
    return report_text(
        "this hearth was built without libuv, or llhttp (or http-parser), which serve needs: install them with their "
        "headers, and build again");
}

#endif

const command command_serve = {
    .name = "serve",
    .operands = "[MODEL...]",
    .summary = "serve models over HTTP",
    .details = "Answers at the paths of OpenAI's, llama.cpp's and Ollama's servers; at / is a\n"
               "page to chat with the model and see it work. MODEL is a file, a name, or a\n"
               "folder of models; of several, requests choose one, which is then loaded.\n"
               "HEARTH_API_KEY is a key too. SIGTERM and Ctrl-C let running requests end.\n",
    .example = "hearth serve model.gguf --port 8080",
    .groups = {options, sampling_options, model_options, gpu_options},
    .models = 1,
    .run = run_serve,
};
