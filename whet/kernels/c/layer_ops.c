/* RMSNorm with residual, rope and SwiGLU, forward and backward, in float32 on a CPU.
 *
 * Forward and backward are one pass each over memory. A row is computed by itself, in one order. Gradients of weights
 * are summed over blocks of rows, which do not depend on the number of threads, and then block by block.
 * whet/kernels/layer_ops.py calls these functions and has the same in plain torch.
 */
#include "vectors.h"

#define BLOCK 32    /* rows whose parts of a weight's gradient are summed together */
#define SMALL 16384 /* up to so many numbers, a second thread costs more than it saves */

/* Half a vec: a head may have only 16 numbers, and rope rotates its two halves. Sums are kept in these too:
 * where registers are no wider, compilers keep a vec in memory. */
#define HALF 8
typedef float half __attribute__((vector_size(32), aligned(4), may_alias));

static inline half load_half(const float *p) { return *(const half *)p; }
static inline void store_half(float *p, half x) { *(half *)p = x; }
static inline float sum_half(half x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

static inline float inverse_root(half squares, i64 n, float eps) {
    return 1.0f / sqrtf(sum_half(squares) / (float)n + eps);
}

/* The factor that gives a vector a root mean square of 1. */
static inline float inverse_rms(const float *x, i64 n, float eps) {
    half squares = {0};
    for (i64 i = 0; i < n; i += HALF) squares += load_half(x + i) * load_half(x + i);
    return inverse_root(squares, n, eps);
}

static inline i64 num_threads_for(i64 numbers, i64 threads) { return numbers > SMALL ? threads : 1; }

i64 layer_blocks(i64 rows) { return (rows + BLOCK - 1) / BLOCK; }

/* to[n] = the sum of the lines of parts[blocks, n]. */
static void sum_blocks(i64 blocks, i64 n, const float *parts, float *to) {
    for (i64 i = 0; i < n; i += LANES) {
        vec all = {0};
        for (i64 b = 0; b < blocks; b++) all += load(parts + b * n + i);
        store(to + i, all);
    }
}

/* normed = norm of x + residual, total = that sum. Without a residual there is no total. */
void layer_add_norm(i64 rows, i64 n, const float *x, const float *residual, const float *weight, float eps,
                   float *normed, float *total, i64 threads) {
#pragma omp parallel for num_threads(num_threads_for(rows * n, threads))
    for (i64 r = 0; r < rows; r++) {
        const float *row = x + r * n;
        if (residual) {
            for (i64 i = 0; i < n; i += LANES) store(total + r * n + i, load(row + i) + load(residual + r * n + i));
            row = total + r * n;
        }
        float scale = inverse_rms(row, n, eps);
        for (i64 i = 0; i < n; i += LANES) store(normed + r * n + i, load(row + i) * scale * load(weight + i));
    }
}

/* From the gradient of the norm of a vector x to that of x, which may be in place. Adds to d_weight if there is
 * one. By halves, as a rotation may just have written d_normed: a wider load would wait until both were in memory. */
static inline void norm_backward(i64 n, const float *x, const float *weight, float eps, const float *d_normed,
                                 float *d_x, float *d_weight) {
    half squares = {0}, products = {0};
    for (i64 i = 0; i < n; i += HALF) {
        half a = load_half(x + i);
        squares += a * a;
        products += a * (load_half(d_normed + i) * load_half(weight + i));
    }
    float scale = inverse_root(squares, n, eps), share = sum_half(products) * (scale / (float)n);
    for (i64 i = 0; i < n; i += HALF) {
        half unit = load_half(x + i) * scale, d = load_half(d_normed + i);
        if (d_weight) store_half(d_weight + i, load_half(d_weight + i) + d * unit);
        store_half(d_x + i, (d * load_half(weight + i) - unit * share) * scale);
    }
}

/* Backward pass. d_total and d_weight may be missing; with d_weight, parts has room for one line per block. */
void layer_add_norm_backward(i64 rows, i64 n, const float *total, const float *weight, float eps, const float *d_normed,
                        const float *d_total, float *d_x, float *d_weight, float *parts, i64 threads) {
    i64 blocks = layer_blocks(rows);
#pragma omp parallel for num_threads(num_threads_for(rows * n, threads))
    for (i64 b = 0; b < blocks; b++) {
        float *part = d_weight ? parts + b * n : NULL;
        if (part) memset(part, 0, n * sizeof(float));
        for (i64 r = b * BLOCK; r < rows && r < (b + 1) * BLOCK; r++) {
            i64 at = r * n;
            norm_backward(n, total + at, weight, eps, d_normed + at, d_x + at, part);
            if (d_total)
                for (i64 i = at; i < at + n; i += LANES) store(d_x + i, load(d_x + i) + load(d_total + i));
        }
    }
    if (d_weight) sum_blocks(blocks, n, parts, d_weight);
}

typedef struct {
    i64 rows, heads, groups, size; /* a row of qkv holds query heads, key heads and as many value heads */
    const float *qkv, *rope;       /* rope has one line per row: cosines, then sines */
    const float *q_norm, *k_norm;  /* NULL if the family has none; then the backward pass has no qkv either */
    float eps;
    i64 threads;
} Projection;

/* Norm where there is a weight, then rotation. */
static inline void rotate(i64 n, const float *x, const float *table, const float *weight, float eps, float *to) {
    float scale = weight ? inverse_rms(x, n, eps) : 1.0f;
    i64 middle = n / 2;
    for (i64 i = 0; i < middle; i += HALF) {
        half a = load_half(x + i) * scale, b = load_half(x + middle + i) * scale;
        half cos = load_half(table + i), sin = load_half(table + middle + i);
        if (weight) a *= load_half(weight + i), b *= load_half(weight + middle + i);
        store_half(to + i, a * cos - b * sin);
        store_half(to + middle + i, b * cos + a * sin);
    }
}

/* q[rows, heads, size], k[rows, groups, size] and v, of the same shape. */
void layer_rope(const Projection *p, float *q, float *k, float *v) {
    i64 n = p->size, wide = (p->heads + 2 * p->groups) * n;
#pragma omp parallel for num_threads(num_threads_for(p->rows * wide, p->threads))
    for (i64 r = 0; r < p->rows; r++) {
        const float *x = p->qkv + r * wide, *table = p->rope + r * n;
        for (i64 h = r * p->heads; h < (r + 1) * p->heads; h++, x += n) rotate(n, x, table, p->q_norm, p->eps, q + h * n);
        for (i64 g = r * p->groups; g < (r + 1) * p->groups; g++, x += n)
            rotate(n, x, table, p->k_norm, p->eps, k + g * n);
        memcpy(v + r * p->groups * n, x, p->groups * n * sizeof(float));
    }
}

/* Rotation and norm backwards. */
static inline void rotate_backward(i64 n, const float *x, const float *table, const float *weight, float eps,
                             const float *d_rotated, float *d_x, float *d_weight) {
    i64 middle = n / 2;
    for (i64 i = 0; i < middle; i += HALF) {
        half a = load_half(d_rotated + i), b = load_half(d_rotated + middle + i);
        half cos = load_half(table + i), sin = load_half(table + middle + i);
        store_half(d_x + i, a * cos + b * sin);
        store_half(d_x + middle + i, b * cos - a * sin);
    }
    if (weight) norm_backward(n, x, weight, eps, d_x, d_x, d_weight);
}

/* Backward pass. d_norms[2, size] may be missing; with it, parts has room for two lines per block. */
void layer_rope_backward(const Projection *p, const float *d_q, const float *d_k, const float *d_v, float *d_qkv,
                    float *d_norms, float *parts) {
    i64 n = p->size, wide = (p->heads + 2 * p->groups) * n, blocks = layer_blocks(p->rows);
#pragma omp parallel for num_threads(num_threads_for(p->rows * wide, p->threads))
    for (i64 b = 0; b < blocks; b++) {
        float *part = d_norms ? parts + b * 2 * n : NULL;
        if (part) memset(part, 0, 2 * n * sizeof(float));
        for (i64 r = b * BLOCK; r < p->rows && r < (b + 1) * BLOCK; r++) {
            i64 at = r * wide;
            for (i64 h = 0; h < p->heads + p->groups; h++, at += n) {
                i64 is_key = h >= p->heads;
                const float *d = is_key ? d_k + (r * p->groups + h - p->heads) * n : d_q + (r * p->heads + h) * n;
                rotate_backward(n, p->qkv ? p->qkv + at : NULL, p->rope + r * n, is_key ? p->k_norm : p->q_norm, p->eps, d,
                          d_qkv + at, part ? part + is_key * n : NULL);
            }
            memcpy(d_qkv + at, d_v + r * p->groups * n, p->groups * n * sizeof(float));
        }
    }
    if (d_norms) sum_blocks(blocks, 2 * n, parts, d_norms);
}

/* Set where x is negative; a comparison of vecs is slow if the processor has none so wide. */
static inline ivec sign(vec x) { return (ivec)x >> 31; }
static inline vec size(vec x) { return (vec)((ivec)x & INT32_MAX); }

/* to[rows, n] = silu(gate) * up; a row of gate_up holds n of gate, then n of up. */
void layer_swiglu(i64 rows, i64 n, const float *gate_up, float *to, i64 threads) {
#pragma omp parallel for num_threads(num_threads_for(rows * n, threads))
    for (i64 r = 0; r < rows; r++)
        for (i64 i = 0; i < n; i += LANES) {
            vec gate = load(gate_up + 2 * r * n + i), up = load(gate_up + (2 * r + 1) * n + i);
            vec e = exponential(-size(gate)); /* of the side that cannot overflow */
            store(to + r * n + i, pick(sign(gate), gate * e, gate) / (1.0f + e) * up);
        }
}

/* Backward pass: d_gate_up from the gradient d of the result. */
void layer_swiglu_backward(i64 rows, i64 n, const float *gate_up, const float *d, float *d_gate_up, i64 threads) {
#pragma omp parallel for num_threads(num_threads_for(rows * n, threads))
    for (i64 r = 0; r < rows; r++)
        for (i64 i = 0; i < n; i += LANES) {
            i64 at = 2 * r * n + i;
            vec gate = load(gate_up + at), up = load(gate_up + at + n), grad = load(d + r * n + i);
            vec e = exponential(-size(gate)), share = 1.0f / (1.0f + e), rest = e * share;
            vec sigmoid = pick(sign(gate), rest, share), complement = pick(sign(gate), share, rest); /* 1 - sigmoid */
            store(d_gate_up + at, grad * up * sigmoid * (1.0f + gate * complement));
            store(d_gate_up + at + n, grad * gate * sigmoid);
        }
}
