/* hearth serve: options, access, the model, and the two threads. */
#define _GNU_SOURCE
#include "cli/commands.h"
#include "common/draft_args.h"
#include "common/model_args.h"
#include "common/output.h"

#if HEARTH_SERVE

#include "serve/engine.h"
#include "serve/notify.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#endif

/* clang-format off: a table */
static const option_spec options[] = {
    OPT_TEXT("host", 0, "ADDR", "listen there; default 127.0.0.1 and ::1"),
    OPT_UINT("port", 0, "N", 0, 65535, "default 8080; 0: any that is free"),
    OPT_FILE("unix-socket", 0, "PATH", "listen on a Unix socket instead"),
    OPT_TEXT("alias", 0, "NAME", "name of the model; default: the file's"),
    OPT_FILE("api-key-file", 0, "FILE", "keys, one a line; of mode 600"),
    OPT_FLAG("insecure-no-key", 0, "let other machines ask without a key"),
    OPT_TEXT("cors-origin", 0, "URL", "pages of this origin may ask; repeatable", .flags = OPTION_REPEATS),
    OPT_TEXT("allow-host", 0, "NAME", "one more name of this host; repeatable", .flags = OPTION_REPEATS),
    OPT_FLAG("check", 0, "check options, addresses and model, then end"),
    OPT_UINT("parallel", 0, "N", 1, 256, "requests in a step; default 16"),
    DRAFT_OPTIONS,
    OPT_FILE("kv-dir", 0, "DIR", "keep the cache of requests there between runs"),
    OPT_SIZE("kv-dir-size", 0, "BYTES", 1, 1e15, "of its files; default 8G", ADVANCED),
    OPT_FLAG("keep-billing-header", 0, "leave that line in system prompts", ADVANCED),
    OPT_UINT("max-waiting", 0, "N", 1, 100000, "requests that wait; default 64", ADVANCED),
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
#define KEPT_SIZE ((uint64_t)8 << 30)

/* ---- options ------------------------------------------------------------------------------------------- */

static hearth_status read_access(const args *a, access_rules *out, hearth_error *err)
{
    const char *file = args_text(a, "api-key-file", NULL), *key = getenv("HEARTH_API_KEY"), *text;
    hearth_status st = HEARTH_OK;
    if (file) st = access_read_keys(out, file, err);
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

/* ---- the model ----------------------------------------------------------------------------------------- */

/* The file's name without what only tells that it is GGUF, and which part. */
static void name_model(const char *path, char *id, size_t size)
{
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
    snprintf(id, size, "%s", name ? name : "storyteller");
    size_t n = strlen(id);
    if (n > 5 && strcmp(id + n - 5, ".gguf") == 0) id[n -= 5] = '\0';
    char *part = n > 15 ? id + n - 15 : NULL; /* -00001-of-00003 */
    if (part && part[0] == '-' && memcmp(part + 6, "-of-", 4) == 0) *part = '\0';
}

static int64_t time_of(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0 ? (int64_t)info.st_mtime : (int64_t)time(NULL);
}

static bool load(void *user, engine *e)
{
    const args *a = user;
    return open_model(a, args_operand(a, 0), &e->model) && drafts_open(a, &e->scheduling.draft, &e->draft);
}

static void say_ready(const engine *e)
{
    print_status("%s is ready (%s, %.1f M parameters%s; context %u; chat by: %s)", e->id,
                 e->info.architecture, (double)e->info.n_parameter * 1e-6,
                 e->info.synthetic ? ", synthetic weights" : "", engine_n_ctx(e),
                 e->chat ? hearth_chat_name(e->chat) : "none");
    notify_manager("READY=1");
}

/* ---- the server ---------------------------------------------------------------------------------------- */

static void log_request(const char *line) { print_status("%s", line); }
static void say_stop(void) { notify_manager("STOPPING=1"); }

static int check_model(const args *a, const server *s)
{
    hearth_model *model;
    if (!open_model(a, args_operand(a, 0), &model)) return EXIT_OTHER;
    hearth_model_close(model);
    print_requested("all is well: %s", server_addresses(s));
    return 0;
}

static int serve(server *s, engine *e)
{
    print_status("listening on %s", server_addresses(s));
    if (!engine_start(e)) return report_text("the system gives no thread for the engine");
    int number = server_run(s);
    if (number != 0) _exit(EXIT_SIGNAL + number); /* the engine thread may be at work */
    engine_stop(e);
    return e->failed ? EXIT_OTHER : 0;
}

static int run(const args *a)
{
    static access_rules rules; /* many keys */
    static char id[256];
    hearth_error err;
    server *s = NULL;
    engine e = {.load = load, .load_user = (void *)(uintptr_t)a, .on_ready = say_ready, .id = id};
    if (drafts_check(a)) return EXIT_USAGE;
    if (args_has(a, "unix-socket") && args_has(a, "host"))
        return usage_error("--unix-socket and --host contradict each other; give one of them");
    name_model(args_operand(a, 0), id, sizeof id);
    e.id = args_text(a, "alias", id);
    e.created = time_of(args_operand(a, 0));
    hearth_session_options session = session_options(a, 0);
    e.scheduling = hearth_scheduler_defaults();
    e.scheduling.n_ctx = session.n_ctx, e.scheduling.kv = session.kv, e.scheduling.n_thread = session.n_thread;
    e.scheduling.n_running = (uint32_t)args_uint(a, "parallel", 0);
    e.max_waiting = (uint32_t)args_uint(a, "max-waiting", MAX_WAITING);
    e.keeps_billing = args_has(a, "keep-billing-header");
    read_seconds(a, "max-request-seconds", &e.max_request_ns);
    e.kept = args_text(a, "kv-dir", NULL), e.kept_size = args_size(a, "kv-dir-size", KEPT_SIZE);
    server_options o = {.limits = read_limits(a),
                        .routes = serve_routes,
                        .access = &rules,
                        .call_user = &e,
                        .log = log_request,
                        .on_stop = say_stop,
                        .on_cancel = interrupt_evaluations};
    hearth_status st = read_access(a, &rules, &err);
    if (st == HEARTH_OK) st = server_open(&o, &s, &err);
    if (st == HEARTH_OK) st = listen_as_asked(a, s, &err);
    if (st == HEARTH_OK) st = check_exposure(a, s, &rules, &err);
    e.server = s;
    int status = st != HEARTH_OK ? report(&err) : args_has(a, "check") ? check_model(a, s) : serve(s, &e);
    server_close(s);
    return status;
}

#else

static int run(const args *a)
{
    (void)a;
    return report_text(
        "this hearth was built without libuv, http-parser and jansson, which serve needs: install them with "
        "their headers, and build again");
}

#endif

const command command_serve = {
    .name = "serve",
    .operands = "[MODEL]",
    .summary = "serve a model over HTTP",
    .details = "Answers at the paths of OpenAI's, llama.cpp's and Ollama's servers; at / is a\n"
               "page to chat with the model and see it work.\n"
               "HEARTH_API_KEY is a key, as those of --api-key-file. SIGTERM and Ctrl-C let\n"
               "running requests end.\n",
    .example = "hearth serve model.gguf --port 8080",
    .groups = {options, model_options, gpu_options},
    .models = 1,
    .run = run,
};
