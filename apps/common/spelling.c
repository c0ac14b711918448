/* Tables of llama.cpp's options, and nearest names by edit distance. */
#include "common/spelling.h"

#include "base/distance.h"

#include <string.h>

static const struct {
    const char *name, *also;
} spellings[] = {
    {"batch", "--batch-size"},
    {"ctx", "--ctx-size --context"},
    {"gpu", "-dev --device"},
    {"gpu-layers", "-ngl --n-gpu-layers"},
    {"no-echo", "--no-display-prompt"},
    {"predict", "--n-predict"},
    {"special", "-sp"},
    {"stop", "-r --reverse-prompt"},
    {"system", "-sys --system-prompt"},
    {"temperature", "--temp"},
    {"template", "--chat-template --chat-template-file"},
    {"typical", "--typical-p"},
};

bool lists_word(const char *list, const char *word, size_t n)
{
    for (const char *w = list; *w;) {
        size_t length = strcspn(w, " ");
        if (length == n && memcmp(w, word, n) == 0) return true;
        w += length + (w[length] == ' ');
    }
    return false;
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
    size_t d = hth_edit_distance(a, b, false), most = length < 2 ? 0 : (length + 2) / 3;
    if (d > most || (*n->name && d >= n->distance)) return;
    memcpy(n->name, name, strlen(name) + 1);
    n->distance = d;
}

/* ---- options that are not here ------------------------------------------------------------- */

static const struct {
    const char *words; /* separated by spaces */
    const char *answer;
} foreign[] = {
    {"-fa --flash-attn", "attention always goes block by block; leave it out"},
    {"-i --interactive --interactive-first -cnv --conversation", "to talk with a model: hearth chat MODEL"},
    {"-no-cnv --no-conversation -st --single-turn",
     "hearth run MODEL continues a text without a chat; leave it out"},
    {"--jinja", "chat always uses the template in the file; leave it out"},
    {"--no-mmap", "the file is read unless --mmap is given; leave it out"},
    {"--mlock", "weights are in memory unless --mmap is given; leave it out"},
    {"-hf -hfr --hf-repo", "hearth pull REPO[:QUANT] fetches a model; then hearth run REPO"},
    {"-mu --model-url", "hearth pull REPO[:QUANT] fetches a model"},
    {"-ctk --cache-type-k -ctv --cache-type-v", "--kv TYPE sets keys and values"},
    {"-ub --ubatch-size", "--batch N is how many tokens of a prompt are computed at once"},
    {"-tb --threads-batch", "-t N counts for prompts too"},
    {"-ts --tensor-split -sm --split-mode -mg --main-gpu", "one GPU is used; --gpu names it"},
    {"-ot --override-tensor -ncmoe --n-cpu-moe -cmoe --cpu-moe",
     "hearth plan says what lies on a GPU; --placement takes it"},
    {"-lv --log-verbosity --verbose-prompt", "--verbose says more"},
    {"--log-disable", "--quiet says less"},
    {"--no-warmup --warmup --perf --no-perf --show-timings", "leave it out; --stats prints rates"},
    {"--simple-io --color -co", "leave it out; output suits where it goes"},
    {"-e --escape --no-escape", "texts are taken as they are; $'a\\nb' is a newline in most shells"},
    {"--numa", "threads stay on one core each unless --no-pin is given"},
    {"--keep", "the whole context is kept until it is full; leave it out"},
    {"--dry-multiplier --xtc-probability --mirostat --dynatemp-range --samplers",
     "this sampler is not there; --help lists those that are"},
    {"--grammar --grammar-file -j --json-schema", "constrained output is not there yet"},
    {"--lora --control-vector", "adapters are not there; merge them into the file"},
    {"-md --model-draft --draft-max", "speculative decoding is not there"},
    {"--embedding --embeddings --reranking --port --host -np", "there is no server yet"},
};

const char *foreign_option(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (lists_word(foreign[i].words, word, n)) return foreign[i].answer;
    return NULL;
}
