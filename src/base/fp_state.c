/* The outermost public function of each thread holds the caller's state, with which functions of the caller run. If
 * one of them ends by longjmp or an exception, the thread is as it was before the public function. */
#include "base/fp_state.h"

#include <stddef.h>

static _Thread_local hth_fp_scope *outermost;

#if defined(__x86_64__)
static hth_fp_state get_state(void)
{
    hth_fp_state s = {.control = __builtin_ia32_stmxcsr()};
    __asm__ volatile("fnstcw %0" : "=m"(s.x87));
    return s;
}

static void set_state(hth_fp_state s)
{
    __builtin_ia32_ldmxcsr((uint32_t)s.control);
    __asm__ volatile("fldcw %0" : : "m"(s.x87));
}

static const hth_fp_state standard = {.control = 0x1f80, .x87 = 0x37f};
#elif defined(__aarch64__)
static hth_fp_state get_state(void)
{
    hth_fp_state s = {0};
    __asm__ volatile("mrs %0, fpcr" : "=r"(s.control));
    return s;
}

static void set_state(hth_fp_state s) { __asm__ volatile("msr fpcr, %0" : : "r"(s.control)); }

static const hth_fp_state standard = {0};
#else
#error "the floating-point state of this processor is not known"
#endif

void hth_fp_enter(hth_fp_scope *scope)
{
    scope->caller = get_state();
    scope->outer = outermost;
    if (!scope->outer) outermost = scope;
    set_state(standard);
}

void hth_fp_leave(hth_fp_scope *scope)
{
    if (!scope->outer) outermost = NULL;
    set_state(scope->caller);
}

void hth_fp_enter_callback(hth_fp_callback *callback)
{
    callback->within = outermost;
    if (!outermost) return;
    set_state(outermost->caller);
    outermost = NULL;
}

void hth_fp_leave_callback(hth_fp_callback *callback)
{
    if (!callback->within) return;
    outermost = callback->within;
    outermost->caller = get_state();
    set_state(standard);
}
