/* A store gives the bytes of the items that were asked for, whatever was evicted, by however many threads, in any
 * order; it keeps what is of use; failures concern the items that have them. */
#include "base/alloc.h"
#include "store/disks.h"
#include "store/store.h"

#include <pthread.h>
#include <sys/mman.h>

enum { N_ITEM = 300, N_GROUP = 3, ITEM_SIZE = 12000 };

/* Items of three extents each, of two sizes. */
static void make_items(hth_store_item items[N_ITEM])
{
    for (uint32_t i = 0; i < N_ITEM; i++) {
        items[i] = (hth_store_item){.n_extent = 3, .i_group = i % N_GROUP};
        for (uint32_t k = 0; k < 3; k++) {
            uint64_t size = i % 5 == 0 ? ITEM_SIZE / 3 : ITEM_SIZE / 6;
            items[i].extents[k] = (hth_extent){0, (uint64_t)i * ITEM_SIZE + k * (ITEM_SIZE / 3), size};
        }
    }
}

typedef struct opened {
    int fd;
    hth_reader *reader;
    hth_store *store;
    hth_store_item items[N_ITEM];
} opened;

/* share of the memory of all items; 0: the least. */
static bool open_store(opened *o, disk_kind kind, const hth_disk_faults *faults, hth_store_options options,
                       double share)
{
    uint64_t least, all = 0;
    o->fd = open(disk_file(), O_RDONLY);
    o->reader = open_reader(kind, false, o->fd, faults);
    if (!o->reader) {
        close(o->fd);
        return false;
    }
    CHECK(hth_store_min_memory(o->items, N_ITEM, &least));
    for (uint32_t i = 0; i < N_ITEM; i++) {
        size_t size;
        CHECK(hth_reader_buffer_size(o->items[i].extents, 3, &size));
        all += size;
    }
    options.items = o->items, options.n_item = N_ITEM, options.n_group = N_GROUP, options.reader = o->reader;
    options.memory = share == 0.0 ? least : (uint64_t)((double)all * share);
    CHECK_OK(hth_store_open(&options, &o->store, err));
    return o->store != NULL;
}

static void close_store(opened *o)
{
    hth_store_close(o->store);
    hth_reader_close(o->reader);
    close(o->fd);
}

static void check_view(const opened *o, const hth_store_view *view)
{
    for (uint32_t k = 0; k < 3; k++) {
        const hth_extent *e = &o->items[view->i_item].extents[k];
        if (bytes_are(view->data[k], e->offset, e->size)) continue;
        test_fail(__FILE__, __LINE__, "item %u, extent %u: other bytes than in the file", view->i_item, k);
    }
}

/* Asks for n items, takes and gives back each. */
static void use_items(opened *o, const uint32_t *wanted, size_t n)
{
    uint32_t items[N_ITEM];
    memcpy(items, wanted, n * sizeof *items);
    hth_store_request(o->store, items, n);
    while (n > 0) {
        hth_store_view view;
        CHECK_OK(hth_store_acquire(o->store, items, &n, true, &view, err));
        check_view(o, &view);
        hth_store_release(o->store, view.i_item);
    }
}

static void use_one(opened *o, uint32_t i_item) { use_items(o, &i_item, 1); }

static hth_store_counters sum_counters(opened *o)
{
    hth_store_counters sum = {0};
    for (uint32_t i = 0; i < N_GROUP; i++) {
        hth_store_counters c = hth_store_get_counters(o->store, i);
        sum.n_hit += c.n_hit, sum.n_miss += c.n_miss, sum.read_size += c.read_size;
        sum.n_guess += c.n_guess, sum.n_guess_used += c.n_guess_used;
    }
    return sum;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

typedef struct user {
    opened *o;
    uint64_t seed;
} user;

/* Steps that ask for some items, take several at a time where they are there, and guess, as a model does. */
static void *run_user(void *arg)
{
    const user *u = arg;
    test_random random = {u->seed};
    for (int step = 0; step < 60; step++) {
        uint32_t items[16], held[16];
        size_t n = 1 + test_random_below(&random, 16), n_held = 0;
        for (size_t i = 0; i < n; i++) items[i] = test_random_below(&random, N_ITEM);
        hth_store_request(u->o->store, items, n);
        if (step % 3 == 0) {
            uint32_t guesses[8];
            for (int i = 0; i < 8; i++) guesses[i] = test_random_below(&random, N_ITEM);
            hth_store_prefetch(u->o->store, guesses, 8);
        }
        if (step % 10 == 9) {
            hth_store_cancel(u->o->store, items, n);
            continue;
        }
        while (n > 0) {
            hth_store_view view;
            size_t before = n;
            CHECK_OK(hth_store_acquire(u->o->store, items, &n, n_held == 0, &view, err));
            if (n < before) check_view(u->o, &view), held[n_held++] = view.i_item;
            for (; (n == before || n == 0) && n_held > 0; n_held--) hth_store_release(u->o->store, held[n_held - 1]);
        }
        hth_store_advance(u->o->store, 1);
    }
    return NULL;
}

/* Three users, and a thread that changes the store beside them. */
static void run_users_beside(void *(*change)(void *), opened *o, uint64_t seed)
{
    pthread_t threads[4];
    user users[3];
    pthread_create(&threads[3], NULL, change, o);
    for (uint64_t i = 0; i < 3; i++) {
        users[i] = (user){o, seed + i};
        pthread_create(&threads[i], NULL, run_user, &users[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

TEST(stores_give_the_bytes_of_items_to_several_threads)
{
    for (disk_kind kind = 0; kind < N_DISK_KIND; kind++)
        for (int share = 0; share < 3; share++)
            for (hth_disk_order order = 0; order <= HTH_ORDER_SINGLE; order++) {
                opened o = {0};
                hth_disk_faults faults = {.order = order};
                pthread_t threads[3];
                user users[3];
                make_items(o.items);
                for (uint32_t i = 0; i < N_ITEM; i++)
                    o.items[i].residence = i % 7 == 0   ? HTH_STORE_PINNED
                                           : i % 7 == 3 ? HTH_STORE_STREAMED
                                                        : HTH_STORE_CACHED;
                if (!open_store(&o, kind, &faults, (hth_store_options){0}, share * 0.5)) continue;
                for (int i = 0; i < 3; i++) {
                    users[i] = (user){&o, (uint64_t)(share * 3 + i)};
                    pthread_create(&threads[i], NULL, run_user, &users[i]);
                }
                for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
                close_store(&o);
            }
}

TEST(a_store_that_closes_while_it_reads_waits)
{
    for (int i = 0; i < 20; i++) {
        opened o = {0};
        hth_disk_faults faults = {.delay_ns = 200000};
        uint32_t items[40];
        make_items(o.items);
        open_store(&o, DISK_PREAD, &faults, (hth_store_options){0}, 0.5);
        for (uint32_t k = 0; k < 40; k++) items[k] = k * 7;
        hth_store_request(o.store, items, 40);
        hth_store_cancel(o.store, items, 40);
        hth_store_prefetch(o.store, items, 40);
        close_store(&o);
    }
}

/* ---- what stays ------------------------------------------------------------------------------- */

TEST(what_is_in_memory_is_not_read_again)
{
    opened o = {0};
    make_items(o.items);
    open_store(&o, DISK_PREAD, NULL, (hth_store_options){0}, 1.2);
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t i = 0; i < N_ITEM; i++) use_one(&o, i);
    hth_store_counters c = sum_counters(&o);
    CHECK_INT(c.n_miss, N_ITEM);
    CHECK_INT(c.n_hit, 2 * N_ITEM);
    CHECK_INT(hth_store_n_slot(o.store), N_ITEM);
    close_store(&o);
}

/* What was in memory comes first, then the others in the order in which they were asked for and read. */
TEST(items_are_taken_in_the_order_of_their_arrival)
{
    enum { N = 60 };
    opened o = {0};
    uint32_t items[N];
    const hth_disk_faults faults = {.order = HTH_ORDER_SINGLE};
    make_items(o.items);
    open_store(&o, DISK_PREAD_ONE, &faults, (hth_store_options){0}, 1.2);
    for (uint32_t i = 20; i < 40; i++) use_one(&o, i);
    for (uint32_t i = 0; i < N; i++) items[i] = i;
    hth_store_request(o.store, items, N);
    for (int i = 0; i < 5000 && hth_reader_get_stats(o.reader).n_read < 3 * N; i++) usleep(1000);
    for (size_t n = N; n > 0;) {
        hth_store_view view;
        uint32_t i_take = N - (uint32_t)n;
        CHECK_OK(hth_store_acquire(o.store, items, &n, true, &view, err));
        if (i_take < 20) CHECK(view.i_item >= 20 && view.i_item < 40);
        else CHECK_INT(view.i_item, i_take < 40 ? i_take - 20 : i_take);
        hth_store_release(o.store, view.i_item);
    }
    close_store(&o);
}

/* A scan over everything between uses of a few items. */
TEST(a_scan_does_not_evict_what_is_used_often)
{
    opened o = {0};
    make_items(o.items);
    for (uint32_t i = 0; i < N_ITEM; i++) o.items[i].extents[0].size = o.items[i].extents[1].size; /* one size */
    open_store(&o, DISK_PREAD, NULL, (hth_store_options){0}, 0.3);
    for (int round = 0; round < 20; round++)
        for (uint32_t i = 0; i < 30; i++) use_one(&o, i);
    for (uint32_t i = 0; i < N_ITEM; i++) use_one(&o, i);
    uint64_t before = sum_counters(&o).n_miss;
    for (uint32_t i = 0; i < 30; i++) use_one(&o, i);
    CHECK_INT(sum_counters(&o).n_miss, before);
    close_store(&o);
}

TEST(what_was_used_often_long_ago_gives_way)
{
    opened o = {0};
    make_items(o.items);
    open_store(&o, DISK_PREAD, NULL, (hth_store_options){.n_half_life = 16}, 0.3);
    for (int round = 0; round < 50; round++)
        for (uint32_t i = 0; i < 60; i++) use_one(&o, i);
    hth_store_advance(o.store, 16000); /* keys are scaled on the way */
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 100; i < 160; i++) use_one(&o, i);
    uint64_t before = sum_counters(&o).n_miss;
    for (uint32_t i = 100; i < 160; i++) use_one(&o, i);
    CHECK_INT(sum_counters(&o).n_miss, before);
    close_store(&o);
}

/* 10 % too large costs 10 %: what does not fit is streamed, and the rest stays. */
TEST(pinned_items_stay_and_streamed_ones_are_read_ahead)
{
    opened o = {0};
    uint32_t order[N_ITEM], n_streamed = 0;
    make_items(o.items);
    for (uint32_t i = 0; i < N_ITEM; i++) {
        o.items[i].residence = i % 10 == 9 ? HTH_STORE_STREAMED : HTH_STORE_PINNED;
        order[i] = i, n_streamed += i % 10 == 9;
    }
    open_store(&o, DISK_PREAD, NULL, (hth_store_options){0}, 0.0);
    CHECK(hth_store_n_slot(o.store) < N_ITEM - n_streamed / 3);
    for (int pass = 0; pass < 4; pass++) use_items(&o, order, N_ITEM);
    hth_store_counters c = sum_counters(&o);
    CHECK(c.read_size <= 4u * n_streamed * ITEM_SIZE + (N_ITEM - n_streamed) * (uint64_t)ITEM_SIZE);
    CHECK(c.n_miss >= 3u * n_streamed);
    close_store(&o);
}

/* Skewed choices: the n-th item is chosen 1 / (n + 8) as often as the first. Misses of each policy, and the least
 * possible ones (Belady 1966: evict what is needed last). */
enum { N_USE = 8000 };

static uint64_t belady(const uint32_t *uses, uint32_t max_slot)
{
    uint32_t *next = malloc(N_USE * sizeof *next), last[N_ITEM], slots[N_ITEM], until[N_ITEM], n_slot = 0;
    uint64_t n_miss = 0;
    for (uint32_t i = 0; i < N_ITEM; i++) last[i] = UINT32_MAX;
    for (uint32_t i = N_USE; i-- > 0;) next[i] = last[uses[i]], last[uses[i]] = i;
    for (uint32_t i = 0; i < N_USE; i++) {
        uint32_t k = 0, furthest = 0;
        while (k < n_slot && slots[k] != uses[i]) k++;
        if (k == n_slot) {
            n_miss++;
            for (uint32_t j = 1; j < n_slot; j++) furthest = until[j] > until[furthest] ? j : furthest;
            if (n_slot < max_slot) k = n_slot++;
            else k = furthest;
        }
        slots[k] = uses[i], until[k] = next[i];
    }
    free(next);
    return n_miss;
}

static uint64_t misses_of(hth_store_policy policy, const uint32_t *uses, uint32_t *n_slot)
{
    opened o = {0};
    make_items(o.items);
    for (uint32_t i = 0; i < N_ITEM; i++) o.items[i].extents[0].size = o.items[i].extents[1].size, o.items[i].i_group = 0;
    for (uint32_t i = 0; i < N_ITEM; i++) o.items[i].weight = policy == HTH_STORE_STATIC ? (float)(N_ITEM - i) : 0.0f;
    open_store(&o, DISK_SIMULATED, NULL, (hth_store_options){.policy = policy, .n_half_life = 1000}, 0.2);
    *n_slot = hth_store_n_slot(o.store);
    for (uint32_t i = 0; i < N_USE; i++) {
        use_one(&o, uses[i]);
        hth_store_advance(o.store, 1);
    }
    uint64_t n_miss = sum_counters(&o).n_miss;
    close_store(&o);
    return n_miss;
}

/* Draws uses by frequency; with a probability one of the last few again. */
static void draw_uses(uint32_t *uses, double sticky)
{
    test_random random = {17};
    double sums[N_ITEM + 1] = {0};
    for (uint32_t i = 0; i < N_ITEM; i++) sums[i + 1] = sums[i] + 1.0 / (i + 8);
    for (uint32_t i = 0; i < N_USE; i++) {
        double at = (double)(test_random_next(&random) >> 11) / 9007199254740992.0 * sums[N_ITEM];
        uint32_t before = 1 + test_random_below(&random, 6);
        bool again = test_random_below(&random, 1000) < sticky * 1000.0;
        uses[i] = again && before <= i ? uses[i - before] : 0;
        while (!(again && before <= i) && uses[i] + 1 < N_ITEM && sums[uses[i] + 1] < at) uses[i]++;
    }
}

TEST(the_learned_order_misses_less_than_recency_and_frequency)
{
    static uint32_t uses[N_USE];
    for (int k = 0; k <= 4; k += 4) {
        uint32_t n_slot;
        draw_uses(uses, k / 10.0);
        uint64_t learned = misses_of(HTH_STORE_LEARNED, uses, &n_slot), lru = misses_of(HTH_STORE_LRU, uses, &n_slot),
                 fixed = misses_of(HTH_STORE_STATIC, uses, &n_slot), least = belady(uses, n_slot);
        test_note("misses of %d uses, sticky 0.%d: learned %llu, LRU %llu, static %llu, Belady %llu", N_USE, k,
                  (unsigned long long)learned, (unsigned long long)lru, (unsigned long long)fixed,
                  (unsigned long long)least);
        CHECK(learned < lru);
        CHECK(least < fixed && least < learned);
        CHECK(learned < fixed + fixed / 20); /* the static one knows the frequencies */
        if (k >= 4) CHECK(learned < fixed - fixed / 20);
    }
}

/* ---- guesses -------------------------------------------------------------------------------------- */

TEST(guesses_are_there_when_they_are_needed)
{
    opened o = {0};
    uint32_t items[10];
    make_items(o.items);
    open_store(&o, DISK_PREAD, NULL, (hth_store_options){0}, 0.5);
    for (uint32_t i = 0; i < 10; i++) items[i] = i * 9;
    hth_store_prefetch(o.store, items, 10);
    for (int i = 0; i < 500 && sum_counters(&o).n_guess < 10; i++) usleep(1000);
    use_items(&o, items, 10);
    hth_store_counters c = sum_counters(&o);
    CHECK_INT(c.n_guess, 10);
    CHECK_INT(c.n_guess_used, 10);
    CHECK_INT(c.n_hit, 10);
    CHECK_INT(c.n_miss, 0);
    for (uint32_t i = 0; i < 10; i++) items[i] = i * 9;
    use_items(&o, items, 10);
    CHECK_INT(sum_counters(&o).n_guess_used, 10); /* no guesses any more */
    close_store(&o);
}

TEST(guesses_that_were_wrong_are_not_read_on)
{
    opened o = {0};
    enum { N = 16 };
    uint32_t items[N];
    hth_disk_faults faults = {.delay_ns = 20000000}; /* eight reads at once, three for an item */
    make_items(o.items);
    open_store(&o, DISK_PREAD, &faults, (hth_store_options){0}, 0.5);
    for (uint32_t i = 0; i < N; i++) items[i] = 100 + i;
    hth_store_prefetch(o.store, items, N);
    usleep(5000);
    hth_store_prefetch(o.store, items, 1); /* the first is read on */
    CHECK_INT(sum_counters(&o).n_guess, N - 1);
    use_one(&o, 3);
    for (int i = 0; i < 500 && sum_counters(&o).n_guess < N; i++) usleep(1000);
    hth_store_counters c = sum_counters(&o);
    CHECK_INT(c.n_guess, N);
    CHECK_INT(c.n_guess_used, 0);
    CHECK(c.read_size <= 5 * ITEM_SIZE);
    use_items(&o, items, N);
    close_store(&o);
}

/* Waits until guesses were read and no other one has been for 20 ms; returns how many were. */
static uint64_t await_guesses(opened *o)
{
    uint64_t n = 0;
    for (int still = 0, i = 0; still < 20 && i < 5000; i++) {
        uint64_t now = sum_counters(o).n_guess;
        still = now > 0 && now == n ? still + 1 : 0;
        n = now;
        usleep(1000);
    }
    return n;
}

TEST(guesses_do_not_evict_what_was_just_used)
{
    opened o = {0};
    uint32_t items[N_ITEM];
    make_items(o.items);
    for (uint32_t i = 0; i < N_ITEM; i++) o.items[i].extents[0].size = o.items[i].extents[1].size, items[i] = i;
    open_store(&o, DISK_PREAD, NULL, (hth_store_options){0}, 0.3);
    for (uint32_t i = 0; i < 30; i++) use_one(&o, i);
    hth_store_prefetch(o.store, items + 100, 200);
    CHECK(await_guesses(&o) > 0);
    uint64_t before = sum_counters(&o).n_miss;
    for (uint32_t i = 0; i < 30; i++) use_one(&o, i);
    CHECK_INT(sum_counters(&o).n_miss, before);
    close_store(&o);
}

/* ---- other memory ---------------------------------------------------------------------------------- */

static uint64_t least_memory(const opened *o)
{
    uint64_t least = 0;
    CHECK(hth_store_min_memory(o->items, N_ITEM, &least));
    return least;
}

/* Guesses that were pinned, and are not any more, before anything used them. */
TEST(guesses_that_were_pinned_can_be_evicted)
{
    opened o = {0};
    make_items(o.items);
    for (uint32_t i = 0; i < N_ITEM; i++) o.items[i].residence = HTH_STORE_STREAMED;
    open_store(&o, DISK_PREAD, NULL, (hth_store_options){.pins = true}, 1.0);
    uint64_t all = hth_store_max_memory(o.store);
    for (uint32_t k = 0; k < 3; k++) {
        hth_store_set_memory(o.store, least_memory(&o));
        hth_store_prefetch_next(o.store, 7 * k, 5);
        usleep(20000);
        hth_store_set_memory(o.store, all);
    }
    hth_store_set_memory(o.store, least_memory(&o));
    for (uint32_t i = 100; i < 130; i++) use_one(&o, i);
    close_store(&o);
}

/* Changes the memory, and waits until what is being read has given way too. */
static void set_memory(opened *o, uint64_t memory)
{
    hth_store_set_memory(o->store, memory);
    for (int i = 0; i < 1000 && hth_store_memory(o->store) > memory; i++) usleep(1000);
    CHECK(hth_store_memory(o->store) <= memory);
}

/* Uses all items; returns the largest and least address of their bytes. */
static void use_all(opened *o, const uint8_t **first, const uint8_t **end)
{
    *first = NULL, *end = NULL;
    for (uint32_t i = 0; i < N_ITEM; i++) {
        uint32_t item = i;
        size_t n = 1;
        hth_store_view view;
        hth_store_request(o->store, &item, 1);
        CHECK_OK(hth_store_acquire(o->store, &item, &n, true, &view, err));
        check_view(o, &view);
        for (int k = 0; k < 3; k++) {
            if (!*first || view.data[k] < *first) *first = view.data[k];
            if (view.data[k] + o->items[i].extents[k].size > *end) *end = view.data[k] + o->items[i].extents[k].size;
        }
        hth_store_release(o->store, i);
    }
}

/* Bytes between two addresses that are in memory. */
static size_t resident(const uint8_t *first, const uint8_t *end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    uintptr_t from = (uintptr_t)first / page * page;
    size_t n_page = ((uintptr_t)end - from + page - 1) / page;
    unsigned char *in = malloc(n_page);
    CHECK(mincore((void *)from, n_page * page, in) == 0);
    for (size_t i = 0; i < n_page; i++) n += (in[i] & 1) * page;
    free(in);
    return n;
}

TEST(a_store_gives_memory_back_and_takes_it_again)
{
    opened o = {0};
    const uint8_t *first, *end;
    make_items(o.items);
    if (!open_store(&o, DISK_PREAD, NULL, (hth_store_options){0}, 1.2)) return;
    use_all(&o, &first, &end);
    uint64_t all = hth_store_memory(o.store), least = least_memory(&o);
    size_t before = resident(first, end);
    CHECK(before >= all / 10 * 9);
    hth_store_set_memory(o.store, all / 4);
    CHECK(hth_store_memory(o.store) <= all / 4 && hth_store_memory(o.store) > all / 5);
    size_t after = resident(first, end);
    CHECK(after <= before - (all - all / 4) + (64 << 10)); /* slots that had no item yet were not in memory */
    hth_store_set_memory(o.store, 0); /* the least remains */
    CHECK_INT(hth_store_memory(o.store), least);
    use_all(&o, &first, &end);
    CHECK_INT(hth_store_memory(o.store), least);
    hth_store_set_memory(o.store, UINT64_MAX); /* what it was opened with is the most */
    CHECK_INT(hth_store_memory(o.store), all);
    use_all(&o, &first, &end);
    uint64_t n_miss = sum_counters(&o).n_miss;
    use_all(&o, &first, &end);
    CHECK_INT(sum_counters(&o).n_miss, n_miss);
    close_store(&o);
}

TEST(what_is_used_most_stays_when_memory_goes)
{
    opened o = {0};
    make_items(o.items);
    if (!open_store(&o, DISK_PREAD, NULL, (hth_store_options){0}, 1.2)) return;
    for (uint32_t i = 0; i < N_ITEM; i++) use_one(&o, i);
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 3; i < N_ITEM; i += 10) use_one(&o, i);
    hth_store_set_memory(o.store, hth_store_memory(o.store) / 5);
    uint64_t n_miss = sum_counters(&o).n_miss;
    for (uint32_t i = 3; i < N_ITEM; i += 10) use_one(&o, i);
    CHECK_INT(sum_counters(&o).n_miss, n_miss);
    for (uint32_t i = 0; i < N_ITEM; i++) use_one(&o, i);
    CHECK(sum_counters(&o).n_miss > n_miss + N_ITEM / 2);
    close_store(&o);
}

TEST(what_is_in_use_goes_when_it_is_given_back)
{
    enum { N_HELD = 200 };
    opened o = {0};
    uint32_t items[N_HELD];
    hth_store_view views[N_HELD];
    size_t n = N_HELD;
    make_items(o.items);
    if (!open_store(&o, DISK_PREAD, NULL, (hth_store_options){0}, 1.2)) return;
    for (uint32_t i = 0; i < N_HELD; i++) items[i] = i;
    hth_store_request(o.store, items, N_HELD);
    while (n > 0) {
        size_t k = N_HELD - n;
        CHECK_OK(hth_store_acquire(o.store, items, &n, true, &views[k], err));
    }
    hth_store_set_memory(o.store, 0);
    CHECK(hth_store_memory(o.store) > N_HELD * (uint64_t)(ITEM_SIZE / 2));
    for (uint32_t i = 0; i < N_HELD; i++) check_view(&o, &views[i]);
    for (uint32_t i = 0; i < N_HELD; i++) hth_store_release(o.store, views[i].i_item);
    CHECK_INT(hth_store_memory(o.store), least_memory(&o));
    close_store(&o);
}

/* Bytes that a pass over all items reads, in order, and ahead of it. */
static uint64_t read_pass(opened *o)
{
    uint64_t before = sum_counters(o).read_size;
    for (uint32_t i = 0; i < N_ITEM; i++) {
        hth_store_prefetch_next(o->store, i + 1, 8);
        use_one(o, i);
    }
    return sum_counters(o).read_size - before;
}

TEST(pinned_items_give_way_and_come_back)
{
    opened o = {0};
    make_items(o.items);
    for (uint32_t i = 0; i < N_ITEM; i++) o.items[i].residence = HTH_STORE_STREAMED;
    if (!open_store(&o, DISK_PREAD, NULL, (hth_store_options){.pins = true}, 0.8)) return;
    uint64_t all = hth_store_memory(o.store), bytes = 0;
    for (uint32_t i = 0; i < N_ITEM; i++)
        for (int k = 0; k < 3; k++) bytes += o.items[i].extents[k].size;
    read_pass(&o);
    uint64_t with_all = read_pass(&o);
    CHECK(with_all > bytes / 10 && with_all < bytes / 2);
    set_memory(&o, all / 2);
    uint64_t with_half = read_pass(&o);
    CHECK(with_half > bytes / 2 && with_half < bytes);
    set_memory(&o, least_memory(&o));
    CHECK(read_pass(&o) >= bytes / 20 * 19);
    hth_store_set_memory(o.store, all);
    read_pass(&o);
    uint64_t again = read_pass(&o);
    CHECK(again <= with_all + bytes / 20 && again >= with_all - bytes / 20); /* guesses may be read twice */
    close_store(&o);
}

static void *change_memory(void *arg)
{
    opened *o = arg;
    test_random random = {5};
    uint64_t all = hth_store_memory(o->store);
    for (int i = 0; i < 300; i++) {
        hth_store_set_memory(o->store, test_random_below(&random, (uint32_t)all));
        usleep(200);
    }
    return NULL;
}

TEST(bytes_are_right_while_memory_changes)
{
    for (disk_kind kind = DISK_URING; kind <= DISK_PREAD; kind++)
        for (int pins = 0; pins < 2; pins++) {
            opened o = {0};
            make_items(o.items);
            for (uint32_t i = 0; i < N_ITEM; i++)
                o.items[i].residence = i % 7 == 0 ? HTH_STORE_PINNED : i % 2 ? HTH_STORE_STREAMED : HTH_STORE_CACHED;
            if (!open_store(&o, kind, NULL, (hth_store_options){.pins = pins == 1}, 0.8)) continue;
            run_users_beside(change_memory, &o, (uint64_t)pins * 3);
            set_memory(&o, least_memory(&o));
            close_store(&o);
        }
}

/* ---- items elsewhere ------------------------------------------------------------------------------------ */

/* Every third item, or none. */
static void move_items(opened *o, bool elsewhere, uint64_t memory)
{
    uint8_t is[N_ITEM];
    for (uint32_t i = 0; i < N_ITEM; i++) is[i] = elsewhere && i % 3 == 0;
    hth_store_move(o->store, is, memory);
}

static uint64_t size_of_buffers(const opened *o, bool with_elsewhere)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < N_ITEM; i++) {
        size_t size;
        if (CHECK(hth_reader_buffer_size(o->items[i].extents, 3, &size)) && (with_elsewhere || i % 3 > 0)) all += size;
    }
    return all;
}

/* What is elsewhere takes no memory; when it comes back there is some for it, also more than the store was opened with,
 * and it can be asked for at any time. */
TEST(items_elsewhere_have_no_memory_until_they_come_back)
{
    for (hth_store_residence kind = HTH_STORE_CACHED; kind <= HTH_STORE_STREAMED; kind += 2) {
        uint32_t here[N_ITEM], all[N_ITEM], n = 0;
        opened o = {0};
        make_items(o.items);
        for (uint32_t i = 0; i < N_ITEM; i++) {
            o.items[i].residence = kind, o.items[i].on_device = i % 3 == 0, all[i] = i;
            if (i % 3 > 0) here[n++] = i;
        }
        if (!open_store(&o, DISK_SIMULATED, NULL, (hth_store_options){.pins = true}, 1.0)) return;
        uint64_t size = hth_store_memory(o.store), least = least_memory(&o);
        CHECK(size >= size_of_buffers(&o, false) && size <= size_of_buffers(&o, false) + least);
        CHECK_INT(size, hth_store_max_memory(o.store));
        for (int k = 0; k < 3; k++) use_items(&o, here, n);
        CHECK_INT(sum_counters(&o).n_miss, n); /* all stay, and nothing else is read */
        CHECK_INT(sum_counters(&o).n_guess, 0);
        use_items(&o, all, N_ITEM);
        move_items(&o, false, size_of_buffers(&o, true) / 16 * 17); /* slots are as large as the largest item */
        CHECK(hth_store_memory(o.store) > size);
        for (int k = 0; k < 2; k++) use_items(&o, all, N_ITEM);
        uint64_t n_miss = sum_counters(&o).n_miss;
        use_items(&o, all, N_ITEM);
        CHECK_INT(sum_counters(&o).n_miss, n_miss); /* all stay */
        move_items(&o, true, size + 4 * ITEM_SIZE); /* each class rounds down */
        CHECK(hth_store_memory(o.store) <= size && hth_store_touched(o.store) <= size);
        use_items(&o, here, n);
        CHECK_INT(sum_counters(&o).n_miss, n_miss);
        move_items(&o, false, least);
        CHECK(hth_store_memory(o.store) <= least);
        use_items(&o, all, N_ITEM);
        close_store(&o);
    }
}

static void *move_to_and_fro(void *arg)
{
    opened *o = arg;
    test_random random = {5};
    uint64_t least = least_memory(o), all = size_of_buffers(o, true);
    for (int i = 0; i < 60; i++) {
        uint8_t is[N_ITEM];
        for (uint32_t k = 0; k < N_ITEM; k++) is[k] = test_random_below(&random, 3) == 0;
        hth_store_move(o->store, is, least + test_random_below(&random, (uint32_t)(all - least)));
        usleep(300);
    }
    return NULL;
}

TEST(bytes_are_right_while_items_come_and_go)
{
    for (int pins = 0; pins < 2; pins++) {
        opened o = {0};
        make_items(o.items);
        for (uint32_t i = 0; i < N_ITEM; i++)
            o.items[i].residence = i % 2 ? HTH_STORE_STREAMED : HTH_STORE_CACHED, o.items[i].on_device = i % 3 == 0;
        if (!open_store(&o, DISK_PREAD, NULL, (hth_store_options){.pins = pins == 1}, 0.5)) return;
        run_users_beside(move_to_and_fro, &o, (uint64_t)pins * 3);
        close_store(&o);
    }
}

/* An item that is copied to a device stays as long as it is held, then it is the first to be evicted, however often it was
 * used. It may be asked for all the same, and stays again once it has left the device. */
TEST(an_item_on_a_device_is_evicted_first)
{
    enum { ITEM = 7 };
    uint32_t all[N_ITEM], n = 0; /* the others of its size */
    size_t size, its_size;
    hth_store_view view;
    opened o = {0};
    make_items(o.items);
    CHECK(hth_reader_buffer_size(o.items[ITEM].extents, 3, &its_size));
    for (uint32_t i = 0; i < N_ITEM; i++)
        if (i != ITEM && CHECK(hth_reader_buffer_size(o.items[i].extents, 3, &size)) && size == its_size) all[n++] = i;
    if (!open_store(&o, DISK_SIMULATED, NULL, (hth_store_options){0}, 0.5)) return;
    CHECK(!hth_store_take_if_ready(o.store, ITEM, &view));
    CHECK_INT(sum_counters(&o).n_hit + sum_counters(&o).n_miss, 0);
    for (int i = 0; i < 50; i++) use_one(&o, ITEM), hth_store_advance(o.store, 1);
    if (!CHECK(hth_store_take_if_ready(o.store, ITEM, &view))) return;
    hth_store_set_on_device(o.store, ITEM, true);
    use_items(&o, all, n);
    check_view(&o, &view); /* while it is held, it stays */
    CHECK(hth_store_take_if_ready(o.store, ITEM, &view));
    for (int i = 0; i < 2; i++) hth_store_release(o.store, ITEM);
    uint64_t n_miss = sum_counters(&o).n_miss;
    for (uint32_t i = 0; i < n && sum_counters(&o).n_miss == n_miss; i++) use_one(&o, all[i]);
    CHECK(!hth_store_take_if_ready(o.store, ITEM, &view)); /* the first that was read took its slot */
    use_one(&o, ITEM);
    hth_store_set_on_device(o.store, ITEM, false);
    for (uint32_t i = 0; i < n / 4; i++) use_one(&o, all[i]);
    CHECK(hth_store_take_if_ready(o.store, ITEM, &view)); /* it is worth more than what was used once or twice */
    hth_store_release(o.store, ITEM);
    close_store(&o);
}

/* Copies items that are in memory, and lets them come to a device and leave it. */
static void *copy_to_and_fro(void *arg)
{
    opened *o = arg;
    test_random random = {5};
    for (int i = 0; i < 2000; i++) {
        uint32_t i_item = test_random_below(&random, N_ITEM);
        hth_store_view view;
        if (hth_store_take_if_ready(o->store, i_item, &view)) {
            hth_store_set_on_device(o->store, i_item, true);
            check_view(o, &view);
            hth_store_release(o->store, i_item);
        } else hth_store_set_on_device(o->store, i_item, false);
        if (i % 100 == 0) hth_store_set_memory(o->store, least_memory(o) + test_random_below(&random, N_ITEM * ITEM_SIZE / 4));
        if (i % 8 == 0) usleep(100);
    }
    return NULL;
}

TEST(bytes_are_right_while_items_are_copied_to_a_device)
{
    opened o = {0};
    make_items(o.items);
    if (!open_store(&o, DISK_PREAD, NULL, (hth_store_options){0}, 0.5)) return;
    run_users_beside(copy_to_and_fro, &o, 3);
    close_store(&o);
}

/* ---- failures --------------------------------------------------------------------------------------- */

TEST(an_item_that_cannot_be_read_is_an_error_of_that_item)
{
    opened o = {0};
    uint32_t items[3] = {5, 6, 7};
    size_t n = 3, n_failed = 0;
    hth_disk_faults faults = {.first = 1, .n = UINT64_MAX, .fault = HTH_FAULT_ERROR, .error = EIO};
    make_items(o.items);
    open_store(&o, DISK_SIMULATED, &faults, (hth_store_options){0}, 0.5);
    hth_store_request(o.store, items, 3);
    while (n > 0) {
        hth_store_view view;
        CHECK_FAILS(hth_store_acquire(o.store, items, &n, true, &view, err), HEARTH_ERROR_IO,
                    "store.bin: cannot read at byte ");
        n_failed++;
    }
    CHECK_INT(n_failed, 3);
    hth_disk_set_faults(faulty_disk, &(hth_disk_faults){0}); /* it has recovered */
    for (uint32_t i = 0; i < 20; i++) use_one(&o, i);
    close_store(&o);
}

/* Two sessions need an item that failed: the one that asks again gets it read again, and both have it. */
TEST(an_item_that_failed_is_read_again_while_another_session_waits)
{
    opened o = {0};
    uint32_t first[1] = {5}, second[1] = {5};
    size_t n_first = 1, n_second = 1;
    hth_store_view view;
    hth_disk_faults faults = {.first = 1, .n = UINT64_MAX, .fault = HTH_FAULT_ERROR, .error = EIO};
    make_items(o.items);
    if (!open_store(&o, DISK_SIMULATED, &faults, (hth_store_options){0}, 0.5)) return;
    hth_store_request(o.store, first, 1);
    hth_store_request(o.store, second, 1);
    CHECK_FAILS(hth_store_acquire(o.store, first, &n_first, true, &view, err), HEARTH_ERROR_IO, "cannot read at byte ");
    hth_disk_set_faults(faulty_disk, &(hth_disk_faults){0}); /* it has recovered */
    first[0] = 5, n_first = 1;
    hth_store_request(o.store, first, 1);
    CHECK_OK(hth_store_acquire(o.store, second, &n_second, true, &view, err));
    CHECK_OK(hth_store_acquire(o.store, first, &n_first, true, &view, err));
    CHECK(n_first == 0 && n_second == 0);
    for (int i = 0; i < 2; i++) hth_store_release(o.store, 5);
    close_store(&o);
}

TEST(a_guess_that_fails_is_no_error)
{
    opened o = {0};
    hth_disk_faults faults = {.first = 1, .n = 1, .fault = HTH_FAULT_ERROR, .error = ENODEV, .delay_ns = 20000000};
    make_items(o.items);
    if (!open_store(&o, DISK_PREAD, &faults, (hth_store_options){0}, 0.5)) return;
    hth_store_prefetch(o.store, &(uint32_t){7}, 1);
    use_one(&o, 7); /* while the guess is read */
    CHECK_INT(hth_disk_n_fault(faulty_disk), 1);
    close_store(&o);
}

static volatile int cancel_flag;

/* hth_store_acquire counts a wait and begins it under the lock that hth_store_get_counters takes. */
static void *cancel_a_wait(void *store)
{
    while (hth_store_get_counters(store, 0).n_stall == 0) usleep(1000);
    __atomic_store_n(&cancel_flag, 1, __ATOMIC_RELAXED);
    return NULL;
}

TEST(a_wait_ends_when_it_is_cancelled)
{
    opened o = {0};
    uint32_t items[1] = {3};
    size_t n = 1;
    hth_disk_faults faults = {.delay_ns = 300000000};
    hth_store_view view;
    pthread_t thread;
    make_items(o.items);
    cancel_flag = 0;
    if (!open_store(&o, DISK_PREAD, &faults, (hth_store_options){.cancel = &cancel_flag}, 0.5)) return;
    hth_store_request(o.store, items, 1);
    pthread_create(&thread, NULL, cancel_a_wait, o.store);
    CHECK_FAILS(hth_store_acquire(o.store, items, &n, true, &view, err), HEARTH_ERROR_CANCELLED, "cancelled");
    pthread_join(thread, NULL);
    CHECK(hth_store_get_counters(o.store, 0).stall_ns > 0);
    CHECK_INT(n, 1);
    hth_store_cancel(o.store, items, 1);
    close_store(&o);
}

/* Reads that cannot start leave the queue, but for those that the disk has refused once: MAX_DEPTH of reader.c. */
TEST(what_was_dropped_is_not_read)
{
    opened o = {0};
    uint32_t items[100];
    hth_disk_faults faults = {.first = 1, .n = UINT64_MAX, .fault = HTH_FAULT_FULL};
    make_items(o.items);
    if (!open_store(&o, DISK_PREAD, &faults, (hth_store_options){0}, 1.2)) return;
    for (uint32_t i = 0; i < 100; i++) items[i] = i;
    hth_store_request(o.store, items, 100);
    hth_store_cancel(o.store, items, 60);
    hth_store_request(o.store, items, 20); /* perhaps before the reader has seen that they were dropped */
    hth_store_cancel(o.store, items + 60, 40);
    hth_disk_set_faults(faulty_disk, &(hth_disk_faults){0});
    for (size_t n = 20; n > 0;) {
        hth_store_view view;
        CHECK_OK(hth_store_acquire(o.store, items, &n, true, &view, err));
        check_view(&o, &view);
        hth_store_release(o.store, view.i_item);
    }
    CHECK(hth_reader_get_stats(o.reader).n_read <= 32 + 20 * 3);
    close_store(&o);
}

TEST(too_little_memory_is_refused_with_the_least)
{
    opened o = {0};
    uint64_t least;
    make_items(o.items);
    hth_reader *reader = open_reader(DISK_PREAD, false, open(disk_file(), O_RDONLY), NULL);
    CHECK(hth_store_min_memory(o.items, N_ITEM, &least));
    hth_store_options options = {
        .items = o.items, .n_item = N_ITEM, .n_group = N_GROUP, .memory = least - 1, .reader = reader};
    CHECK_FAILS(hth_store_open(&options, &o.store, err), HEARTH_ERROR_ARGUMENT, "the least is ");
    o.items[0].extents[0] = (hth_extent){0, 0, UINT64_MAX};
    CHECK(!hth_store_min_memory(o.items, N_ITEM, &least));
    CHECK_FAILS(hth_store_open(&options, &o.store, err), HEARTH_ERROR_ARGUMENT, "do not fit into an integer");
    hth_reader_close(reader);
}

TEST(every_failed_allocation_is_an_error)
{
    opened o = {0};
    make_items(o.items);
    o.fd = open(disk_file(), O_RDONLY);
    for (uint64_t n = 1;; n++) {
        hth_disk *disk;
        hth_reader_file file = {o.fd, disk_file()};
        hearth_error err = {0};
        o.store = NULL, o.reader = NULL;
        hth_alloc_fail_at(n, 0);
        hearth_status st = hth_disk_open_pread(2, &disk, &err);
        if (st == HEARTH_OK) st = hth_reader_open(&(hth_reader_options){.files = &file, .n_file = 1, .disk = disk}, &o.reader, &err);
        hth_store_options options = {
            .items = o.items, .n_item = N_ITEM, .n_group = N_GROUP, .memory = 1 << 20, .reader = o.reader};
        if (st == HEARTH_OK) st = hth_store_open(&options, &o.store, &err);
        hth_alloc_fail_at(0, 0);
        hth_store_close(o.store);
        hth_reader_close(o.reader);
        if (st == HEARTH_OK) {
            CHECK(n > 8);
            break;
        }
        CHECK_INT(st, HEARTH_ERROR_MEMORY);
    }
    close(o.fd);
}
