/* hearth pull: downloads a model from a hub into the cache of huggingface_hub. */
#include "base/format_bytes.h"
#include "cli/commands.h"
#include "common/download.h"
#include "common/json.h"
#include "common/output.h"

#include <string.h>

static const option_spec options[] = {
    OPT_TEXT("revision", 0, "REV", "a branch, tag or commit; default main"),
    OPT_UINT("timeout", 0, "S", 1, 3600, "give up on a silent server after S s; default 30"),
    OPT_UINT("retries", 0, "N", 0, 100, "attempts after a failure; default 5"),
    OPT_FLAG("json", 0, "print a JSON object"),
    {0},
};

static void print_json(const hub_pulled *p)
{
    json j = json_begin(stdout);
    json_word(&j, "name", p->name);
    json_word(&j, "path", p->path);
    json_uint(&j, "size_bytes", p->size);
    json_uint(&j, "loaded_bytes", p->loaded);
    json_bool(&j, "sha256_verified", !p->unverified);
    json_end(&j);
}

static void print_text(const hub_pulled *p)
{
    char name[2 * HUB_NAME];
    printf("%s: %s%s\n", hth_escape(name, sizeof name, p->name, strlen(p->name)),
           hth_format_bytes(p->size).text,
           p->loaded == 0  ? ", there already"
           : p->unverified ? ", its size checked"
                           : ", its SHA-256 checked");
    printf("Try: hearth chat %s\n", name);
}

static int run_pull(const args *a)
{
    hub_pulled pulled;
    hearth_error err;
    hub_pull_options o = {.revision = args_text(a, "revision", NULL),
                          .timeout_s = (unsigned)args_uint(a, "timeout", DOWNLOAD_TIMEOUT_S),
                          .n_retry = (unsigned)args_uint(a, "retries", DOWNLOAD_RETRIES)};
    hearth_status st = download_model(args_operand(a, 0), o, &pulled, &err);
    if (st != HEARTH_OK) return report(&err);
    if (args_has(a, "json")) print_json(&pulled);
    else print_text(&pulled);
    return 0;
}

const command command_pull = {
    .name = "pull",
    .operands = "REPO[:QUANT]",
    .summary = "download a model from Hugging Face",
    .details = "REPO is ORG/NAME of a repository with GGUF files, or its address; QUANT is a\n"
               "quantisation (Q4_K_M) or a file's name. Without QUANT: Q4_K_M, Q4_0 or Q8_0, in\n"
               "that order. Interrupted downloads are resumed, existing files are not downloaded\n"
               "again, and SHA-256 is checked. The model then has the name ORG/NAME:QUANT.\n"
               "\n"
               "HF_TOKEN, for private repositories, is sent to the hub only; HF_ENDPOINT names\n"
               "another hub; HF_HUB_CACHE or HF_HOME another cache than ~/.cache/huggingface.\n",
    .example = "hearth pull bartowski/SmolLM2-360M-Instruct-GGUF:Q4_K_M",
    .groups = {options},
    .run = run_pull,
};
