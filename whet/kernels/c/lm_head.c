/* Log-probability and entropy of training, and the backward pass to the logits.
 *
 * A row of logits is read twice while it is in cache, and nothing of its size is written before the backward pass. That
 * computes the exponentials again, which costs less than writing and reading them. Everything is relative to the row's
 * largest logit, and the tokens that have it are counted separately from the sum of the others, so that neither large
 * logits nor a distribution that is almost one point lose digits. whet/kernels/lm_head.py lays out the arguments.
 */
#include "vectors.h"

#define BLOCK 1024      /* tokens added up in float32 before they go into a sum in double precision */
#define LEAST -100.0f   /* exponentials of less than this are 0 anyway, and -inf would give 0 * inf */
#define ALONE (1 << 15) /* up to so many logits, a second thread is not worth it */

/* What the backward pass needs of a row: its largest logit, 1 / sum of exponentials, mean distance from the largest. */
typedef struct {
    float top, share, mean;
} row_stats;

typedef struct {
    vec others, distance;
    ivec count;
} sums;

/* The last numbers of a row, padded with -inf. */
static inline vec load_end(const float *x, i64 n) {
    vec end = (vec){0} - INFINITY;
    memcpy(&end, x, n * sizeof(float));
    return end;
}

static inline vec larger(vec a, vec b) { return pick(a > b, a, b); }

static float top_of(const float *x, i64 n) {
    vec a = (vec){0} - INFINITY, b = a;
    i64 i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) a = larger(load(x + i), a), b = larger(load(x + i + LANES), b);
    for (; i + LANES <= n; i += LANES) a = larger(load(x + i), a);
    return largest(larger(larger(load_end(x + i, n - i), b), a));
}

/* Written so that NaN stays NaN. */
static inline vec below(vec x, float top, float inverse) {
    vec scaled = (x - top) * inverse;
    return pick(scaled < LEAST, (vec){0} + LEAST, scaled);
}

static inline void add(sums *to, vec scaled) {
    vec e = exponential(scaled);
    ivec is_top = scaled == 0.0f;
    to->count -= is_top;
    to->others += pick(is_top, (vec){0}, e);
    to->distance -= e * scaled;
}

static void stats_row(const float *x, i64 n, i64 label, float temperature, float *logprob, float *entropy,
                      row_stats *row) {
    float top = top_of(x, n), inverse = 1.0f / temperature;
    double others = 0, distance = 0, count = 0;
    for (i64 i = 0; i < n;) {
        sums block = {0};
        i64 end = i + BLOCK < n ? i + BLOCK : n;
        for (; i + LANES <= end; i += LANES) add(&block, below(load(x + i), top, inverse));
        if (i < end) add(&block, below(load_end(x + i, end - i), top, inverse)), i = end;
        others += sum(block.others), distance += sum(block.distance);
        for (int lane = 0; lane < LANES; lane++) count += block.count[lane];
    }
    double total = count + others, log_total = log(count) + log1p(others / count);
    *logprob = (float)(((double)x[label] - top) / temperature - log_total);
    *entropy = (float)(log_total + distance / total);
    *row = (row_stats){top, (float)(1 / total), (float)(distance / total)};
}

/* Log-probability of each label, and entropy if wanted, else 0. Returns 1 if a label is not a token. */
int lm_head_stats(const float *logits, i64 rows, i64 n, const i64 *label, const float *temperature, i64 has_entropy,
                   float *logprob, float *entropy, row_stats *row, i64 threads) {
    int is_wrong = 0;
    for (i64 r = 0; r < rows; r++) is_wrong |= label[r] < 0 || label[r] >= n;
    if (is_wrong) return 1;
#pragma omp parallel for num_threads(threads) if (rows * n > ALONE)
    for (i64 r = 0; r < rows; r++) {
        stats_row(logits + r * n, n, label[r], temperature[r], logprob + r, entropy + r, row + r);
        if (!has_entropy) entropy[r] = 0;
    }
    return 0;
}

/* With p the distribution and d the distance from the largest logit: d logprob = one at the label - p, and
 * d entropy = -p (log p + entropy) = p (d - mean d), which needs no logarithm. */
static void grad_row(const float *x, i64 n, row_stats row, float inverse, float d_logprob, float d_entropy, float *to) {
    float base = -(d_logprob + d_entropy * row.mean) * row.share, entropy_factor = -d_entropy * row.share;
    i64 i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec scaled = below(load(x + i), row.top, inverse);
        store(to + i, exponential(scaled) * (base + entropy_factor * scaled));
    }
    if (i < n) {
        vec scaled = below(load_end(x + i, n - i), row.top, inverse);
        scaled = exponential(scaled) * (base + entropy_factor * scaled);
        memcpy(to + i, &scaled, (n - i) * sizeof(float));
    }
}

/* The gradient of the logits. Either of the gradients that come in may be missing. */
void lm_head_grad(const float *logits, i64 rows, i64 n, const i64 *label, const float *temperature, const row_stats *row,
                  const float *logprob, const float *d_logprob, const float *d_entropy, float *grad, i64 threads) {
#pragma omp parallel for num_threads(threads) if (rows * n > ALONE)
    for (i64 r = 0; r < rows; r++) {
        const float *x = logits + r * n;
        float inverse = 1.0f / temperature[r], *to = grad + r * n;
        float by_logprob = d_logprob ? d_logprob[r] / temperature[r] : 0.0f;
        float by_entropy = d_entropy ? d_entropy[r] / temperature[r] : 0.0f;
        grad_row(x, n, row[r], inverse, by_logprob, by_entropy, to);
        /* 1 - p of the label keeps its digits if p is almost 1. */
        float scaled = below((vec){x[label[r]]}, row[r].top, inverse)[0];
        to[label[r]] = -by_logprob * expm1f(logprob[r]) - by_entropy * expf(logprob[r]) * (scaled + row[r].mean);
    }
}
