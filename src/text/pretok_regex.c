/* How text is split into words before merging, as data: the regular expressions of each type of pre-tokenizer, and
 * the names that `tokenizer.ggml.pre` uses for them. Read by bpe_vocab.c and pretokenizer_pcre2.c. A new name is a
 * row in `names`, a new pre-tokenizer a row in `types`; tests/text/test_pretokenizer.c tests each.
 *
 * White space is Unicode's White_Space, written out: PCRE2's own class also contains U+180E. No expression may use
 * a lookahead inside a repeat, or start a search at every position of a run that it then reads to its end: both
 * are slow on long runs. */
#include "text/pretokenizer.h"

#include <string.h>

/* One alternative, or one stage, per line. */
/* clang-format off */

#define WS                                                                                                   \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                       \
    "\\x{202f}\\x{205f}\\x{3000}"
#define SPACE "[" WS "]"
#define BLACK "[^" WS "]"

/* white space except the last one of a run, which goes with the text after it; then the rest */
#define SPACES SPACE "+(?!" BLACK ")|" SPACE "+"
#define LINES SPACE "*[\\r\\n]+"
/* 's 't 're 've 'm 'll 'd in both cases. Without (?i), under which the long s (U+017F) matches s. */
#define SHORT "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACES

/* Llama 3, Qwen 2 and similar differ in the class of letters and in how digits are grouped. */
#define WORDS(LETTERS, OTHER, DIGITS)                                                                        \
    SHORT "|[^\\r\\n\\p{L}\\p{N}]?" LETTERS "+|" DIGITS "| ?[^" WS OTHER "\\p{N}]+[\\r\\n]*|" LINES "|" SPACES

/* A word of upper-case then lower-case letters. Letters without case and marks count as both. */
#define CAPITAL "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(END, DIGITS)                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" CAPITAL "*" SMALL "+" END "|"                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" CAPITAL "+" SMALL "*" END "|" DIGITS "| ?[^" WS                                 \
    "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES "|" SPACES

/* DeepSeek's "Chinese" class: from U+0800 on, so it contains many other scripts. */
#define HAN "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

/* DeepSeek's letters: those of scripts with upper case. */
#define ALPHA                                                                                                \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                           \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"                   \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"                            \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                                 \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                           \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"                           \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}"                           \
    "\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}"                   \
    "\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"                                     \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}"                           \
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"                    \
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"                            \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"                   \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}"                            \
    "\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                           \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"                           \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"                   \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

enum {
    BLOOM_,
    DEEPSEEK_CODER,
    DEEPSEEK_LLM,
    DEEPSEEK_V3,
    DEFAULT,
    FALCON,
    GPT_2,
    GPT_4O,
    LLAMA_BPE,
    QWEN2,
    QWEN35,
    STARCODER,
    TEKKEN,
    VIKING,
    N_TYPE
};

static const hth_pretok_type types[N_TYPE] = {
    [BLOOM_] = {"bloom", {BLOOM}},
    [DEEPSEEK_CODER] = {"deepseek-coder", {
        "[\\r\\n]",
        SPACE "?\\p{L}+",
        SPACE "?\\p{P}+",
        HAN,
        "\\p{N}"}},
    [DEEPSEEK_LLM] = {"deepseek-llm", {
        "[\\r\\n]",
        SPACE "?[" ALPHA "]+",
        SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
        "(?<!" SPACE ")" SPACE "+\\z", /* lookbehind, so that a run is read once */
        HAN,
        "\\p{N}+"}},
    [DEEPSEEK_V3] = {"deepseek-v3", {
        "\\p{N}{1,3}",
        "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
        "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
        " ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACES}},
    [DEFAULT] = {"default", {
        "[\\p{P}$+<=>^~|]+",
        GPT2,
        "\\p{N}+",
        "[0-9][0-9][0-9]"}},
    [FALCON] = {"falcon", {
        "[\\p{P}$+<=>^~|`]+",
        GPT2,
        "[0-9][0-9][0-9]"}},
    [GPT_2] = {"gpt-2", {GPT2}},
    [GPT_4O] = {"gpt-4o", {CASED("(?:" SHORT ")?", "\\p{N}{1,3}")}},
    [LLAMA_BPE] = {"llama-bpe", {WORDS("\\p{L}", "\\p{L}", "\\p{N}{1,3}")}},
    [QWEN2] = {"qwen2", {WORDS("\\p{L}", "\\p{L}", "\\p{N}")}},
    [QWEN35] = {"qwen35", {WORDS("[\\p{L}\\p{M}]", "\\p{L}\\p{M}", "\\p{N}")}},
    [STARCODER] = {"starcoder", {
        "\\p{N}",
        GPT2}},
    [TEKKEN] = {"tekken", {CASED("", "\\p{N}")}},
    [VIKING] = {"viking", {
        BLOOM,
        "\\p{N}"}},
};

/* clang-format on */

/* The names, as in llama.cpp. */
static const struct {
    const char *name;
    unsigned char type, flags;
} names[] = {
    {"default", DEFAULT, 0},
    {"gpt-2", GPT_2, 0},
    {"llama-bpe", LLAMA_BPE, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"qwen2", QWEN2, 0},
    {"falcon", FALCON, 0},
    {"bloom", BLOOM_, 0},
    {"deepseek-coder", DEEPSEEK_CODER, 0},
    {"deepseek-llm", DEEPSEEK_LLM, 0},
    {"deepseek-v3", DEEPSEEK_V3, 0},
    {"gpt-4o", GPT_4O, 0},
    {"qwen35", QWEN35, 0},
    {"starcoder", STARCODER, 0},
    {"tekken", TEKKEN, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"viking", VIKING, 0},

    {"a.x-4.0", GPT_2, 0},
    {"exaone4", GPT_2, 0},
    {"gigachat", GPT_2, 0},
    {"granite-docling", GPT_2, 0},
    {"jais", GPT_2, 0},
    {"jina-de", GPT_2, 0},
    {"jina-es", GPT_2, 0},
    {"jina-v1-en", GPT_2, 0},
    {"jina-v2-code", GPT_2, HTH_TEXT_MASK_LSTRIP},
    {"jina-v2-de", GPT_2, HTH_TEXT_MASK_LSTRIP},
    {"jina-v2-es", GPT_2, HTH_TEXT_MASK_LSTRIP},
    {"mellum", GPT_2, 0},
    {"modern-bert", GPT_2, 0},
    {"mpt", GPT_2, 0},
    {"olmo", GPT_2, 0},
    {"phi-2", GPT_2, 0},
    {"roberta-bpe", GPT_2, 0},
    {"trillion", GPT_2, 0},

    {"chatglm-bpe", LLAMA_BPE, HTH_TEXT_NO_BOS},
    {"dbrx", LLAMA_BPE, 0},
    {"falcon-h1", LLAMA_BPE, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"falcon3", LLAMA_BPE, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"glm4", LLAMA_BPE, HTH_TEXT_NO_BOS},
    {"jina-v5-nano", LLAMA_BPE, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"lfm2", LLAMA_BPE, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"llama-v3", LLAMA_BPE, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"llama3", LLAMA_BPE, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"midm-2.0", LLAMA_BPE, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"pixtral", LLAMA_BPE, HTH_TEXT_WHOLE_WORDS | HTH_TEXT_BOS},
    {"smaug-bpe", LLAMA_BPE, 0},

    {"deepseek-r1-qwen", QWEN2, 0},
    {"f2llmv2", QWEN2, 0},
    {"grok-2", QWEN2, 0},
    {"hunyuan", QWEN2, 0},
    {"kormo", QWEN2, 0},
    {"megrez", QWEN2, 0},
    {"solar-open", QWEN2, 0},
    {"stablelm2", QWEN2, 0},

    {"codeshell", STARCODER, 0},
    {"command-r", STARCODER, 0},
    {"exaone", STARCODER, 0},
    {"mellum2", STARCODER, 0},
    {"minerva-7b", STARCODER, 0},
    {"refact", STARCODER, 0},
    {"smollm", STARCODER, 0},

    {"hunyuan-dense", DEEPSEEK_V3, 0},
    {"hy_v4", DEEPSEEK_V3, 0},
    {"joyai-llm", DEEPSEEK_V3, 0},

    {"kanana2", GPT_4O, 0},
    {"llama4", GPT_4O, 0},
    {"minimax-m2", GPT_4O, 0},
    {"talkie", GPT_4O, 0},

    {"gpt3-finnish", BLOOM_, 0},
    {"poro-chat", BLOOM_, 0},
};

enum { N_NAME = sizeof names / sizeof *names };

const hth_pretok_type *hth_pretok_type_find(hth_str name, unsigned *flags)
{
    for (size_t i = 0; i < N_NAME; i++) {
        if (strlen(names[i].name) != name.n || memcmp(names[i].name, name.bytes, name.n) != 0) continue;
        *flags = names[i].flags;
        return &types[names[i].type];
    }
    return NULL;
}

const char *hth_pretok_type_name(size_t i) { return i < N_NAME ? names[i].name : NULL; }
