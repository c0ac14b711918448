/* Tables of llama.cpp's options, and nearest names by edit distance. */
#include "common/options/spelling.h"

#include "base/distance.h"

#include <string.h>

static const struct {
    const char *name, *also;
} spellings[] = {
    {"alias", "-a"},
    {"batch", "--batch-size"},
    {"cpu-moe", "-cmoe"},
    {"ctx", "--ctx-size --context"},
    {"from-chunk", "--chunk"},
    {"gpu", "-dev --device"},
    {"grammar", "--grammar-file"},
    {"hf-file", "-hff"},
    {"hf-repo", "-hf -hfr"},
    {"json-schema", "-jf --json-schema-file"},
    {"gpu-layers", "-ngl --n-gpu-layers"},
    {"logit-bias", "-l"},
    {"keep-output", "--output-tensor-type"},
    {"kv", "-ctk --cache-type-k -ctv --cache-type-v"},
    {"max-models", "--models-max"},
    {"model", "--models-dir"},
    {"n-cpu-moe", "-ncmoe"},
    {"no-echo", "--no-display-prompt"},
    {"keep-embedding", "--token-embedding-type"},
    {"no-kv-offload", "-nkvo"},
    {"no-page", "--no-webui --no-ui"},
    {"draft", "-md --model-draft"},
    {"no-shift", "--no-context-shift"},
    {"out", "--output"},
    {"output", "--output-file"},
    {"override-tensor", "-ot"},
    {"parallel", "-np"},
    {"predict", "--n-predict"},
    {"quiet", "--log-disable"},
    {"reasoning", "-rea"},
    {"repeat", "-r --repetitions"},
    {"special", "-sp"},
    {"single-turn", "-st"},
    {"stop", "-r --reverse-prompt"},
    {"system", "-sys --system-prompt"},
    {"system-file", "-sysf --system-prompt-file"},
    {"temperature", "--temp"},
    {"template", "--chat-template --chat-template-file"},
    {"template-vars", "--chat-template-kwargs"},
    {"top-nsigma", "--top-n-sigma"},
    {"typical", "--typical-p"},
};

bool lists_word(const char *list, const char *word, size_t n)
{
    bool found = false;
    FOR_EACH_WORD(list, w, length) found |= length == n && memcmp(w, word, n) == 0;
    return found;
}

const char *other_spellings(const char *name)
{
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (strcmp(spellings[i].name, name) == 0) return spellings[i].also;
    return "";
}

/* ---- nearest names ----------------------------------------------------------------------- */

static const char *without_dashes(const char *word) { return word + strspn(word, "-"); }

nearest nearest_to(const char *word) { return (nearest){.word = word}; }

void nearest_offer(nearest *n, const char *name)
{
    const char *a = without_dashes(n->word), *b = without_dashes(name);
    size_t length = strlen(a);
    if (length > MAX_WORD || strlen(name) > MAX_WORD) return;
    size_t d = hth_edit_distance(a, b, false), max = length < 2 ? 0 : (length + 2) / 3;
    if (d > max || (*n->name && d >= n->distance)) return;
    memcpy(n->name, name, strlen(name) + 1);
    n->distance = d;
}

/* ---- options that do not exist ------------------------------------------------------------- */

#define CONVERSATION "-i -if -ins --interactive --interactive-first -cnv --conversation"
#define OF_CONVERSATIONS \
    " -sys --system-prompt -sysf --system-prompt-file --chat-template --chat-template-file --chat-template-kwargs"
#define REFUSED FOREIGN_REFUSED, NULL
#define COMMAND FOREIGN_COMMAND, NULL
#define FLAG FOREIGN_FLAG, NULL
#define VALUE FOREIGN_VALUE, NULL
#define UNDONE FOREIGN_UNDONE, NULL
#define ON_OFF FOREIGN_FLAG, "on|off|auto|0|1|true|false|enabled|disabled"

/* clang-format off: a table */
static const foreign_option foreign[] = {
    /* Options that are ignored, because they change neither a text nor permissions. */
    {"", "-fa --flash-attn", ON_OFF, "attention always goes block by block"},
    {"", "--jinja --no-jinja", FLAG, "a conversation always uses the template in the file"},
    {"", "--no-mmap --mlock --direct-io -dio --no-direct-io -ndio", FLAG, "--io HOW says how weights are read"},
    {"", "--no-warmup --warmup --perf --no-perf --show-timings --no-show-timings", FLAG, "--stats prints rates"},
    {"", "--simple-io", FLAG, "output suits where it goes"},
    {"", "--color -co --log-colors", ON_OFF, "output suits where it goes"},
    {"", "--no-escape", FLAG, "texts are taken as they are"},
    {"", "--numa", VALUE, "threads stay on one core each unless --no-pin is given"},
    {"", "-kvo --kv-offload", FLAG, "keys and values lie with their layer, or where a plan has them; --no-kv-offload keeps them "
     "in host memory"},
    {"", "-nopo --no-op-offload --op-offload --no-host", FLAG, "a layer is computed where it lies; -ngl 0 keeps all on the CPU"},
    {"", "-sm --split-mode -ts --tensor-split -mg --main-gpu", VALUE,
     "--gpu A,B names the GPUs, --vram X,Y how much of each is used"},
    {"", "-lv --log-verbosity --verbosity", VALUE, "--verbose says more"},
    {"", "--verbose-prompt --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps", FLAG, "--verbose says more"},
    {"", "--log-file", VALUE, "2>FILE keeps messages"},
    {"", "-fit --fit", ON_OFF, "what lies on a GPU is chosen so that it fits"},
    {"", "-fitt --fit-target -fitc --fit-ctx", VALUE, "what lies on a GPU is chosen so that it fits"},
    {"", "--keep", VALUE, "the whole context is kept until it is full"},
    {"", "-ub --ubatch-size", VALUE, "-b N is how many tokens of a prompt are computed at once"},
    {"", "-tb --threads-batch", VALUE, "-t N counts for prompts too"},
    {"", "-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch "
         "--cpu-strict-batch --prio-batch --poll-batch", VALUE,
     "threads stay on one core each unless --no-pin is given"},
    {"", "--swa-full -bs --backend-sampling -kvu --kv-unified -no-kvu --no-kv-unified", FLAG,
     "the cache and the sampler have one form, with the same result"},
    {"", "-ctxcp --ctx-checkpoints --swa-checkpoints -dt --defrag-thold", VALUE,
     "the cache has one form, with the same result"},
    {"", "-cb --cont-batching -nocb --no-cont-batching", FLAG, "requests always share steps; --parallel N says how many"},
    {"", "--draft-max --draft-n --draft-min --draft-n-min --draft-p-min --draft-p-split --spec-type -ngld "
         "--gpu-layers-draft --n-gpu-layers-draft -devd --device-draft -cd --ctx-size-draft -ctkd --cache-type-k-draft "
         "-ctvd --cache-type-v-draft -td --threads-draft -tbd --threads-batch-draft --spec-ngram-size-n "
         "--spec-ngram-size-m -lcs --lookup-cache-static -lcd --lookup-cache-dynamic", VALUE,
     "drafts never change a text; --speculate N sets their length"},
    {"", "-fmoe --fused-moe -no-fmoe --no-fused-moe -rtr --run-time-repack -thp --transparent-huge-pages", FLAG,
     "the kernels have one form, with the same result"},
    {"", "-mla --mla-use -amb --attention-max-batch", VALUE, "the kernels have one form, with the same result"},
    {"run", "--prompt-cache", UNDONE, "--session FILE --save-session FILE, with the same FILE, keeps what was evaluated"},
    {"run", "--prompt-cache-all --prompt-cache-ro", FLAG, "--session FILE --save-session FILE keeps what was evaluated"},
    {"run", "-no-cnv --no-conversation -st --single-turn", FLAG, "run continues a text without a chat"},
    {"run serve", "--no-context-shift", FLAG, "a text ends where the context is full"},
    {"run", "--reasoning-format --reasoning-budget --reasoning -rea", VALUE, "run uses no template"},
    {"run", "--nowordwrap", FLAG, "run does not wrap lines"},
    {"run chat", "--keepalive", VALUE, "the model is there as long as the program runs"},
    {"chat", CONVERSATION, FLAG, "chat is always a conversation"},
    {"chat", "--context-shift", FLAG, "chat drops the oldest turns when the context is full"},
    {"chat", "--reasoning-format", VALUE, "reasoning is dim on a terminal"},
    {"chat", "--prompt-cache", UNDONE, "/save FILE and /load FILE keep a conversation"},
    {"chat", "--prompt-cache-all --prompt-cache-ro", FLAG, "/save FILE and /load FILE keep a conversation"},
    {"serve", "--embedding --embeddings --rerank --reranking --metrics --slots --props", FLAG, "these endpoints are always there"},
    {"serve", "--no-slots", FLAG, "/slots shows no text of a client"},
    {"serve", "--reasoning-format", FOREIGN_VALUE, "auto|deepseek|deepseek-legacy",
     "reasoning is a field of its own in answers"},
    {"serve", "--slot-save-path -sps --slot-prompt-similarity --cache-reuse -cram --cache-ram", VALUE,
     "the cache of requests finds the longest common beginning by itself; --kv-dir DIR keeps it"},
    {"serve", "--cache-prompt --no-cache-prompt", FLAG, "the cache of requests does not change an answer"},
    {"serve", "--path --webui-config --webui-config-file --ui-config --ui-config-file --tools --media-path", VALUE,
     "the page is inside the program, and neither it nor the server opens files"},
    {"serve", "-to --timeout", VALUE, "--idle-seconds, --body-seconds and --write-seconds limit connections"},
    {"serve", "--threads-http", VALUE, "one thread reads and writes all connections"},
    {"serve", "--sleep-idle-seconds", VALUE, "the model stays in memory"},
    {"serve", "--reuse-port --models-autoload --prefill-assistant", FLAG, "the server does so, or needs it not"},
    {"quantize", "--allow-requantize", FLAG, "quantize takes every supported type, with a warning"},
    {"imatrix", "--no-ppl", FLAG, "hearth perplexity measures how well a text is predicted"},
    {"imatrix", "--output-format", FOREIGN_VALUE, "gguf", "OUT is GGUF"},
    {"imatrix", "-ofreq --output-frequency --save-frequency", VALUE, "OUT is written at the end, and at Ctrl-C"},
    {"perplexity", "--ppl-stride", FOREIGN_VALUE, "0", "each chunk is scored by its second half"},

    /* Options that stand for another command. */
    {"run", CONVERSATION OF_CONVERSATIONS, COMMAND, "chat"},
    {"run chat serve", "--list-devices", COMMAND, "devices"},

    /* Options that are refused, because they would change a text or permissions, or because another option does it. */
    {"chat", "-mli --multiline-input", REFUSED, "/multi, or a backslash at the end of a line"},
    {"chat", "-r --reverse-prompt --stop", REFUSED, "an answer ends where the model ends it; -n N limits it"},
    {"chat", "--think --hidethinking", REFUSED, "--reasoning on|off, if the template can; reasoning is dim on a terminal"},
    {"chat", "--format", REFUSED, "hearth run MODEL --json-object, or --json-schema SCHEMA"},
    {"chat", "--grammar --grammar-file -j --json-schema -jf --json-schema-file", REFUSED,
     "hearth run MODEL --json-schema SCHEMA"},
    {"run", "--think --hidethinking", REFUSED, "reasoning belongs to a conversation: hearth chat MODEL"},
    {"run", "--format", REFUSED, "--json-object, or --json-schema SCHEMA"},
    {"run serve", "--context-shift", REFUSED, "a text ends where the context is full; -c takes more"},
    {"serve", "--api-key", REFUSED, "keys are seen by all users in a command; --api-key-file FILE, or HEARTH_API_KEY"},
    {"serve", "--ssl-key-file --ssl-cert-file", REFUSED,
     "the server speaks no TLS; a proxy before it does (docs/serving.md), and --unix-socket PATH serves that alone"},
    {"serve", "--spm-infill", REFUSED, "/infill gives what is before the gap first"},
    {"serve", "--fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec "
              "--fim-qwen-14b-spec --fim-qwen-30b-default", REFUSED, "-hf REPO serves a model of that kind"},
    {"quantize", "--leave-output-tensor", REFUSED, "--keep-output TYPE sets the type of the output matrix"},
    {"quantize", "--dry-run", REFUSED, "hearth inspect IN shows the tensors"},
    {"quantize", "--keep-split", REFUSED, "OUT is one file"},
    {"imatrix", "--show-statistics --parse-special", REFUSED, "this option of llama-imatrix is not there"},
    {"pull", "--quant --quantization", REFUSED, "the quantisation stands behind the name: hearth pull REPO:Q4_K_M"},
    {"bench", "-o --output", FOREIGN_VALUE, "md", "--json prints JSON; without it there is a table, as Markdown in a pipe"},
    {"bench", "-pg", REFUSED, "-p N -n N measures both, one after the other; -d N is the depth"},
    {"inspect", "--modelfile --parameters --license", REFUSED, "files of models have metadata: hearth inspect MODEL --all"},
    {"inspect", "--template", REFUSED, "tokenizer.chat_template is in the metadata: hearth inspect MODEL --all"},
    {"", "-mm --mmproj -mmu --mmproj-url --mmproj-auto --image --audio --image-min-tokens", REFUSED, "Hearth reads text alone"},
    {"", "--adaptive-target --adaptive-decay", REFUSED, "this sampler is not there; --help lists those that are"},
    {"", "-bf --binary-file", REFUSED, "-f FILE"},
    {"", CONVERSATION OF_CONVERSATIONS, REFUSED, "to talk with a model: hearth chat MODEL"},
    {"", "-mu --model-url -dr --docker-repo", REFUSED, "-hf REPO[:QUANT] fetches a model of Hugging Face"},
    {"", "-hft --hf-token", REFUSED, "tokens are seen by all users in a command; HF_TOKEN holds it"},
    {"", "-hfd -hfrd --hf-repo-draft", REFUSED, "hearth pull REPO fetches it, then --draft REPO"},
    {"", "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast", REFUSED,
     "--override-kv .rope.scaling.KEY=float:X, for architectures that have such keys"},
    {"", "-gan --grp-attn-n -gaw --grp-attn-w", REFUSED, "--rope-scaling yarn --rope-scale X lengthens the context"},
    {"", "--in-prefix --in-suffix --in-prefix-bos", REFUSED, "the template in the file gives what stands around messages"},
    {"", "--lora --lora-scaled --control-vector --control-vector-scaled", REFUSED,
     "adapters are not there; merge them into the file"},
    {"", "-ser --smart-expert-reduction", REFUSED, "it would change the text; --override-kv .expert_used_count=int:N does"},
    {"", "--port --host", REFUSED, "hearth serve MODEL listens on an address"},
    {"", "--rpc", REFUSED, "one machine is used"},
};
/* clang-format on */

const foreign_option *find_foreign_option(const char *command, const char *word, size_t n)
{
    const foreign_option *for_all = NULL;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (!lists_word(foreign[i].words, word, n)) continue;
        if (lists_word(foreign[i].commands, command, strlen(command))) return &foreign[i];
        if (!*foreign[i].commands) for_all = &foreign[i];
    }
    return for_all;
}
