/* What can be promised of probes: they do the work that they are paid for, their counts
 * agree with each other, and medians are medians. Speeds themselves are no test. */
#include "measure/machine/limits.h"
#include "measure/machine/peaks.h"
#include "base/sample_stats.h"
#include "measure/op_count.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

TEST(medians_are_medians_and_samples_stay)
{
    double odd[] = {5, 1, 4, 4, 2}, even[] = {3, 9, 1, 5}, same[] = {7, 7, 7};
    hth_sample_stats s = hth_sample_stats_of(odd, 5);
    CHECK(s.median == 4 && s.min == 1 && s.max == 5);
    CHECK(odd[0] == 5 && odd[4] == 2);
    s = hth_sample_stats_of(even, 4);
    CHECK(s.median == 4 && s.min == 1 && s.max == 9);
    s = hth_sample_stats_of(same, 3);
    CHECK(s.median == 7 && s.min == 7 && s.max == 7);
    s = hth_sample_stats_of(even, 1);
    CHECK(s.median == 3 && s.min == 3 && s.max == 3);
    s = hth_sample_stats_of(NULL, 0);
    CHECK(s.median == 0 && s.min == 0 && s.max == 0);
}

TEST(every_loop_of_memory_reads_every_line)
{
    enum { SIZE = 3 << 20 };
    CLOSED(hth_pool) *pool = OPENED(hth_pool, 2);
    for (int loop = 0; loop < HTH_N_BANDWIDTH_LOOP; loop++) {
        hth_bandwidth_probe p;
        uint64_t expected = 0;
        CHECK_OK(hth_bandwidth_open(&p, SIZE + 5, err));
        CHECK_INT(p.size, SIZE);
        /* The sum is an exclusive or of a word of every line, unit by unit. */
        for (size_t unit = 0; unit < SIZE; unit += 1 << 20) {
            uint64_t sum = 0;
            for (size_t at = unit; at < unit + (1 << 20); at += 64) {
                uint64_t word = at * 0x9e3779b97f4a7c15u;
                memcpy(p.memory + at, &word, sizeof word);
                sum ^= word;
            }
            expected += sum;
        }
        CHECK(hth_bandwidth_pass(&p, (hth_bandwidth_loop)loop, pool) > 0.0);
        CHECK(p.sum == expected);
        CHECK(strlen(hth_bandwidth_name((hth_bandwidth_loop)loop)) > 3);
        CHECK(hth_bandwidth_measure(&p, pool) > 0.0);
        CHECK(p.sum == 4 * expected);
        hth_bandwidth_close(&p);
        CHECK(p.memory == NULL);
    }
}

TEST(the_chain_of_lines_goes_through_all_of_them)
{
    CLEANUP(hth_bandwidth_close) hth_bandwidth_probe region;
    hth_latency_probe p;
    CHECK_OK(hth_bandwidth_open(&region, 3 << 20, err));
    hth_latency_open(&p, &region);
    CHECK_INT(p.n_line, (2 << 20) / 64); /* the largest power of two that fits */
    uint32_t at = 0, n = 0;
    do {
        memcpy(&at, region.memory + (size_t)at * 64, sizeof at);
        n++;
    } while (at != 0 && at < p.n_line && n <= p.n_line);
    CHECK_INT(n, p.n_line);
    CHECK(hth_latency_measure(&p) > 0.0 && p.at < p.n_line);
}

TEST(every_level_has_a_peak_of_floats_and_every_wide_one_of_bytes)
{
    static const hth_cpu levels[] = {HTH_CPU_GENERIC, HTH_CPU_AVX2,    HTH_CPU_AVX512,
                                     HTH_CPU_NEON,    HTH_CPU_DOTPROD, HTH_CPU_I8MM};
    CLOSED(hth_pool) *pool = OPENED(hth_pool, 2);
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        hth_peak peaks[HTH_PEAK_MAX];
        if (!hth_cpu_has(hth_cpu_detect(), levels[l])) continue;
        size_t n = hth_peaks(levels[l], peaks), n_kind[HTH_N_PEAK_KIND] = {0};
        CHECK(n <= HTH_PEAK_MAX);
        for (size_t i = 0; i < n; i++) {
            n_kind[peaks[i].kind]++;
            CHECK(peaks[i].n_instruction > 0 && peaks[i].n_product > 0);
            peaks[i].run(0); /* must end */
            uint64_t n_round = hth_peak_rounds(&peaks[i]);
            CHECK(n_round >= 1000);
            CHECK(hth_peak_measure(&peaks[i], 1000, pool) > 0.0);
        }
        CHECK(n_kind[HTH_PEAK_F32] >= 1);
        CHECK((n_kind[HTH_PEAK_INT8] >= 1) == (levels[l] != HTH_CPU_GENERIC));
    }
    hth_peak_probe probe;
    double rate[HTH_N_PEAK_KIND];
    hth_peak_probe_open(&probe, HTH_CPU_GENERIC);
    hth_peak_probe_measure(&probe, pool, rate);
    CHECK(rate[HTH_PEAK_F32] > 0.0 && rate[HTH_PEAK_INT8] <= 0.0 && rate[HTH_PEAK_BF16] <= 0.0);
}

TEST(waiting_takes_time)
{
    hth_thread_latency h;
    CHECK_OK(hth_thread_latency_measure(&h, err));
    CHECK(h.spin > 0.0 && h.wake > 0.0);
    hth_pool *pool = OPENED(hth_pool, 3);
    CHECK(hth_pool_job_measure(pool) > 0.0);
    hth_pool_close(pool);
#if defined(__x86_64__) || defined(__aarch64__)
    CHECK(hth_clock_rate() > 1e7);
#endif
}

TEST(work_is_that_of_the_matrices)
{
    tiny_model m = tiny_new();
    CLEANUP(gguf_free) gguf_bytes file = tiny_take(&m);
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open_memory, hearth_model, file.data, file.n, "tiny", NULL);
    hth_op_count none = hth_op_count_prompt(model, 0), one = hth_op_count_prompt(model, 1),
             five = hth_op_count_prompt(model, 5);
    CHECK(none.int8 == 0 && none.f32 == 0);
    /* The head counts once: five tokens are one token and four times its layers. */
    uint64_t all = one.int8 + one.f32, layers = (five.int8 + five.f32 - all) / 4;
    hearth_model_info info = test_model_info(model);
    CHECK_INT(all - layers, (long long)info.n_vocab * info.d_model);
    CHECK_INT((five.int8 + five.f32 - all) % 4, 0);
    uint64_t row = hth_op_count_kv_bytes(model, HEARTH_KV_F16, 0);
    CHECK(row > 0 && hth_op_count_kv_bytes(model, HEARTH_KV_F16, 9) == 10 * row);
    CHECK(hth_op_count_kv_bytes(model, HEARTH_KV_F32, 9) == 20 * row);
}

/* Matrices of heads are slices too, and a token uses all of them. */
TEST(matrices_of_heads_count_whole)
{
    tiny_model m = tiny_new();
    tiny_become(&m, "deepseek2");
    uint64_t n = 0;
    for (uint32_t i = 0; i < m.n_tensor; i++) {
        const tiny_tensor *t = &m.tensors[i];
        if (t->gone || t->n_dim < 2 || strncmp(t->name, "blk.", 4) != 0) continue;
        n += t->dim[0] * t->dim[1] * (t->n_dim == 3 ? t->dim[2] : 1);
    }
    CLEANUP(gguf_free) gguf_bytes file = tiny_take(&m);
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open_memory, hearth_model, file.data, file.n, "tiny", NULL);
    if (!model) return;
    hth_op_count one = hth_op_count_prompt(model, 1), two = hth_op_count_prompt(model, 2);
    CHECK_INT(two.int8 + two.f32 - one.int8 - one.f32, n);
}
