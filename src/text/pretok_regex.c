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
#define WORDS_THEN(LETTERS, OTHER, DIGITS, BLANKS)                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?" LETTERS "+|" DIGITS "| ?[^" WS OTHER "\\p{N}]+[\\r\\n]*|" BLANKS
#define WORDS(LETTERS, OTHER, DIGITS) SHORT "|" WORDS_THEN(LETTERS, OTHER, DIGITS, LINES "|" SPACES)

/* white space in powers of two */
#define BINARY_SPACES                                                                                        \
    SPACE "{512}(?!" BLACK ")|" SPACE "{256}(?!" BLACK ")|" SPACE "{128}(?!" BLACK ")|" SPACE                \
    "{64}(?!" BLACK ")|" SPACE "{32}(?!" BLACK ")|" SPACE "{16}(?!" BLACK ")|" SPACE "{8}(?!" BLACK ")|"     \
    SPACE "{4}(?!" BLACK ")|" SPACE "{1,2}(?!" BLACK ")|" SPACE

/* A word of upper-case then lower-case letters. Letters without case and marks count as both. */
#define CAPITAL "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_OF(CAPITALS, SMALLS, END, DIGITS, LINE_END)                                                    \
    "[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "*" SMALLS "+" END "|"                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "+" SMALLS "*" END "|" DIGITS "| ?[^" WS                               \
    "\\p{L}\\p{N}]+" LINE_END "*|" LINES "|" SPACES
#define CASED(END, DIGITS) CASED_OF(CAPITAL, SMALL, END, DIGITS, "[\\r\\n/]")

/* The script, and letters of other scripts: classes without what they do not contain. */
#define HAN_SCRIPT                                                                                           \
    "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}\\x{3021}-\\x{3029}"           \
    "\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}"          \
    "\\x{16fe2}\\x{16fe3}\\x{16ff0}\\x{16ff1}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b739}\\x{2b740}-\\x{2b81d}"  \
    "\\x{2b820}-\\x{2cea1}\\x{2ceb0}-\\x{2ebe0}\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{3134a}\\x{31350}-\\x{323af}"
#define NO_LETTER "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}"
#define OTHER_CAPITAL "[^\\p{Ll}" NO_LETTER HAN_SCRIPT "]"
#define OTHER_SMALL "[^\\p{Lu}\\p{Lt}" NO_LETTER HAN_SCRIPT "]"

/* Words of DeepSeek 3 after numbers and East Asian text. LINE_END: what may follow punctuation. */
#define DEEPSEEK_WORDS(LINE_END)                                                                             \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" LINE_END
#define KANJI_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"

/* A chunk of digits in groups of three, counted from its end: the remainder, then threes. The lookahead is tried
 * at the start of the chunk only. */
#define THREES(DIGIT) "\\A" DIGIT "{1,2}(?=(?:" DIGIT "{3})++\\z)|" DIGIT "{3}"

/* The same where a chunk may hold other characters, and only a chunk of digits to its end is divided: a group
 * continues (\G) where one ended. */
#define WHOLE_THREES(DIGIT)                                                                                  \
    "\\A" DIGIT "{1,2}(?=(?:" DIGIT "{3})++\\z)|\\A" DIGIT "{3}(?=(?:" DIGIT "{3})*+\\z)|\\G(?<=" DIGIT ")" DIGIT "{3}"

/* A chunk of numbers that begins a new chunk where a multiple of three digits follows, up to what is no digit:
 * the remainder, three digits, or the rest with other numbers up to the next such place. */
#define NEXT_THREES "(?=(?:\\p{Nd}{3})++(?!\\p{Nd}))"
#define MIXED_THREES                                                                                         \
    "\\A\\p{Nd}{1,2}" NEXT_THREES "|\\p{Nd}{3}(?=\\p{Nd})|"                                                  \
    "\\p{Nd}{0,3}+(?:\\P{Nd}++(?:\\p{Nd}{1,2}+(?!\\p{Nd}))?+)*+(?:(?<=\\P{Nd})\\p{Nd}{1,2}" NEXT_THREES ")?"

#define ASIAN                                                                                                \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{8c48}-\\x{faff}\\x{3040}-\\x{30ff}\\x{ff65}-\\x{ff9f}"         \
    "\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}"            \
    "\\x{a9e0}-\\x{a9ff}\\x{1100}-\\x{11ff}]+"

#define YOUTU_SCRIPTS                                                                                        \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}" \
    "\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" KANJI_KANA

#define LINE_RUNS "[^\\n]+|\\n+"

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
    AFMOE,
    BAILINGMOE,
    BLOOM_,
    CHAMELEON,
    DEEPSEEK_CODER,
    DEEPSEEK_LLM,
    DEEPSEEK_V3,
    DEFAULT,
    EXAONE_MOE,
    FALCON,
    GEMMA4,
    GPT_2,
    GPT_4O,
    JAIS_2,
    KIMI_K2,
    LAGUNA,
    LLAMA_BPE,
    MINICPM5,
    QWEN2,
    QWEN35,
    SEED_CODER,
    SPARK2_5,
    STARCODER,
    SUPERBPE,
    TEKKEN,
    TINY_AYA,
    UFAKZEKA,
    VIKING,
    WHITESPACE,
    YOUTU,
    N_TYPE
};

static const hth_pretok_type types[N_TYPE] = {
    [AFMOE] = {"afmoe", {
        "\\p{N}+",
        THREES("\\p{N}"),
        ASIAN,
        DEEPSEEK_WORDS("[\\r\\n]*|" LINES "|" SPACES)}},
    [BAILINGMOE] = {"bailingmoe", {
        SHORT "|" WORDS_THEN("\\p{L}", "\\p{L}", "\\p{N}", SPACE "*[\\r\\n]|" SPACES)}},
    [BLOOM_] = {"bloom", {BLOOM}},
    [CHAMELEON] = {"chameleon", {
        "<sentinel:[0-9]+>",
        "IMGIMG[A-I]{1,4}Z",
        "[\\t\\n]|    |  ",
        "\\p{N}",
        "[\\p{P}!-/:-@\\[-`{-~]",
        GPT2}},
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
        KANJI_KANA,
        DEEPSEEK_WORDS("[\\r\\n]*|" LINES "|" SPACES)}},
    [DEFAULT] = {"default", {
        "[\\p{P}$+<=>^~|]+",
        GPT2,
        "\\p{N}+",
        "[0-9][0-9][0-9]"}},
    [EXAONE_MOE] = {"exaone-moe", { /* words with single spaces between them are one */
        SHORT "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}\\p{M}*+(?: ?\\p{L}\\p{M}*+)*+|\\p{N}|"
        " ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]?|" SPACE "*[\\r\\n]|" SPACES}},
    [FALCON] = {"falcon", {
        "[\\p{P}$+<=>^~|`]+",
        GPT2,
        "[0-9][0-9][0-9]"}},
    [GEMMA4] = {"gemma4", {LINE_RUNS}},
    [GPT_2] = {"gpt-2", {GPT2}},
    [GPT_4O] = {"gpt-4o", {CASED("(?:" SHORT ")?", "\\p{N}{1,3}")}},
    [JAIS_2] = {"jais-2", {
        SHORT "|" WORDS_THEN("\\p{L}", "\\p{L}", "\\p{N}{1,3}", LINES "|" BINARY_SPACES)}},
    [KIMI_K2] = {"kimi-k2", {
        "[" HAN_SCRIPT "]+|" CASED_OF(OTHER_CAPITAL, OTHER_SMALL, "(?:" SHORT ")?", "\\p{N}{1,3}", "[\\r\\n]")}},
    [LAGUNA] = {"laguna", {
        LINE_RUNS,
        WORDS("\\p{L}", "\\p{L}", "\\p{N}")}},
    [LLAMA_BPE] = {"llama-bpe", {WORDS("\\p{L}", "\\p{L}", "\\p{N}{1,3}")}},
    [MINICPM5] = {"minicpm5", {
        "\\p{N}{1,3}",
        WORDS("\\p{L}", "\\p{L}", "\\p{N}+")}},
    [QWEN2] = {"qwen2", {WORDS("\\p{L}", "\\p{L}", "\\p{N}")}},
    [QWEN35] = {"qwen35", {WORDS("[\\p{L}\\p{M}]", "\\p{L}\\p{M}", "\\p{N}")}},
    [SEED_CODER] = {"seed-coder", { /* punctuation ends before a line end */
        SHORT "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]+|" LINES "|" SPACES}},
    [SPARK2_5] = {"spark2_5", {
        "\\p{N}{1,3}",
        KANJI_KANA,
        DEEPSEEK_WORDS("|[\\r\\n]|" SPACES),
        "\\p{N}"}},
    [STARCODER] = {"starcoder", {
        "\\p{N}",
        GPT2}},
    [SUPERBPE] = {"superbpe", {
        "\\p{N}+",
        MIXED_THREES}},
    [TEKKEN] = {"tekken", {CASED("", "\\p{N}")}},
    [TINY_AYA] = {"tiny_aya", { /* digits are grouped if no letter follows them */
        "(?<!\\p{Nd})\\p{Nd}++(?![\\p{L}\\p{M}\\p{N}\\p{Pc}])",
        WHOLE_THREES("\\p{Nd}"),
        CASED("(?:" SHORT ")?", "\\p{N}{1,3}")}},
    [UFAKZEKA] = {"ufakzeka", {WORDS_THEN("\\p{L}", "\\p{L}", "\\p{N}", LINES "|" SPACES)}},
    [VIKING] = {"viking", {
        BLOOM,
        "\\p{N}"}},
    [WHITESPACE] = {"whitespace", {BLACK "+"}},
    [YOUTU] = {"youtu", {
        YOUTU_SCRIPTS,
        CASED("(?:" SHORT ")?", "\\p{N}")}},
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
    {"afmoe", AFMOE, 0},
    {"bailingmoe", BAILINGMOE, 0},
    {"chameleon", CHAMELEON, HTH_TEXT_BOS},
    {"exaone-moe", EXAONE_MOE, 0},
    {"jais-2", JAIS_2, 0},
    {"kimi-k2", KIMI_K2, 0},
    {"laguna", LAGUNA, 0},
    {"minicpm5", MINICPM5, HTH_TEXT_WHOLE_WORDS},
    {"seed-coder", SEED_CODER, 0},
    {"spark2_5", SPARK2_5, 0},
    {"superbpe", SUPERBPE, 0},
    {"tiny_aya", TINY_AYA, 0},
    {"ufakzeka", UFAKZEKA, 0},
    {"youtu", YOUTU, HTH_TEXT_WHOLE_WORDS},
    {"gemma4", GEMMA4, HTH_TEXT_CHARACTERS | HTH_TEXT_ESCAPES | HTH_TEXT_WHOLE_LINES | HTH_TEXT_ALWAYS_BOS},
    {"whitespace", WHITESPACE, HTH_TEXT_CHARACTERS},

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

    {"granite-embed-multi-97m", GPT_4O, HTH_TEXT_WHOLE_WORDS},
    {"kanana2", GPT_4O, 0},
    {"llama4", GPT_4O, 0},
    {"minimax-m2", GPT_4O, 0},
    {"talkie", GPT_4O, 0},

    {"bailingmoe2", BAILINGMOE, 0},
    {"llada-moe", BAILINGMOE, 0},

    {"cohere2moe", TINY_AYA, 0},

    {"granite-embed-multi-311m", GEMMA4,
     HTH_TEXT_CHARACTERS | HTH_TEXT_ESCAPES | HTH_TEXT_WHOLE_LINES | HTH_TEXT_ALWAYS_BOS},
    {"sarvam-moe", GEMMA4, HTH_TEXT_CHARACTERS | HTH_TEXT_ESCAPES},

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
