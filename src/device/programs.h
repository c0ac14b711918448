/* The programs of devices by number, and what they are bound to (programs.def). */
#ifndef HTH_DEVICE_PROGRAMS_H
#define HTH_DEVICE_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum hth_program_id {
#define PROGRAM(name, bindings, push, n_const) HTH_PROGRAM_##name,
#include "device/programs.def"
#undef PROGRAM
    HTH_N_PROGRAM,
} hth_program_id;

enum { HTH_PROGRAM_MAX_BIND = 8, HTH_PROGRAM_MAX_PUSH = 128, HTH_PROGRAM_MAX_CONST = 16 };

typedef struct hth_program_form {
    const char *name;
    const char *bindings; /* r, w, x: one letter for each */
    uint32_t push_size;   /* bytes */
    uint32_t n_const;     /* specialisation constants, 32 bits each */
} hth_program_form;

extern const hth_program_form hth_program_forms[HTH_N_PROGRAM];

/* The matrix units that a program needs; those of each kind have all that those before it have. */
typedef enum hth_matrices {
    HTH_MATRICES_NONE = 0,
    HTH_MATRICES_KHR, /* HTH_FEATURE_MATRIX */
    HTH_MATRICES_CM2, /* HTH_FEATURE_MATRIX_2 too */
    HTH_N_MATRICES,
} hth_matrices;

static inline hth_matrices hth_program_matrices(hth_program_id id)
{
    if (id == HTH_PROGRAM_tile_q_cm2 || id == HTH_PROGRAM_tile_q_cm2_onto) return HTH_MATRICES_CM2;
    bool tiled = id == HTH_PROGRAM_tile_q || id == HTH_PROGRAM_tile_q_onto;
    return tiled ? HTH_MATRICES_KHR : HTH_MATRICES_NONE;
}

/* What a program is called with where it is a function of C (device.h: null). */
typedef struct hth_program_call {
    void *bind[HTH_PROGRAM_MAX_BIND];
    uint64_t size[HTH_PROGRAM_MAX_BIND]; /* bytes from there on that it may touch */
    const void *push;
    const uint32_t *consts;
    uint32_t grid[3]; /* workgroups */
} hth_program_call;
typedef void hth_program_fn(const hth_program_call *call);

#endif
