/* Shader numbers and their bindings (shaders.def). */
#ifndef HTH_DEVICE_SHADERS_H
#define HTH_DEVICE_SHADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum hth_shader_id {
#define SHADER(name, bindings, push, n_const) HTH_SHADER_##name,
#include "device/shaders.def"
#undef SHADER
    HTH_N_SHADER,
} hth_shader_id;

enum { HTH_SHADER_MAX_BIND = 8, HTH_SHADER_MAX_PUSH = 128, HTH_SHADER_MAX_CONST = 20 };

/* The number of a boolean constant that is in no table: the back end sets it, the same one for all shaders. True: the
 * driver's conversions of halves to floats are exact. */
enum { HTH_SHADER_CONVERTS_HALVES = 31 };

typedef struct hth_shader_info {
    const char *name;
    const char *bindings; /* r, w, x: one letter per binding */
    uint32_t push_size;   /* bytes */
    uint32_t n_const;     /* specialisation constants, 32 bits each */
} hth_shader_info;

extern const hth_shader_info hth_shader_infos[HTH_N_SHADER];

/* The cooperative matrix support that a shader needs; each level includes those before it. */
typedef enum hth_coopmat_level {
    HTH_COOPMAT_NONE = 0,
    HTH_COOPMAT_KHR, /* HTH_FEATURE_COOPMAT */
    HTH_COOPMAT_CM2, /* HTH_FEATURE_COOPMAT2 too */
    HTH_N_COOPMAT_LEVEL,
} hth_coopmat_level;

static inline hth_coopmat_level hth_shader_coopmat_level(hth_shader_id id)
{
    switch (id) {
    case HTH_SHADER_mul_mat_q:
    case HTH_SHADER_mul_mat_q_acc:
    case HTH_SHADER_mul_mat_q_sliced: return HTH_COOPMAT_KHR;
    case HTH_SHADER_mul_mat_q_cm2:
    case HTH_SHADER_mul_mat_q_cm2_acc:
    case HTH_SHADER_mul_mat_q_cm2_sliced: return HTH_COOPMAT_CM2;
    default: return HTH_COOPMAT_NONE;
    }
}

/* Arguments of a shader that runs as a C function (device.h: null). */
typedef struct hth_dispatch_args {
    void *bind[HTH_SHADER_MAX_BIND];
    uint64_t size[HTH_SHADER_MAX_BIND]; /* bytes from that address that it may access */
    const void *push;
    const uint32_t *consts;
    uint32_t grid[3]; /* workgroups */
} hth_dispatch_args;
typedef void hth_shader_ref_fn(const hth_dispatch_args *call);

#endif
