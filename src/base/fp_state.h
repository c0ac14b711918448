/* The floating-point state of the calling thread (rounding, denormals, traps): the library computes with the default
 * one, and returns to its caller, and calls the caller's functions, with the caller's. Threads of the library inherit
 * the default one (thread.c). */
#ifndef HTH_BASE_FP_STATE_H
#define HTH_BASE_FP_STATE_H

#include <stdint.h>

/* MXCSR and the control word of x87, which libc's conversions use too; on AArch64 FPCR. */
typedef struct hth_fp_state {
    uint64_t control;
    uint16_t x87;
} hth_fp_state;

/* A public function that runs on this thread. */
typedef struct hth_fp_scope hth_fp_scope;
struct hth_fp_scope {
    hth_fp_state caller;
    hth_fp_scope *outer; /* the public function that called this one; NULL: the caller of the library did */
};

/* A function of the caller that runs on this thread. */
typedef struct hth_fp_callback {
    hth_fp_scope *within; /* NULL: not within a public function; nothing changes */
} hth_fp_callback;

void hth_fp_enter(hth_fp_scope *scope);
void hth_fp_leave(hth_fp_scope *scope);
/* Restore the caller's state around a call of its function. Changes that the function makes become the caller's
 * state. */
void hth_fp_enter_callback(hth_fp_callback *callback);
void hth_fp_leave_callback(hth_fp_callback *callback);

/* A declaration: the default state from here on, until the block ends. */
#define HTH_FP_SCOPE                                                                                         \
    __attribute__((cleanup(hth_fp_leave))) hth_fp_scope fp_scope;                                            \
    hth_fp_enter(&fp_scope)
/* The same with the caller's state. */
#define HTH_FP_CALLBACK                                                                                      \
    __attribute__((cleanup(hth_fp_leave_callback))) hth_fp_callback fp_callback;                             \
    hth_fp_enter_callback(&fp_callback)

#endif
