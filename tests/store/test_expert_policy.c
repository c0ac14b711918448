/* The policy of experts' slots: an expert lies in one slot at most, a swap replaces what the last step did not use, and
 * equal calls give equal swaps. */
#include "base/alloc.h"
#include "store/expert_policy.h"
#include "support/test.h"

enum { MAX_EXPERT = 64, MAX_TOK = 5, MAX_USED = 6 };

typedef struct opened {
    hth_reuse reuse;
    hth_expert_policy p;
} opened;

static void open_policy(opened *o, hth_expert_policy_options options)
{
    *o = (opened){0};
    options.reuse = &o->reuse;
    CHECK_OK(hth_expert_policy_open(&o->p, &options, err));
}

static void close_policy(opened *o) { hth_expert_policy_close(&o->p); }

static void use_one(hth_expert_policy *p, uint32_t expert)
{
    CHECK_INT(p->n_used, 1);
    hth_expert_policy_step(p, &expert, 1);
}

/* Different experts for each token; low numbers more often. */
static void draw(test_random *random, uint32_t n_expert, uint32_t n_used, uint32_t n_tok, uint32_t *chosen)
{
    for (uint32_t t = 0; t < n_tok; t++) {
        bool taken[MAX_EXPERT] = {false};
        for (uint32_t n = 0; n < n_used;) {
            uint32_t e = test_random_below(random, 1 + test_random_below(random, n_expert));
            if (taken[e]) continue;
            taken[e] = true;
            chosen[t * n_used + n++] = e;
        }
    }
}

/* ---- what always holds ------------------------------------------------------------------------ */

static void check_slots(const hth_expert_policy *p)
{
    uint32_t n_place[MAX_EXPERT] = {0};
    for (uint32_t s = 0; s < p->n_slot; s++) {
        uint32_t e = p->expert_of[s], coming = p->loading[s];
        CHECK(e == HTH_NO_EXPERT || coming == HTH_NO_EXPERT);
        if (e != HTH_NO_EXPERT && CHECK(e < p->n_expert)) n_place[e]++, CHECK_INT(p->slot_of[e], s);
        if (coming != HTH_NO_EXPERT && CHECK(coming < p->n_expert)) n_place[coming]++;
    }
    for (uint32_t e = 0; e < p->n_expert; e++) {
        CHECK(n_place[e] <= 1);
        if (p->slot_of[e] == HTH_NO_EXPERT) continue;
        if (CHECK(p->slot_of[e] < p->n_slot)) CHECK_INT(p->expert_of[p->slot_of[e]], e);
    }
}

static void check_swap(const hth_expert_policy *p, const hth_expert_swap *swap, float min_gain, const bool *used)
{
    if (!CHECK(swap->expert < p->n_expert && swap->slot < p->n_slot)) return;
    uint32_t victim = p->expert_of[swap->slot];
    float loses = victim == HTH_NO_EXPERT ? 0.0f : hth_expert_policy_score(p, victim),
          more = p->uses[swap->expert] - (victim == HTH_NO_EXPERT ? 0.0f : p->uses[victim]);
    CHECK(used[swap->expert]);
    CHECK(victim == HTH_NO_EXPERT || !used[victim]);
    CHECK(p->slot_of[swap->expert] == HTH_NO_EXPERT && p->loading[swap->slot] == HTH_NO_EXPERT);
    for (uint32_t s = 0; s < p->n_slot; s++) CHECK(p->loading[s] != swap->expert);
    float score_gain = hth_expert_policy_score(p, swap->expert) - loses;
    CHECK(swap->gain > min_gain && (more > 0.0f ? swap->gain > score_gain : swap->gain == score_gain));
}

/* Random steps, swaps, ends and failures of uploads. The result sums up all swaps. */
static uint64_t run_randomly(opened *o, uint64_t seed)
{
    hth_expert_policy *p = &o->p;
    test_random random = {seed};
    uint64_t sum = 0;
    for (int i = 0; i < 400; i++) {
        uint32_t chosen[MAX_TOK * MAX_USED], n_tok = test_random_below(&random, MAX_TOK + 1);
        bool used[MAX_EXPERT] = {false};
        hth_expert_swap swap;
        draw(&random, p->n_expert, p->n_used, n_tok, chosen);
        hth_expert_policy_step(p, chosen, n_tok);
        for (uint32_t k = 0; k < n_tok * p->n_used; k++) used[chosen[k]] = true;
        float min_gain = (float)test_random_below(&random, 3) * 0.2f;
        for (uint32_t n = test_random_below(&random, 4); n > 0 && hth_expert_policy_choose(p, min_gain, &swap); n--) {
            check_swap(p, &swap, min_gain, used);
            hth_expert_policy_begin(p, &swap);
            check_slots(p);
            sum = sum * 31 + swap.expert * 7 + swap.slot;
        }
        for (uint32_t s = 0; s < p->n_slot; s++) {
            uint32_t what = test_random_below(&random, 8);
            if (p->loading[s] == HTH_NO_EXPERT || what > 4) continue;
            if (what == 0) hth_expert_policy_cancel(p, s);
            else hth_expert_policy_end(p, s);
            check_slots(p);
        }
    }
    return sum;
}

TEST(experts_lie_in_one_slot_and_what_the_last_step_used_stays)
{
    static const uint32_t n_slots[] = {0, 1, 2, 13, 24, 32, 33, 50};
    for (size_t i = 0; i < sizeof n_slots / sizeof *n_slots; i++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            opened o;
            const hth_expert_policy_options options = {
                .n_expert = 32, .n_used = 1 + (uint32_t)seed * 5 / 3, .n_slot = n_slots[i], .n_half_life = 16};
            open_policy(&o, options);
            check_slots(&o.p);
            uint64_t sum = run_randomly(&o, seed);
            CHECK((sum != 0) == (n_slots[i] > 0 && n_slots[i] < 32));
            close_policy(&o);
        }
}

TEST(equal_calls_give_equal_swaps)
{
    uint64_t sums[3];
    for (uint64_t i = 0; i < 3; i++) {
        opened o;
        open_policy(&o, (hth_expert_policy_options){.n_expert = 64, .n_used = 4, .n_slot = 20});
        sums[i] = run_randomly(&o, 5 + i / 2);
        close_policy(&o);
    }
    CHECK(sums[0] == sums[1] && sums[0] != sums[2]);
}

TEST(steps_and_swaps_allocate_nothing)
{
    opened o;
    open_policy(&o, (hth_expert_policy_options){.n_expert = 64, .n_used = 6, .n_slot = 20});
    uint64_t before = hth_alloc_count();
    run_randomly(&o, 1);
    CHECK_INT(hth_alloc_count(), before);
    close_policy(&o);
}

/* ---- which slots begin with what ------------------------------------------------------------------- */

TEST(slots_begin_with_the_first_experts_or_a_list)
{
    const uint32_t list[] = {7, HTH_NO_EXPERT, 0};
    opened o;
    open_policy(&o, (hth_expert_policy_options){.n_expert = 8, .n_used = 1, .n_slot = 3});
    for (uint32_t e = 0; e < 8; e++) CHECK_INT(o.p.slot_of[e], e < 3 ? e : HTH_NO_EXPERT);
    close_policy(&o);
    open_policy(&o, (hth_expert_policy_options){.n_expert = 8, .n_used = 1, .n_slot = 3, .resident = list});
    CHECK_BYTES(o.p.expert_of, list, sizeof list);
    CHECK_INT(o.p.slot_of[7], 0);
    CHECK_INT(o.p.slot_of[0], 2);
    check_slots(&o.p);
    close_policy(&o);
    open_policy(&o, (hth_expert_policy_options){.n_expert = 3, .n_used = 1, .n_slot = 5});
    CHECK(o.p.expert_of[2] == 2 && o.p.expert_of[3] == HTH_NO_EXPERT && o.p.expert_of[4] == HTH_NO_EXPERT);
    close_policy(&o);
}

TEST(memory_that_is_missing_is_an_error)
{
    opened o = {0};
    const hth_expert_policy_options options = {.n_expert = 8, .n_used = 1, .n_slot = 3, .reuse = &o.reuse};
    hth_alloc_fail_at(1, 0);
    CHECK_FAILS(hth_expert_policy_open(&o.p, &options, err), HEARTH_ERROR_MEMORY, "experts");
    hth_alloc_fail_at(0, 0);
    close_policy(&o);
}

/* ---- uses that follow ------------------------------------------------------------------------------ */

/* Uses of an item that is used again at once with probability sticky, and else, as good as never; the mean number of
 * those that follow a use, counted. */
static double count_followers(hth_reuse *r, double sticky)
{
    test_random random = {2};
    double n_follow = 0.0;
    enum { N_RUN = 20000 };
    *r = (hth_reuse){0};
    for (int i = 0; i < N_RUN; i++) {
        hth_reuse_add(r, 0.0f, UINT32_MAX, 0.0f);
        for (; test_random_between(&random, 0.0, 1.0) < sticky; n_follow++) hth_reuse_add(r, 0.0f, 1, 0.0f);
        if (i % 100 == 0) hth_reuse_advance(r);
    }
    hth_reuse_advance(r);
    return n_follow / N_RUN;
}

TEST(a_use_is_followed_by_as_many_as_repeat_it)
{
    for (int i = 0; i < 9; i++) {
        hth_reuse r;
        double n_follow = count_followers(&r, i * 0.1), extra = (double)hth_reuse_extra(&r, 1);
        CHECK(fabs(extra - n_follow) < 0.02 + 0.05 * n_follow);
        CHECK(hth_reuse_extra(&r, 2) == 0.0f && hth_reuse_extra(&r, 17) == 0.0f);
        CHECK(hth_reuse_extra(&r, UINT32_MAX) == 0.0f && hth_reuse_extra(&r, 0) == hth_reuse_extra(&r, 1));
    }
    hth_reuse always;
    count_followers(&always, 0.99);
    CHECK(hth_reuse_extra(&always, 1) > 14.0f && hth_reuse_extra(&always, 1) <= 16.0f);
}

/* ---- scores --------------------------------------------------------------------------------------- */

TEST(older_uses_count_half_after_the_half_life)
{
    opened o;
    open_policy(&o, (hth_expert_policy_options){.n_expert = 64, .n_used = 1, .n_slot = 8});
    use_one(&o.p, 1);
    for (uint32_t i = 0; i < 127; i++) use_one(&o.p, 10 + i % 40);
    use_one(&o.p, 2);
    for (uint32_t i = 0; i < 30; i++) use_one(&o.p, 10 + i % 40); /* no gain for a use a few tokens ago */
    CHECK(fabsf(hth_expert_policy_score(&o.p, 2) / hth_expert_policy_score(&o.p, 1) - 2.0f) < 1e-3f);
    CHECK_INT(hth_expert_policy_score(&o.p, 60) == 0.0f, 1);
    close_policy(&o);
}

/* The weights of uses grow beyond every float in that time, and are scaled down. */
TEST(scores_are_uses_of_two_tokens_after_any_number_of_tokens)
{
    opened o;
    test_random random = {1};
    double sum = 0.0;
    open_policy(&o, (hth_expert_policy_options){.n_expert = 32, .n_used = 3, .n_slot = 8, .n_half_life = 32});
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t chosen[3];
        draw(&random, 32, 3, 1, chosen);
        hth_expert_policy_step(&o.p, chosen, 1);
    }
    for (uint32_t e = 0; e < 32; e++) {
        float score = hth_expert_policy_score(&o.p, e);
        CHECK(score >= 0.0f && score <= 2.3f);
        sum += (double)score;
    }
    CHECK(fabs(sum - 2.0 * 3.0) < 0.6);
    close_policy(&o);
}

TEST(tokens_of_a_step_count_like_tokens_of_several_steps)
{
    opened one, several;
    test_random random = {3};
    const hth_expert_policy_options options = {.n_expert = 40, .n_used = 4, .n_slot = 16};
    open_policy(&one, options);
    open_policy(&several, options);
    for (int i = 0; i < 100; i++) {
        uint32_t chosen[5 * 4];
        draw(&random, 40, 4, 5, chosen);
        hth_expert_policy_step(&several.p, chosen, 5);
        for (uint32_t t = 0; t < 5; t++) hth_expert_policy_step(&one.p, chosen + t * 4, 1);
    }
    for (uint32_t e = 0; e < 40; e++)
        CHECK(hth_expert_policy_score(&one.p, e) == hth_expert_policy_score(&several.p, e));
    close_policy(&one);
    close_policy(&several);
}

/* Expert 0 has half of all tokens, in turn with the others. Expert 5 is used by one token at the end. It is worth more
 * than expert 0 only where experts are used by several tokens in a row. */
static bool recent_is_worth_more(uint32_t run)
{
    opened o;
    open_policy(&o, (hth_expert_policy_options){.n_expert = 64, .n_used = 1, .n_slot = 8});
    for (uint32_t i = 0; i < 600; i++) use_one(&o.p, i / run % 2 ? 0 : 6 + i / run % 50);
    use_one(&o.p, 5);
    bool result = hth_expert_policy_score(&o.p, 5) > hth_expert_policy_score(&o.p, 0);
    close_policy(&o);
    return result;
}

TEST(recent_uses_count_as_much_as_they_turned_out_to)
{
    CHECK(!recent_is_worth_more(1));
    CHECK(recent_is_worth_more(8));
}

/* ---- swaps ---------------------------------------------------------------------------------------- */

TEST(swaps_fill_empty_slots_first)
{
    const uint32_t list[] = {0, HTH_NO_EXPERT, 1, HTH_NO_EXPERT};
    opened o;
    hth_expert_swap swap;
    open_policy(&o, (hth_expert_policy_options){.n_expert = 8, .n_used = 2, .n_slot = 4, .resident = list});
    CHECK(!hth_expert_policy_choose(&o.p, 0.0f, &swap));
    hth_expert_policy_step(&o.p, (uint32_t[]){4, 6}, 1);
    CHECK(hth_expert_policy_choose(&o.p, 0.0f, &swap));
    CHECK_INT(swap.expert, 4);
    CHECK_INT(swap.slot, 3);
    CHECK(!hth_expert_policy_choose(&o.p, swap.gain, &swap));
    hth_expert_policy_begin(&o.p, &swap);
    CHECK_INT(o.p.loading[3], 4);
    CHECK_INT(o.p.slot_of[4], HTH_NO_EXPERT);
    CHECK(hth_expert_policy_choose(&o.p, 0.0f, &swap));
    CHECK_INT(swap.expert, 6);
    CHECK_INT(swap.slot, 1);
    hth_expert_policy_end(&o.p, 3);
    CHECK_INT(o.p.slot_of[4], 3);
    close_policy(&o);
}

TEST(of_equal_slots_the_last_is_replaced)
{
    opened o;
    hth_expert_swap swap;
    open_policy(&o, (hth_expert_policy_options){.n_expert = 8, .n_used = 1, .n_slot = 4});
    use_one(&o.p, 7);
    CHECK(hth_expert_policy_choose(&o.p, 0.0f, &swap));
    CHECK_INT(swap.expert, 7);
    CHECK_INT(swap.slot, 3);
    hth_expert_policy_begin(&o.p, &swap);
    CHECK_INT(o.p.slot_of[3], HTH_NO_EXPERT);
    CHECK(!hth_expert_policy_choose(&o.p, 0.0f, &swap));
    hth_expert_policy_cancel(&o.p, 3);
    CHECK(hth_expert_policy_choose(&o.p, 0.0f, &swap));
    CHECK_INT(swap.slot, 3);
    close_policy(&o);
}
