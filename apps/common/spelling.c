/* Tables of llama.cpp's options, and nearest names by edit distance. */
#include "common/spelling.h"

#include "base/distance.h"

#include <string.h>

static const struct {
    const char *name, *also;
} spellings[] = {
    {"batch", "--batch-size"},
    {"ctx", "--ctx-size --context"},
    {"from-chunk", "--chunk"},
    {"gpu", "-dev --device"},
    {"grammar", "--grammar-file"},
    {"json-schema", "-jf --json-schema-file"},
    {"gpu-layers", "-ngl --n-gpu-layers"},
    {"keep-output", "--output-tensor-type"},
    {"no-echo", "--no-display-prompt"},
    {"draft", "-md --model-draft"},
    {"no-shift", "--no-context-shift"},
    {"out", "--output"},
    {"output", "--output-file"},
    {"predict", "--n-predict"},
    {"repeat", "-r --repetitions"},
    {"special", "-sp"},
    {"stop", "-r --reverse-prompt"},
    {"system", "-sys --system-prompt"},
    {"temperature", "--temp"},
    {"template", "--chat-template --chat-template-file"},
    {"template-vars", "--chat-template-kwargs"},
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

static const struct {
    const char *command; /* "": all */
    const char *words;   /* separated by spaces */
    const char *answer;
} foreign[] = {
    {"chat", "-i -if -ins --interactive --interactive-first -cnv --conversation",
     "chat is always a conversation; leave it out"},
    {"chat", "-no-cnv --no-conversation", "hearth run MODEL continues a text without a chat"},
    {"chat", "-st --single-turn", "echo TEXT | hearth chat MODEL is one turn"},
    {"chat", "-mli --multiline-input", "/multi, or a backslash at the end of a line"},
    {"chat", "-p --prompt -f --file", "messages are typed or come from a pipe; hearth run continues a text"},
    {"run", "-sys --system-prompt --system",
     "a system text belongs to a conversation: hearth chat MODEL --system TEXT"},
    {"quantize", "--allow-requantize",
     "quantize takes every supported type, with a warning; leave it out"},
    {"quantize", "--leave-output-tensor", "--keep-output TYPE sets the type of the output matrix"},
    {"imatrix", "--no-ppl", "hearth perplexity measures how well a text is predicted; leave it out"},
    {"imatrix", "--output-format", "OUT is GGUF; leave it out"},
    {"imatrix", "-ofreq --output-frequency --save-frequency",
     "OUT is written at the end, and at Ctrl-C; leave it out"},
    {"imatrix", "--show-statistics --parse-special", "this option of llama-imatrix is not there"},
    {"pull", "--quant --quantization", "the quantisation stands behind the name: hearth pull REPO:Q4_K_M"},
    {"chat", "-r --reverse-prompt --stop", "an answer ends where the model ends it; -n N limits it"},
    {"chat", "-sysf --system-prompt-file", "--system \"$(cat FILE)\" reads a file"},
    {"chat", "--reasoning-budget --reasoning-format --think",
     "--template-vars '{\"enable_thinking\": false}', if the template has it"},
    {"run", "--chat-template --chat-template-file",
     "a template belongs to a conversation: hearth chat MODEL"},
    {"", "--list-devices", "hearth devices lists them"},
    {"", "--check-tensors", "hearth inspect --check MODEL"},
    {"", "-l", "--logit-bias ID=X"},
    {"", "--hf-file -hff", "hearth pull REPO:FILE.gguf fetches a file"},
    {"", "-fit --fit", "what lies on a GPU is chosen so that it fits; leave it out"},
    {"", "-mm --mmproj --image --audio", "Hearth reads text alone"},
    {"", "--top-nsigma --top-n-sigma --adaptive-target",
     "this sampler is not there; --help lists those that are"},
    {"", "--log-file", "2>FILE keeps messages"},
    {"", "--offline", "only hearth pull uses a network; leave it out"},
    {"", "-bf --binary-file", "-f FILE"},
    {"", "-fa --flash-attn", "attention always goes block by block; leave it out"},
    {"", "-i -if -ins --interactive --interactive-first -cnv --conversation",
     "to talk with a model: hearth chat MODEL"},
    {"", "-no-cnv --no-conversation -st --single-turn",
     "hearth run MODEL continues a text without a chat; leave it out"},
    {"", "--jinja", "chat always uses the template in the file; leave it out"},
    {"", "--no-mmap", "the file is read unless --io mmap is given; leave it out"},
    {"", "--mlock", "weights are in memory unless --io mmap is given; leave it out"},
    {"", "-hf -hfr --hf-repo", "hearth pull REPO[:QUANT] fetches a model; then hearth run REPO"},
    {"", "-mu --model-url", "hearth pull REPO[:QUANT] fetches a model"},
    {"", "-ctk --cache-type-k -ctv --cache-type-v", "--kv TYPE sets keys and values"},
    {"", "-ub --ubatch-size", "--batch N is how many tokens of a prompt are computed at once"},
    {"", "-tb --threads-batch", "-t N counts for prompts too"},
    {"", "-ts --tensor-split -sm --split-mode -mg --main-gpu", "one GPU is used; --gpu names it"},
    {"", "-ot --override-tensor -ncmoe --n-cpu-moe -cmoe --cpu-moe",
     "hearth plan says what lies on a GPU; --placement takes it"},
    {"", "-lv --log-verbosity --verbose-prompt", "--verbose says more"},
    {"", "--log-disable", "--quiet says less"},
    {"", "--no-warmup --warmup --perf --no-perf --show-timings", "leave it out; --stats prints rates"},
    {"", "--simple-io --color -co", "leave it out; output suits where it goes"},
    {"", "-e --escape --no-escape", "texts are taken as they are; $'a\\nb' is a newline in most shells"},
    {"", "--numa", "threads stay on one core each unless --no-pin is given"},
    {"", "-nkvo --no-kv-offload", "keys and values lie with their layer; -ngl 0 keeps all on the CPU"},
    {"", "--override-kv", "Hearth takes metadata from the file alone"},
    {"", "--rope-freq-base --rope-freq-scale --rope-scaling --rope-scale --yarn-orig-ctx --yarn-ext-factor",
     "Hearth takes rotary positions from the file"},
    {"chat", "--prompt-cache --prompt-cache-all --prompt-cache-ro", "/save FILE and /load FILE keep a conversation"},
    {"run", "--prompt-cache --prompt-cache-all", "--session FILE --save-session FILE, with the same FILE"},
    {"run", "--prompt-cache-ro", "--session FILE alone"},
    {"", "--in-prefix --in-suffix --in-prefix-bos",
     "the template in the file gives what stands around messages"},
    {"", "--keep", "the whole context is kept until it is full; leave it out"},
    {"", "--dry-multiplier --xtc-probability --mirostat --dynatemp-range --samplers",
     "this sampler is not there; --help lists those that are"},
    {"chat", "--grammar --grammar-file -j --json-schema -jf --json-schema-file", "hearth run MODEL --json-schema SCHEMA"},
    {"", "--lora --control-vector", "adapters are not there; merge them into the file"},
    {"", "--draft-max --draft-n --draft-min --spec-type", "--speculate N evaluates drafts of N tokens; leave it out"},
    {"", "--embedding --embeddings --reranking -np", "this is not there yet"},
    {"", "--port --host", "hearth serve MODEL listens on an address"},
    {"serve", "--api-key", "keys are seen by all users in a command; --api-key-file FILE, or HEARTH_API_KEY"},
    {"serve", "--metrics --slots --props", "these endpoints are always there; leave it out"},
};

const char *foreign_option(const char *command, const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if ((!*foreign[i].command || strcmp(foreign[i].command, command) == 0) &&
            lists_word(foreign[i].words, word, n))
            return foreign[i].answer;
    return NULL;
}
