/* Sixteen numbers at a time: what the kernels share. */
#ifndef WHET_VECTORS_H
#define WHET_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
#ifdef __AVX512F__
#define ROWS 12
#define COLS 2
#else
#define ROWS 6
#define COLS 1
#endif
#define PANEL (LANES * COLS)

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t uvec __attribute__((vector_size(64), aligned(4), may_alias));
typedef int64_t i64;

static inline vec load(const float *p) { return *(const vec *)p; }
static inline void store(float *p, vec x) { *(vec *)p = x; }

/* a where the mask is set, else b */
static inline vec pick(ivec mask, vec a, vec b) { return (vec)(((ivec)a & mask) | ((ivec)b & ~mask)); }

/* Lower and upper half, number by number: x stays in its register, because its address is not taken. */
#define LOWER(x) {x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]}
#define UPPER(x) {x[8], x[9], x[10], x[11], x[12], x[13], x[14], x[15]}
typedef float eight __attribute__((vector_size(32)));
typedef float four __attribute__((vector_size(16)));

/* Set where a < b. Compilers for narrower processors compare number by number unless the comparison is halved. */
static inline ivec is_less(vec a, vec b) {
#ifdef __AVX512F__
    return a < b;
#else
    typedef int32_t mask __attribute__((vector_size(32)));
    eight x[2] = {LOWER(a), UPPER(a)}, y[2] = {LOWER(b), UPPER(b)};
    mask parts[2] = {x[0] < y[0], x[1] < y[1]};
    ivec all;
    memcpy(&all, parts, 64);
    return all;
#endif
}

/* Halves are added to each other until one number is left. */
static inline float sum(vec x) {
    eight a = LOWER(x), b = UPPER(x);
    a += b;
    four c = {a[0], a[1], a[2], a[3]}, d = {a[4], a[5], a[6], a[7]};
    c += d;
    return (c[0] + c[2]) + (c[1] + c[3]);
}

static inline float larger_of(float a, float b) { return a > b ? a : b; }

static inline float largest(vec x) {
    eight a = LOWER(x), b = UPPER(x), most;
    for (int i = 0; i < 8; i++) most[i] = larger_of(a[i], b[i]);
    four c;
    for (int i = 0; i < 4; i++) c[i] = larger_of(most[i], most[i + 4]);
    return larger_of(larger_of(c[0], c[2]), larger_of(c[1], c[3]));
}

/* e^x for x <= 0, by 2^n times a polynomial; 0 where it would be less than e^-87. */
static inline vec exponential(vec x) {
    const float magic = 12582912.0f;
    vec shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return pick(is_less(x, (vec){0} - 87.0f), (vec){0}, (vec)((uvec)p + ((uvec)shifted << 23)));
}

/* y[R, PANEL] = x[R, k] times a panel of weights, laid out [k, PANEL]. */
static inline __attribute__((always_inline)) void multiply(
    const int R, i64 k, const float *x, i64 ldx, const float *w, const float *bias, float *y, i64 ldy) {
    vec acc[ROWS][COLS];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < COLS; c++) acc[r][c] = bias ? load(bias + c * LANES) : (vec){0};
    for (i64 i = 0; i < k; i++, w += PANEL) {
        vec row[COLS];
        for (int c = 0; c < COLS; c++) row[c] = load(w + c * LANES);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < COLS; c++) acc[r][c] += x[r * ldx + i] * row[c];
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < COLS; c++) store(y + r * ldy + c * LANES, acc[r][c]);
}

#endif
