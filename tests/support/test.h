/* Test cases named after what they prove, checks that print both values, and skips with a reason. The main of main.c
 * runs all cases of a program (or those whose names contain argv[1]) and exits with 0, 1, or 77 if all were skipped.
 * Includes the headers of libc that most tests use; tests are compiled with _GNU_SOURCE.
 *
 *     TEST(reader_refuses_empty_file) { CHECK_INT(n, 0); }
 */
#ifndef HEARTH_TESTS_SUPPORT_TEST_H
#define HEARTH_TESTS_SUPPORT_TEST_H

#include <hearth/experimental.h>
#include <hearth/hearth.h>

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct test_case {
    const char *name, *file;
    void (*run)(void);
    struct test_case *next;
} test_case;

void test_register(test_case *c);
int test_run_all(int argc, char **argv);

/* Called before and after each case, if they are set: make and free what the cases of a program share. False: the case
 * does not run; it is skipped or has failed. */
extern bool (*test_before_each)(void);
extern void (*test_after_each)(void);

/* A case fails when memory of the library is in use after it that was not before; not one that calls this. */
void test_keeps_memory(void);

/* A failed check is counted and printed; the case goes on. */
bool test_check(bool ok, const char *file, int line, const char *text);
bool test_check_int(long long a, long long b, const char *file, int line, const char *text);
bool test_check_text(const char *a, const char *b, const char *file, int line, const char *text);
bool test_check_failure(int status, int expected, const char *message, const char *words, const char *file, int line,
                        const char *text);
bool test_check_bytes(const void *a, const void *b, size_t n, const char *file, int line, const char *text);
/* Marks the running case as skipped, with the reason; return after it. */
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints what of a case this machine does not show, where the rest of it was proved. */
void test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Fails the running case with a message. */
void test_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Records the warnings of the library, from none, until test_log_stop. */
void test_log_start(void);
void test_log_stop(void);
/* The number of those recorded that contain this text, and the last of them ("": there is none). */
int test_n_warning(const char *text);
const char *test_warning(const char *text);

/* Whether $HEARTH_LONG asks for every combination rather than a sample. */
bool test_is_long(void);
/* Whether this program has a sanitizer. */
bool test_is_sanitized(void);

/* Whether a driver (hth_device_info.driver) is known to lose subnormals, as Vulkan allows: lavapipe of Mesa 26, not of 22
 * to 25; SwiftShader, for which $HEARTH_GPU_FLUSHES is set. Its results are not the CPU's, and it does not promise them. */
bool test_driver_flushes(const char *driver);

/* Failed checks of the running case so far. */
int test_n_failed(void);

/* Path of a file or folder of test data: below tests/data, which the repository holds, or build/data, which
 * tests/data/make.py makes as a part of the build. NULL, and the case fails, when it is in neither. */
const char *test_data(const char *relative);
/* A path for a scratch file or folder of this process, valid until the case ends; it is then removed. */
const char *test_scratch(const char *name);
/* The same until the program ends. */
const char *test_program_scratch(const char *name);
/* The whole file (freed with free), or NULL; a NUL follows. */
char *test_read_file(const char *path, size_t *n);
/* False when it could not be written. */
bool test_write_file(const char *path, const void *data, size_t n);

/* What frees a variable at the end of its block:
 *     CLEANUP(close_inputs) inputs in;               calls close_inputs(&in)
 *     CLOSED(hearth_model) *model = NULL;            calls hearth_model_close(model)
 *     FREED char *text = test_read_file(path, &n);   calls free(text) */
#define CLEANUP(F) __attribute__((cleanup(F)))
#define CLOSED(T) CLEANUP(T##_close_at) T
#define FREED CLEANUP(test_free_at)
static inline void test_free_at(void *p) { free(*(void **)p); }
#define TEST_CLOSED(T)                                                                                       \
    typedef struct T T;                                                                                      \
    void T##_close(T *);                                                                                     \
    static inline void T##_close_at(T **p) { T##_close(*p); }
TEST_CLOSED(hearth_model)
TEST_CLOSED(hearth_detokenizer)
TEST_CLOSED(hearth_session)
TEST_CLOSED(hearth_batch)
TEST_CLOSED(hearth_embedder)
TEST_CLOSED(hearth_chat)
TEST_CLOSED(hearth_sampler)
TEST_CLOSED(hearth_constraint)
TEST_CLOSED(hearth_scheduler)
TEST_CLOSED(hth_act_trace)
TEST_CLOSED(hth_route_trace)
TEST_CLOSED(hth_expert_trace)
TEST_CLOSED(hth_device)
TEST_CLOSED(hth_gguf)
TEST_CLOSED(hth_gguf_writer)
TEST_CLOSED(hth_model)
TEST_CLOSED(hth_placement_builder)
TEST_CLOSED(hth_pool)
TEST_CLOSED(hth_pretokenizer)
TEST_CLOSED(hth_profile)
TEST_CLOSED(hth_spill)
TEST_CLOSED(hth_template)
TEST_CLOSED(hth_tokenizer)
TEST_CLOSED(hth_trainer)

static inline hearth_model_info test_model_info(const hearth_model *model)
{
    hearth_model_info info = {0};
    hearth_model_get_info(model, &info);
    return info;
}

/* Whether more steps follow. */
static inline bool test_step(hearth_scheduler *scheduler)
{
    bool more;
    (void)hearth_scheduler_step(scheduler, &more, NULL);
    return more;
}

static inline hearth_draft_stats test_draft_stats(const hearth_session *session)
{
    hearth_draft_stats stats = {0};
    (void)hearth_session_get_draft_stats(session, &stats);
    return stats;
}

static inline hearth_scheduler_stats test_scheduler_stats(const hearth_scheduler *scheduler)
{
    hearth_scheduler_stats stats = {0};
    (void)hearth_scheduler_get_stats(scheduler, &stats);
    return stats;
}

/* Options with which many tokens may be drawn. */
static inline hearth_sampler_options test_sampler_options(void)
{
    return (hearth_sampler_options){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
}

/* Deterministic random numbers: splitmix64. */
typedef struct test_random {
    uint64_t state;
} test_random;
uint64_t test_random_next(test_random *r);
uint32_t test_random_below(test_random *r, uint32_t n);
/* Uniform in [-1, 1). */
float test_random_float(test_random *r);
/* Uniform in [from, to]. */
static inline double test_random_between(test_random *r, double from, double to)
{
    return from + (to - from) * (double)test_random_next(r) * 0x1p-64;
}

#define TEST(NAME) TEST_IF(true, NAME)
/* A case that takes long with a sanitizer, and with which it sees little that other cases do not show it: most of the time
 * is a driver's. With one, $HEARTH_LONG alone has it. */
#define TEST_LONG_IF_SANITIZED(NAME) TEST_IF(!test_is_sanitized() || test_is_long(), NAME)
/* A case of builds in which the condition holds; others do not have it. */
#define TEST_IF(CONDITION, NAME)                                                                             \
    static void NAME(void);                                                                                  \
    __attribute__((constructor)) static void register_##NAME(void)                                           \
    {                                                                                                        \
        static test_case c = {#NAME, __FILE__, NAME, NULL};                                                  \
        if (CONDITION) test_register(&c);                                                                    \
    }                                                                                                        \
    static void NAME(void)

#define CHECK(X) test_check((X), __FILE__, __LINE__, #X)
#define CHECK_INT(A, B) test_check_int((long long)(A), (long long)(B), __FILE__, __LINE__, #A " == " #B)
#define CHECK_TEXT(A, B) test_check_text((A), (B), __FILE__, __LINE__, #A " == " #B)
#define CHECK_BYTES(A, B, N) test_check_bytes((A), (B), (N), __FILE__, __LINE__, #A " == " #B)
/* A call with `err` as its error that must fail with this status and a message that contains each of the WORDS
 * (separated by '|'). */
#define CHECK_FAILS(CALL, STATUS, WORDS)                                                                     \
    do {                                                                                                     \
        hearth_error err_ = {0}, *err = &err_;                                                               \
        int status_ = (int)(CALL);                                                                           \
        test_check_failure(status_, (int)(STATUS), err_.message, WORDS, __FILE__, __LINE__, #CALL);                 \
    } while (0)
/* A call that must succeed; the error's line is printed when it does not. */
#define CHECK_OK(CALL)                                                                                       \
    do {                                                                                                     \
        hearth_error err_ = {0};                                                                             \
        hearth_error *err = &err_;                                                                           \
        if ((CALL) != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s: %s", #CALL, err_.message);               \
    } while (0)
/* What T_open(..., T **, hearth_error *), or another function like it, opens; NULL after a failed check. */
#define OPENED(T, ...) OPENED_BY(T##_open, T, __VA_ARGS__)
#define OPENED_BY(F, T, ...)                                                                                 \
    __extension__({                                                                                          \
        T *opened_ = NULL;                                                                                   \
        CHECK_OK(F(__VA_ARGS__, &opened_, err));                                                             \
        opened_;                                                                                             \
    })

#endif
