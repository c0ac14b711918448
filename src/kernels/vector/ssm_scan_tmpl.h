/* The recurrence of selective state spaces (hth_ssm_scan_fn), with the full registers of an ISA level. vector_tmpl.h
 * includes it behind activate_tmpl.h. Every channel is a chain of its own, and several tokens at once only keep a state
 * in a register, so neither changes a bit. */

enum { SCAN_TOKENS = 4 };

/* A token at the channels of a register. */
typedef struct scan_token {
    wide x, u, delta, decay, y;
} scan_token;

HTH_INLINE scan_token scan_begin(const hth_ssm_scan *job, bool by_channel, size_t t, size_t at, size_t n)
{
    const float *delta = job->delta + t * job->delta_stride;
    scan_token s = {.x = wide_load(job->x + t * job->x_stride + at, n), .y = wide_set(0.0f)};
    s.delta = by_channel ? wide_load(delta + at, n) : wide_set(*delta);
    s.decay = by_channel ? s.delta : wide_set(job->decay[t * job->delta_stride]);
    s.u = s.delta * s.x;
    return s;
}

/* Tokens [t, t + n_tok) at the channels [at, at + n), n up to WIDE. now and next: their first states. */
HTH_INLINE void scan_some(const hth_ssm_scan *job, bool by_channel, size_t t, size_t n_tok, size_t at, size_t n,
                          const float *now, float *next)
{
    scan_token s[SCAN_TOKENS];
    const float *b = job->b + t * job->bc_stride, *c = job->c + t * job->bc_stride;
    for (size_t i = 0; i < n_tok; i++) s[i] = scan_begin(job, by_channel, t + i, at, n);
    for (size_t k = 0; k < job->n_state; k++) {
        wide h = wide_load(now + k * HTH_SSM_TILE, WIDE), a = wide_set(0.0f);
        if (by_channel) a = wide_load(job->a + k * job->a_stride + at, n);
        for (size_t i = 0; i < n_tok; i++) {
            wide decay = by_channel ? wide_exp(s[i].delta * a) : s[i].decay;
            h = h * decay + wide_set(b[i * job->bc_stride + k]) * s[i].u;
            s[i].y += h * wide_set(c[i * job->bc_stride + k]);
        }
        wide_store(next + k * HTH_SSM_TILE, h, WIDE);
    }
    wide d = by_channel ? wide_load(job->d + at, n) : wide_set(*job->d);
    for (size_t i = 0; i < n_tok; i++)
        wide_store(job->y + (t + i) * job->y_stride + at, s[i].y + d * s[i].x, n);
}

HTH_INLINE void scan_channels(const hth_ssm_scan *job, bool by_channel, size_t at, size_t n)
{
    size_t in_tile = at % HTH_SSM_TILE, first = (at - in_tile) * job->n_state + in_tile, t = 0;
    const float *now = job->now + first;
    float *next = job->next + first;
    for (; t + SCAN_TOKENS <= job->n_tok; t += SCAN_TOKENS, now = next)
        scan_some(job, by_channel, t, SCAN_TOKENS, at, n, now, next);
    for (; t < job->n_tok; t++, now = next) scan_some(job, by_channel, t, 1, at, n, now, next);
}

HTH_INLINE void scan_all(const hth_ssm_scan *job, bool by_channel)
{
    size_t at = 0;
    for (; at + WIDE <= job->n_channel; at += WIDE) scan_channels(job, by_channel, at, WIDE);
    if (at < job->n_channel) scan_channels(job, by_channel, at, job->n_channel - at);
}

static void ssm_scan(const hth_ssm_scan *job)
{
    if (job->a) scan_all(job, true);
    else scan_all(job, false);
}
