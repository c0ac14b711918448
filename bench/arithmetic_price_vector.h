/* Attention, softmax, norm and SiLU at one level: free forms, and attention in the
 * settled order with other loops. The including file has included vector_tmpl.h under
 * another name and gives the vector: V, W, V_ZERO, V_SET, V_LOAD, V_STORE, V_HALF, V_ADD,
 * V_MUL, V_FMA, V_DIV, V_MAX, V_HALVES(v) (its sum as eight), V_EXP2(r, n) (r 2^n). */

/* exp with fused operations and fewer terms: about 2 ulp. */
HTH_INLINE V exp_fused(V x)
{
    V a = V_MAX(x, V_SET(-87.0f)), n = V_ROUND(V_MUL(a, V_SET(1.44269504f)));
    V r = V_FMA(n, V_SET(-0.693145751953125f), a);
    r = V_FMA(n, V_SET(-1.42860682e-6f), r);
    V p = V_FMA(V_SET(8.3334519e-3f), r, V_SET(4.1665795e-2f));
    p = V_FMA(p, r, V_SET(0.16666665f));
    p = V_FMA(p, r, V_SET(0.5f));
    p = V_FMA(p, V_MUL(r, r), r);
    return V_EXP2(V_ADD(p, V_SET(1.0f)), n);
}

/* Eight sums at once, each as v8_sum. */
HTH_INLINE __m256 eight_sums(const __m256 a[8])
{
    __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(a[4], a[5]), _mm256_hadd_ps(a[6], a[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}

/* Scores of eight positions. */
HTH_INLINE void free_scores(const float *q, const uint16_t *k, size_t d, float scale, float *score)
{
    V acc[8];
    __m256 a[8];
    for (int j = 0; j < 8; j++) acc[j] = V_ZERO;
    for (size_t i = 0; i < d; i += W) {
        V x = V_LOAD(q + i);
        for (size_t j = 0; j < 8; j++) acc[j] = V_FMA(x, V_HALF(k + j * d + i), acc[j]);
    }
    for (int j = 0; j < 8; j++) a[j] = V_HALVES(acc[j]);
    _mm256_storeu_ps(score, _mm256_mul_ps(eight_sums(a), _mm256_set1_ps(scale)));
}

/* The settled partial sums: eight lanes, product and sum rounded apart. */
HTH_INLINE void settled_scores(const float *q, const uint16_t *k, size_t d, float scale, float *score)
{
    __m256 acc[8];
    for (int j = 0; j < 8; j++) acc[j] = _mm256_setzero_ps();
    for (size_t i = 0; i < d; i += 8) {
        __m256 x = _mm256_loadu_ps(q + i);
        for (size_t j = 0; j < 8; j++) {
            __m256 w = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(k + j * d + i)));
            acc[j] = _mm256_add_ps(acc[j], _mm256_mul_ps(x, w));
        }
    }
    _mm256_storeu_ps(score, _mm256_mul_ps(eight_sums(acc), _mm256_set1_ps(scale)));
}

/* values[d] = sum of weight * v over n positions, VALUES vectors of outputs at a time. */
enum { VALUES = 64 / W };
HTH_INLINE void value_sums(const float *weight, const uint16_t *v, size_t n, size_t d, float *values,
                           int fused)
{
    for (size_t i = 0; i < d; i += VALUES * W) {
        V acc[VALUES], odd[VALUES];
        for (size_t k = 0; k < VALUES; k++) acc[k] = odd[k] = V_ZERO;
        for (size_t j = 0; j < n; j += 2) {
            V w = V_SET(weight[j]), u = V_SET(weight[j + 1]);
            for (size_t k = 0; k < VALUES; k++) {
                V a = V_HALF(v + j * d + i + k * W), b = V_HALF(v + (j + 1) * d + i + k * W);
                if (fused && W == 16) acc[k] = V_FMA(w, a, acc[k]), odd[k] = V_FMA(u, b, odd[k]);
                else if (fused) acc[k] = V_FMA(u, b, V_FMA(w, a, acc[k]));
                else acc[k] = V_ADD(V_ADD(acc[k], V_MUL(w, a)), V_MUL(u, b));
            }
        }
        for (size_t k = 0; k < VALUES; k++)
            V_STORE(values + i + k * W, fused && W == 16 ? V_ADD(acc[k], odd[k]) : acc[k]);
    }
}

static void attend_free(const price_attend *job)
{
    size_t d = job->d_head;
    float weight[HTH_ATTN_SPLIT];
    hth_attn_partial total = {0};
    for (size_t first = 0; first < job->n_pos; first += HTH_ATTN_SPLIT) {
        size_t left = job->n_pos - first, n = left < HTH_ATTN_SPLIT ? left : HTH_ATTN_SPLIT;
        const uint16_t *k = job->k + first * d, *v = job->v + first * d;
        for (size_t j = 0; j < n; j += 8) free_scores(job->q, k + j * d, d, job->scale, weight + j);
        float m = largest(weight, n);
        V s = V_ZERO;
        for (size_t j = 0; j < n; j += W) {
            V e = exp_fused(V_ADD(V_LOAD(weight + j), V_SET(-m)));
            V_STORE(weight + j, e);
            s = V_ADD(s, e);
        }
        value_sums(weight, v, n, d, job->scratch, 1);
        float lanes[8];
        _mm256_storeu_ps(lanes, V_HALVES(s));
        hth_attn_partial part = {m, sum_of(lanes, 8)};
        hth_attn_merge(&total, job->y, &part, job->scratch, d);
    }
    for (size_t i = 0; i < d; i++) job->y[i] *= 1.0f / total.sum;
}

static void attend_same_bits(const price_attend *job)
{
    size_t d = job->d_head;
    float weight[HTH_ATTN_SPLIT];
    hth_attn_partial total = {0};
    for (size_t first = 0; first < job->n_pos; first += HTH_ATTN_SPLIT) {
        size_t left = job->n_pos - first, n = left < HTH_ATTN_SPLIT ? left : HTH_ATTN_SPLIT;
        const uint16_t *k = job->k + first * d, *v = job->v + first * d;
        for (size_t j = 0; j < n; j += 8) settled_scores(job->q, k + j * d, d, job->scale, weight + j);
        float m = largest(weight, n);
        for (size_t j = 0; j < n; j++) weight[j] -= m;
        map_exp(weight, n, weight);
        value_sums(weight, v, n, d, job->scratch, 0);
        hth_attn_partial part = {m, sum_of(weight, n)};
        hth_attn_merge(&total, job->y, &part, job->scratch, d);
    }
    float r = one_rcp(total.sum);
    for (size_t i = 0; i < d; i++) job->y[i] *= r;
}

HTH_INLINE float sum_of_vector(V v)
{
    float lanes[8];
    _mm256_storeu_ps(lanes, V_HALVES(v));
    return sum_of(lanes, 8);
}

static void softmax_free(float *x, size_t n)
{
    float m = largest(x, n);
    V s = V_ZERO;
    for (size_t i = 0; i < n; i += W) {
        V e = exp_fused(V_ADD(V_LOAD(x + i), V_SET(-m)));
        V_STORE(x + i, e);
        s = V_ADD(s, e);
    }
    V r = V_SET(1.0f / sum_of_vector(s));
    for (size_t i = 0; i < n; i += W) V_STORE(x + i, V_MUL(V_LOAD(x + i), r));
}

static void rms_norm_free(const float *x, const float *w, size_t n, float inv_n, float eps, float *y)
{
    V s[4] = {V_ZERO, V_ZERO, V_ZERO, V_ZERO};
    for (size_t i = 0; i < n; i += 4 * W)
        for (size_t k = 0; k < 4; k++) {
            V v = V_LOAD(x + i + k * W);
            s[k] = V_FMA(v, v, s[k]);
        }
    float sum = sum_of_vector(V_ADD(V_ADD(s[0], s[1]), V_ADD(s[2], s[3])));
    V r = V_SET(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(sum * inv_n + eps))));
    for (size_t i = 0; i < n; i += W) V_STORE(y + i, V_MUL(V_MUL(V_LOAD(x + i), r), V_LOAD(w + i)));
}

static void silu_free(const float *gate, const float *up, size_t n, float *h)
{
    for (size_t i = 0; i < n; i += W) {
        V x = V_LOAD(gate + i), below = V_ADD(V_SET(1.0f), exp_fused(V_MUL(x, V_SET(-1.0f))));
        V_STORE(h + i, V_MUL(V_DIV(x, below), V_LOAD(up + i)));
    }
}

HTH_INLINE void fill_level(price_level *l)
{
    l->attend_free = attend_free;
    l->attend_same_bits = attend_same_bits;
    l->softmax = softmax_free;
    l->rms_norm = rms_norm_free;
    l->silu = silu_free;
}
