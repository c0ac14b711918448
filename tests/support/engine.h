/* The engine as tests use it: the logits of a list of ids under one setting, the
 * settings that must not matter, and distances between files of floats. */
#ifndef HEARTH_TESTS_SUPPORT_ENGINE_H
#define HEARTH_TESTS_SUPPORT_ENGINE_H

#include <hearth/hearth.h>

/* What may change nothing, and the type of the cache, which may. */
typedef struct engine_setting {
    const char *cpu; /* value of HEARTH_CPU; NULL: the machine's best */
    uint32_t n_thread, n_batch;
    bool mmap;
    hearth_kv_type kv;
    hearth_selector selector; /* may change results too, where it is approximate */
} engine_setting;

enum { ENGINE_MAX_LEVELS = 5 };
/* Names of the CPU levels that this machine has; returns their number. */
size_t engine_levels(const char *names[ENGINE_MAX_LEVELS]);
/* Sets or unsets HEARTH_CPU; it is read when a model is opened. */
void engine_set_cpu(const char *name);

/* Numbers in a text file, and floats in a binary one; freed with free. NULL when the file cannot be read. */
int32_t *engine_read_ids(const char *path, size_t *n);
float *engine_read_floats(const char *path, size_t *n);

/* Logits [n][n_vocab] of ids at positions 0, 1, ..., freed with free; NULL after a failed check. */
float *engine_logits(const char *path, const engine_setting *setting, const int32_t *ids, size_t n, size_t *n_vocab);
/* The same of a model that is open. */
float *engine_model_logits(const hearth_model *model, const engine_setting *setting, const int32_t *ids, size_t n);
/* Logits after the last of ids alone, fed as one call. */
float *engine_last_logits(const hearth_model *model, const engine_setting *setting, const int32_t *ids, size_t n);

/* Whether the driver of the model's first device is known to lose subnormals. */
bool engine_flushes(const hearth_model *model);
/* The model's devices promise the CPU's bits. Where the driver loses subnormals they may not, for that reason, the
 * self-test's float_rules, and for no other. */
void engine_check_bit_exact(const hearth_model *model);

/* A model of two threads whose store has `more` bytes above the least; io as in hearth_model_options. NULL after a
 * failed check. */
hearth_model *engine_open_streamed(const char *path, const char *io, uint64_t more, hearth_selector selector);

/* Feeds ids to a fresh session, then takes the likeliest token n_predict times;
 * out[n_predict]. False after a failed check. */
bool engine_greedy(const hearth_model *model, const engine_setting *setting, const int32_t *ids, size_t n,
                   int32_t *out, size_t n_predict);

/* The bytes that stand behind these words of a message, as --vram takes them ("5.75M"); 0: none do. They are
 * rounded up: *too_few is below what was meant by at most a hundredth of their unit. */
uint64_t engine_bytes_behind(const char *text, const char *words, uint64_t *too_few);

/* max |a - b| / max |b|, and rms(a - b) / rms(b). */
double engine_max_error(const float *a, const float *b, size_t n);
double engine_rms_error(const float *a, const float *b, size_t n);

#endif
