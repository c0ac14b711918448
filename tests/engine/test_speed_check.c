/* Runs whose speed is not what a plan expected: their calibration is measured again, within limits. Seconds of steps
 * are given, or expected by a calibration that is far from any machine. */
#include "engine/engine.h"
#include "forward/gpu/gpu_int.h"
#include "support/device/hybrid.h"
#include "support/models/made_up.h"
#include "support/test.h"

enum { N_THREAD = 2, N_CTX = 64 };
static const uint64_t DEVICE = 77; /* a fingerprint */

static char lines[8][1000];
static int n_line;

static void record(void *user, hearth_log_level level, const char *line)
{
    (void)user;
    if (level == HEARTH_LOG_INFO && strstr(line, "measured again") && n_line < 8)
        snprintf(lines[n_line++], sizeof lines[0], "%s", line);
}

/* 1 s behind nothing, 2 s behind half of 100 positions, 4 s behind all. */
static hth_speed_check open_check(void)
{
    return (hth_speed_check){.seconds = {1.0, 2.0, 4.0}, .n_position = 100, .type = HTH_TYPE_Q4_0, .n_device = 1,
                             .devices = {{.name = "a card", .fingerprint = DEVICE}}};
}

static bool is_near(double a, double b) { return a > b * (1 - 1e-12) && a < b * (1 + 1e-12); }

TEST(steps_are_compared_with_what_is_expected_behind_their_context)
{
    hth_speed_check c = open_check();
    hth_speed_window w = {.n = 0};
    CHECK(is_near(hth_speed_check_expected(&c, 0), 1.0) && is_near(hth_speed_check_expected(&c, 25), 1.5));
    CHECK(is_near(hth_speed_check_expected(&c, 50), 2.0) && is_near(hth_speed_check_expected(&c, 75), 3.0));
    for (uint32_t i = 0; i < HTH_SPEED_WINDOW; i++) {
        CHECK(c.ratio == 0.0); /* too few */
        hth_speed_check_add(&c, &w, 3 * i, 2.0 * hth_speed_check_expected(&c, 3 * i) * (i % 4 == 0 ? 9.0 : 1.0));
    }
    CHECK(is_near(c.ratio, 0.5)); /* each fourth was late, which the median does not see */
    hth_speed_check_add(&c, &w, 100, 1.0);
    CHECK_INT(w.n, 0); /* nothing is expected behind more positions than were planned */
}

/* Adds a window of so many times the expected speed. */
static void run_at(hth_speed_check *c, double speed)
{
    hth_speed_window w = {.n = 0};
    for (uint32_t i = 0; i < HTH_SPEED_WINDOW; i++)
        hth_speed_check_add(c, &w, i, hth_speed_check_expected(c, i) / speed);
}

TEST(the_window_nearest_to_the_plan_counts)
{
    hth_speed_check c = open_check();
    run_at(&c, 0.25);
    run_at(&c, 3.0);
    CHECK(is_near(c.ratio, 3.0));
    run_at(&c, 0.9);
    run_at(&c, 0.2);
    CHECK(is_near(c.ratio, 0.9));
}

TEST(steps_beside_others_are_not_compared)
{
    hth_speed_check c = open_check();
    hth_speed_window w = {.n = 0};
    hth_speed_step first = hth_speed_begin(&c), second = hth_speed_begin(&c);
    hth_speed_end(&c, &second, &w, 0); /* began within another */
    hth_speed_end(&c, &first, &w, 0);  /* another began and ended within it */
    CHECK_INT(w.n, 0);
    hth_speed_step third = hth_speed_begin(&c);
    hth_speed_end(&c, &third, NULL, 0); /* a prompt */
    CHECK_INT(w.n, 0);
    hth_speed_step alone = hth_speed_begin(&c);
    hth_speed_end(&c, &alone, &w, 0);
    CHECK_INT(w.n, 1);
}

/* Whether a run at that speed marks the calibration that is cached. */
static bool doubts(double speed)
{
    hth_speed_check c = open_check();
    hth_calibration kept;
    n_line = 0;
    hearth_log_set(record, NULL);
    run_at(&c, speed);
    hth_speed_check_report(&c);
    hearth_log_set(NULL, NULL);
    bool found = hth_calibration_cache_load(DEVICE, HTH_TYPE_Q4_0, 0, &kept) && kept.is_doubted;
    CHECK_INT(n_line > 0, found && is_near(kept.doubt_ratio, speed));
    return n_line > 0;
}

/* As a plan does that measures again. */
static void measure_again(void)
{
    hth_calibration c;
    if (!CHECK(hth_calibration_cache_load(DEVICE, HTH_TYPE_Q4_0, 0, &c) && c.is_doubted)) return;
    c.is_doubted = false;
    hth_calibration_cache_store(DEVICE, &c);
}

TEST(a_calibration_is_doubted_once_for_each_side_that_it_is_off_to)
{
    char cache[512];
    made_up_cache_open(cache);
    CHECK(!doubts(0.1)); /* none is cached */
    hth_calibration c = made_up_gpu(HTH_TYPE_Q4_0, 5.0), other = made_up_gpu(HTH_TYPE_Q8_0, 5.0);
    hth_calibration_cache_store(DEVICE, &c);
    hth_calibration_cache_store(DEVICE, &other);
    CHECK(!doubts(0.76) && !doubts(1.24));
    CHECK(doubts(0.74));
    CHECK(strstr(lines[0], "a card: by its calibration with Q4_0 the plan expected 0.50 tokens/s") &&
          strstr(lines[0], "measured were 0.37 (-26 %)"));
    CHECK(hth_calibration_cache_load(DEVICE, HTH_TYPE_Q8_0, 0, &other) && !other.is_doubted);
    hth_speed_check late = open_check(); /* of another program, which closes its model behind that */
    run_at(&late, 0.1);
    hth_speed_check_report(&late);
    CHECK(hth_calibration_cache_load(DEVICE, HTH_TYPE_Q4_0, 0, &c) && c.n_doubt == 1 && is_near(c.doubt_ratio, 0.74));
    measure_again();
    CHECK(hth_calibration_cache_load(DEVICE, HTH_TYPE_Q4_0, 0, &c));
    hth_speed_check same = open_check(); /* measuring again did not help */
    run_at(&same, 0.3);
    hth_speed_check_report(&same);
    CHECK(hth_calibration_cache_load(DEVICE, HTH_TYPE_Q4_0, 0, &c) && !c.is_doubted);
    CHECK(doubts(2.0)); /* it was measured while the machine was busy */
    measure_again();
    for (int i = 0; i < 4; i++) {
        hth_speed_check more = open_check(); /* busy again, idle again */
        run_at(&more, i % 2 == 0 ? 0.5 : 2.0);
        hth_speed_check_report(&more);
    }
    CHECK(hth_calibration_cache_load(DEVICE, HTH_TYPE_Q4_0, 0, &c) && !c.is_doubted && c.n_doubt == 2);
    made_up_cache_close(cache);
}

/* ---- a model ---------------------------------------------------------------------------------------------- */

static uint64_t fingerprint_of(const char *name, const hth_kernels *kernels)
{
    const hth_device_spec spec = {.name = name, .shader_refs = hth_shader_ref_table};
    CLOSED(hth_device) *d = OPENED(hth_device, &spec);
    return d ? hth_calibration_fingerprint(hth_device_get_info(d), kernels, N_THREAD) : 0;
}

/* Generates n tokens one by one. Returns what was expected per token. */
static double generate(const char *path, const char *device, const char *placement, uint64_t vram, uint32_t n)
{
    const hearth_session_options so = {.n_ctx = N_CTX, .n_batch = 8, .n_thread = N_THREAD};
    const hearth_model_options o = {
        .n_thread = N_THREAD, .selector = HEARTH_SELECTOR_GATE,
        .gpu = {.device = device, .vram = vram, .n_ctx = N_CTX, .n_batch = 8, .placement = placement}};
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, &o);
    CLOSED(hearth_session) *s = NULL; /* closed before its model */
    if (model) CHECK_OK(hearth_session_open(model, &so, &s, err));
    for (uint32_t i = 0; s && i < n; i++) CHECK_OK(hearth_session_eval(s, &(int32_t){1 + (int32_t)i % 200}, 1, err));
    return s ? model->gpu_seconds : 0.0;
}

static bool is_doubted(uint64_t fingerprint)
{
    hth_calibration c;
    return CHECK(hth_calibration_cache_load(fingerprint, HTH_TYPE_Q4_0, 0, &c)) && c.is_doubted;
}

/* A calibration with all rates times `faster`, as if it was measured on another machine. */
static void calibrate_as(uint64_t fingerprint, double faster)
{
    hth_calibration c = made_up_gpu(HTH_TYPE_Q4_0, 50.0);
    c.cpu_rate = (hth_sample_stats){1e9 * faster, 1e9 * faster, 1e9 * faster};
    c.device_rate = (hth_sample_stats){50e9 * faster, 50e9 * faster, 50e9 * faster};
    for (int i = 0; i < HTH_PLAN_N_KNOT; i++) c.cpu_down[i] = 1e9 * faster;
    hth_calibration_cache_store(fingerprint, &c);
}

typedef struct packed {
    char path[512], cache[512];
    hth_kernels kernels;
    uint64_t null, vram; /* the fingerprint of the null device; memory that divides layers */
} packed;

static bool open_packed(packed *p)
{
    hth_cpu level;
    *p = (packed){.vram = 2500000};
    snprintf(p->path, sizeof p->path, "%s", test_scratch("packed.gguf"));
    made_up_cache_open(p->cache);
    if (!hybrid_pack_storyteller("q4_0", p->path)) return false;
    CHECK_OK(hth_cpu_choose(NULL, &level, err));
    hth_kernels_init(&p->kernels, level);
    p->null = fingerprint_of("null", &p->kernels);
    return p->null != 0;
}

static void close_packed(const packed *p)
{
    remove(p->path);
    made_up_cache_close(p->cache);
}

TEST(a_run_that_is_slower_than_planned_has_its_machine_measured_again_before_the_next_plan)
{
    CLEANUP(close_packed) packed p;
    hth_calibration c;
    if (!open_packed(&p)) return;
    calibrate_as(p.null, 1e3);
    double first = generate(p.path, "null", "plan", p.vram, HTH_SPEED_WINDOW - 1);
    CHECK(first > 0.0 && !is_doubted(p.null)); /* too few tokens */
    CHECK(generate(p.path, "null", "plan", p.vram, HTH_SPEED_WINDOW) == first); /* the placement that was kept */
    CHECK(is_doubted(p.null));
    double second = generate(p.path, "null", "plan", p.vram, 1);
    CHECK(second != first); /* neither the calibration nor the placement is taken again */
    CHECK(hth_calibration_cache_load(p.null, HTH_TYPE_Q4_0, 0, &c) && !c.is_doubted);
    CHECK(c.cpu_rate.median < 1e12 && c.measured_at > 0 && c.n_doubt == 1);
}

TEST(a_run_that_is_faster_than_planned_has_its_machine_measured_again)
{
    CLEANUP(close_packed) packed p;
    if (!open_packed(&p)) return;
    calibrate_as(p.null, 1e-6);
    CHECK(generate(p.path, "null", "plan", p.vram, HTH_SPEED_WINDOW) > 1.0);
    CHECK(is_doubted(p.null));
}

TEST(runs_without_a_plan_of_their_machine_doubt_nothing)
{
    CLEANUP(close_packed) packed p;
    if (!open_packed(&p)) return;
    calibrate_as(p.null, 1e3);
    CHECK(generate(p.path, "null", "even", p.vram, 2 * HTH_SPEED_WINDOW) == 0.0);
    CHECK(!is_doubted(p.null));
    hth_placement placement = {.n_layer = 2, .n_hot = (uint32_t[]){256, 256}, .seconds = 1e-9};
    const char *file = test_scratch("file.placement.gguf");
    if (!hybrid_write_placement(p.path, "null", &placement, file)) return;
    CHECK(generate(p.path, "null", file, p.vram, N_CTX) == 1e-9); /* of a plan that may be another machine's */
    CHECK(!is_doubted(p.null));
    const char *sim = "sim:" HEARTH_SOURCE_DIR "/bench/devices/story.sim";
    uint64_t simulated = fingerprint_of(sim, &p.kernels);
    calibrate_as(simulated, 1e3);
    CHECK(generate(p.path, sim, "plan", p.vram, N_CTX) > 0.0); /* its clock is its own */
    CHECK(!is_doubted(simulated));
    remove(file);
}
