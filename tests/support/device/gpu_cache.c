/* Helpers behind gpu_cache.h. Used by tests/forward. */
#include "support/device/gpu_cache.h"

#include "base/bits.h"
#include "forward/gpu/cache.h"
#include "support/device/shaders.h"
#include "support/kernels/attn_case.h"

void *gpu_poisoned(size_t size)
{
    void *p = malloc(size);
    memset(p, SHADERS_POISON, size);
    return p;
}

float *gpu_random_floats(test_random *r, proof_kind kind, size_t n)
{
    float *x = malloc(n * sizeof *x);
    proof_fill_f32(r, kind, x, n);
    return x;
}

const char *gpu_kv_name(hearth_kv_type type) { return (const char *const[]){"F16", "F32", "Q8_0"}[type]; }

/* ---- caches of the CPU and of a device --------------------------------------------------------------- */

gpu_cache gpu_cache_new(hearth_kv_type type, size_t d, size_t n_kv, size_t n_position)
{
    size_t size = attend_cache_size(type, d, n_position);
    return (gpu_cache){type, d, n_kv, n_position, size, calloc(n_kv, size), calloc(n_kv, size)};
}

void gpu_cache_free(gpu_cache *c) { free(c->keys), free(c->values); }

static uint32_t two_halves(const uint8_t *low, const uint8_t *high)
{
    return hth_load_u16(low) | (uint32_t)hth_load_u16(high) << 16;
}

/* Word i of a position of KV head h: by cache.h of the kernels, what cache.h of the device says. */
static uint32_t key_word(const gpu_cache *c, size_t h, size_t at, size_t i)
{
    const uint8_t *group = c->keys + h * c->head_size + at / 16 * hth_kv_layout_group_size(c->type, c->d);
    size_t lane = at % 16;
    if (c->type == HEARTH_KV_F32) return hth_load_u32(group + (i * 16 + lane) * 4);
    if (c->type == HEARTH_KV_F16)
        return two_halves(group + (2 * i * 16 + lane) * 2, group + ((2 * i + 1) * 16 + lane) * 2);
    if (i < c->d / 4) return hth_load_u32(group + (i * 16 + lane) * 4);
    return (uint32_t)hth_load_u16(group + 16 * c->d + ((i - c->d / 4) * 16 + lane) * 2) << 16;
}

static uint32_t value_word(const gpu_cache *c, size_t h, size_t at, size_t i)
{
    const uint8_t *group = c->values + h * c->head_size + at / 16 * hth_kv_layout_group_size(c->type, c->d);
    size_t lane = at % 16;
    if (c->type != HEARTH_KV_Q8_0)
        return hth_load_u32(group + lane * c->d * (c->type == HEARTH_KV_F16 ? 2 : 4) + 4 * i);
    if (i < c->d / 4) return hth_load_u32(group + lane * c->d + 4 * i);
    return (uint32_t)hth_load_u16(group + 16 * c->d + (lane * (c->d / 32) + i - c->d / 4) * 2) << 16;
}

void gpu_cache_put(const gpu_cache *c, size_t at, uint32_t *keys, uint32_t *values)
{
    size_t n_word = hth_gpu_cache_words(c->type, c->d);
    size_t head_words = hth_gpu_cache_head_words(c->type, c->d, c->n_position);
    for (size_t h = 0; h < c->n_kv; h++) {
        for (size_t i = 0; i < n_word; i++) {
            keys[h * head_words + hth_gpu_cache_key_at(n_word, at, i)] = key_word(c, h, at, i);
            values[h * head_words + hth_gpu_cache_value_at(n_word, at, i)] = value_word(c, h, at, i);
        }
    }
}

size_t gpu_place_of(const gpu_page_table *tables, const uint32_t row[2])
{
    return tables[row[1]][row[0] / HTH_KV_PAGE] * HTH_KV_PAGE + row[0] % HTH_KV_PAGE;
}

void gpu_fill_step(uint32_t *step, uint32_t n_tok, uint32_t n_row, const uint32_t (*rows)[2],
                   const gpu_page_table *tables, uint32_t n_sequence, uint32_t kv_class)
{
    const uint32_t table_at = HTH_STEP_ROWS + n_row * HTH_STEP_ROW_WORDS;
    memset(step, 0, table_at * sizeof *step);
    if (n_sequence > 0) memcpy(step + table_at, tables, n_sequence * sizeof *tables);
    step[HTH_STEP_N_TOK] = n_tok;
    for (uint32_t i = 0; i < n_row; i++) {
        step[HTH_STEP_ROWS + i * HTH_STEP_ROW_WORDS + HTH_STEP_POSITION] = rows[i][0];
        step[HTH_STEP_ROWS + i * HTH_STEP_ROW_WORDS + HTH_STEP_TABLE + kv_class] =
            table_at + rows[i][1] * GPU_N_TABLE;
    }
}
