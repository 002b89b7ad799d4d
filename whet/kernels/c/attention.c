/* Causal attention of packed sequences, and the backward pass, for float32 on a CPU.
 *
 * Sequences are lines of cells, and several may share tokens at their start: `node` is the token in a cell, `cell` the
 * cell that answers for a token. Only such cells are computed as queries. Every query is computed by itself in one
 * order, and gradients are added up line by line, so no bit depends on the number of threads.
 * whet/kernels/attention.py passes the arguments, and tests compare the result with plain torch.
 */
#include "vectors.h"

#define QUERIES (4 * ROWS) /* computed together in the backward pass */

typedef struct {
    i64 lines, longest, heads, groups, size, threads;
    const i64 *node, *cell;        /* [lines, longest], [tokens] */
    const float *q, *k, *v;        /* [tokens, heads, size], [tokens, groups, size] twice */
    float *out, *lse;              /* [tokens, heads, size], [tokens, heads] */
    const float *d_out;            /* from here on for the backward pass */
    float *d_q, *d_k, *d_v, *scratch; /* the gradients of keys and values: [2, lines, groups, longest, size] */
} Attention;

static inline i64 round_up(i64 n, i64 of) { return (n + of - 1) / of * of; }

/* y[ROWS, PANEL] += x[k, ROWS] rotated around, times a panel [k, PANEL]. */
static inline void add_outer(i64 k, const float *x, i64 ldx, const float *w, float *y, i64 ldy) {
    vec acc[ROWS][COLS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) acc[r][c] = load(y + r * ldy + c * LANES);
    for (i64 i = 0; i < k; i++, w += PANEL) {
        vec row[COLS];
        for (int c = 0; c < COLS; c++) row[c] = load(w + c * LANES);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLS; c++) acc[r][c] += x[i * ldx + r] * row[c];
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) store(y + r * ldy + c * LANES, acc[r][c]);
}

/* The cells of a line that answer for their tokens lie between these two. */
static void bounds(const Attention *a, i64 line, i64 *first, i64 *end) {
    *first = *end = 0;
    for (i64 i = 0; i < a->longest; i++)
        if (a->cell[a->node[line * a->longest + i]] == line * a->longest + i) {
            if (!*end) *first = i;
            *end = i + 1;
        }
}

/* The token that a cell answers for, or -1. */
static inline i64 token_of(const Attention *a, i64 line, i64 i, i64 end) {
    i64 cell = line * a->longest + i;
    return i < end && a->cell[a->node[cell]] == cell ? a->node[cell] : -1;
}

/* Vectors of a head, one per cell, as panels [size, PANEL] of PANEL cells each. `to` must be zero. */
static void pack_transposed(const Attention *a, i64 line, i64 g, i64 end, const float *x, float *to) {
    for (i64 c = 0; c < end; c++) {
        const float *from = x + (a->node[line * a->longest + c] * a->groups + g) * a->size;
        float *at = to + c / PANEL * a->size * PANEL + c % PANEL;
        for (i64 i = 0; i < a->size; i++) at[i * PANEL] = from[i];
    }
}

/* The same as panels [cells, PANEL] of PANEL dimensions each. */
static void pack(const Attention *a, i64 line, i64 g, i64 end, i64 cells, const float *x, float *to) {
    for (i64 c = 0; c < end; c++) {
        const float *from = x + (a->node[line * a->longest + c] * a->groups + g) * a->size;
        for (i64 i = 0; i < a->size; i += LANES) store(to + (i / PANEL * cells + c) * PANEL + i % PANEL, load(from + i));
    }
}

/* Scores of ROWS queries against the keys up to `cells`. */
static inline void scores(i64 size, i64 cells, const float *q, const float *keys, float *to, i64 ld) {
    for (i64 c = 0; c < cells; c += PANEL) multiply(ROWS, size, q, size, keys + c * size, NULL, to + c, ld);
}

/* Scores past `last`, up to `cells`, become -infinity. */
static inline void hide(float *x, i64 last, i64 cells) {
    for (i64 c = last + 1; c < cells; c++) x[c] = -INFINITY;
}

static inline float most_of(const float *x, i64 cells) {
    vec top = load(x);
    for (i64 c = LANES; c < cells; c += LANES) top = pick(load(x + c) > top, load(x + c), top);
    return largest(top);
}

/* Replace each cell of a row by e^(x - most), and return their sum. */
static inline float powers(float *x, i64 cells, float most) {
    vec all = {0};
    for (i64 c = 0; c < cells; c += LANES) {
        vec e = exponential(load(x + c) - most);
        store(x + c, e);
        all += e;
    }
    return sum(all);
}

static int line_forward(const Attention *a, i64 line, i64 g) {
    i64 n = a->size, wide = round_up(n, PANEL), share = a->heads / a->groups, first, end;
    bounds(a, line, &first, &end);
    if (!end) return 0;
    i64 cells = round_up(end, PANEL), count = 2 * cells * wide + ROWS * (n + cells + wide);
    float *keys = calloc(count, sizeof(float));
    if (!keys) return 1;
    float *values = keys + cells * wide, *q = values + cells * wide, *p = q + ROWS * n, *mixed = p + ROWS * cells;
    pack_transposed(a, line, g, end, a->k, keys);
    pack(a, line, g, end, cells, a->v, values);
    float factor = 1.0f / sqrtf((float)n);
    for (i64 y = g * share; y < (g + 1) * share; y++)
        for (i64 at = first; at < end; at += ROWS) {
            i64 seen = at + ROWS < end ? at + ROWS : end, tokens[ROWS];
            float total[ROWS];
            for (i64 r = 0; r < ROWS; r++) {
                tokens[r] = token_of(a, line, at + r, end);
                for (i64 i = 0; i < n; i += LANES) {
                    vec one = {0};
                    if (tokens[r] >= 0) one = load(a->q + (tokens[r] * a->heads + y) * n + i) * factor;
                    store(q + r * n + i, one);
                }
            }
            scores(n, seen, q, keys, p, cells);
            for (i64 r = 0; r < ROWS; r++) {
                i64 last = at + r < end ? at + r : end - 1;
                float *row = p + r * cells;
                hide(row, last, round_up(seen, LANES));
                float most = most_of(row, round_up(seen, LANES));
                total[r] = powers(row, round_up(seen, LANES), most);
                if (tokens[r] >= 0) a->lse[tokens[r] * a->heads + y] = most + logf(total[r]);
            }
            for (i64 i = 0; i < wide; i += PANEL)
                multiply(ROWS, seen, p, cells, values + i * cells, NULL, mixed + i, wide);
            for (i64 r = 0; r < ROWS; r++)
                for (i64 i = 0; i < n && tokens[r] >= 0; i += LANES)
                    store(a->out + (tokens[r] * a->heads + y) * n + i, load(mixed + r * wide + i) * (1.0f / total[r]));
        }
    free(keys);
    return 0;
}

/* Add to the gradients of a line's keys and values from QUERIES queries from `at` on, and find the queries' own. */
static void block_backward(const Attention *a, i64 line, i64 y, i64 at, i64 end, i64 cells, const float *keys,
                           const float *rows, const float *values, float *memory, float *d_keys, float *d_values) {
    i64 n = a->size, wide = round_up(n, PANEL), ld = cells + ROWS;
    i64 count = round_up((end - at < QUERIES ? end - at : QUERIES), ROWS), seen = at + count < end ? at + count : end;
    float *p = memory, *d_p = p + QUERIES * ld, *q = d_p + QUERIES * ld, *d_out = q + ROWS * n;
    float *q_panels = d_out + ROWS * n, *d_panels = q_panels + QUERIES * wide, *d_q = d_panels + QUERIES * wide;
    float factor = 1.0f / sqrtf((float)n);
    for (i64 tile = 0; tile < count; tile += ROWS) {
        i64 tokens[ROWS], cut = at + tile + ROWS < end ? at + tile + ROWS : end;
        float less[ROWS];
        for (i64 r = 0; r < ROWS; r++) {
            vec product = {0};
            tokens[r] = token_of(a, line, at + tile + r, end);
            for (i64 i = 0; i < n; i += LANES) {
                i64 from = (tokens[r] * a->heads + y) * n + i, to = (i / PANEL * QUERIES + tile + r) * PANEL + i % PANEL;
                vec one = {0}, grad = {0};
                if (tokens[r] >= 0) {
                    one = load(a->q + from) * factor, grad = load(a->d_out + from);
                    product += grad * load(a->out + from);
                }
                store(q + r * n + i, one), store(q_panels + to, one);
                store(d_out + r * n + i, grad), store(d_panels + to, grad);
            }
            less[r] = sum(product);
        }
        scores(n, cut, q, keys, p + tile * ld, ld);
        scores(n, cut, d_out, values, d_p + tile * ld, ld);
        for (i64 r = 0; r < ROWS; r++) {
            float *row = p + (tile + r) * ld, *grad = d_p + (tile + r) * ld;
            hide(row, tokens[r] < 0 ? -1 : at + tile + r, round_up(cut, LANES));
            powers(row, round_up(cut, LANES), tokens[r] < 0 ? 0 : a->lse[tokens[r] * a->heads + y]);
            for (i64 c = 0; c < round_up(cut, LANES); c += LANES)
                store(grad + c, pick(load(row + c) > 0, load(row + c) * (load(grad + c) - less[r]), (vec){0}));
            for (i64 c = round_up(cut, LANES); c < round_up(seen, ROWS); c++) row[c] = grad[c] = 0;
        }
        for (i64 i = 0; i < wide; i += PANEL) multiply(ROWS, cut, d_p + tile * ld, ld, rows + i * cells, NULL, d_q + i, wide);
        for (i64 r = 0; r < ROWS; r++)
            for (i64 i = 0; i < n && tokens[r] >= 0; i += LANES)
                store(a->d_q + (tokens[r] * a->heads + y) * n + i, load(d_q + r * wide + i) * factor);
    }
    for (i64 c = 0; c < seen; c += ROWS)
        for (i64 i = 0; i < wide; i += PANEL) {
            add_outer(count, d_p + c, ld, q_panels + i * QUERIES, d_keys + c * wide + i, wide);
            add_outer(count, p + c, ld, d_panels + i * QUERIES, d_values + c * wide + i, wide);
        }
}

static int line_backward(const Attention *a, i64 line, i64 g) {
    i64 n = a->size, wide = round_up(n, PANEL), share = a->heads / a->groups, first, end;
    float *d_kv = a->scratch + (line * a->groups + g) * a->longest * n;
    i64 apart = a->lines * a->groups * a->longest * n;
    bounds(a, line, &first, &end);
    if (!end) return 0;
    i64 cells = round_up(end, PANEL), ld = cells + ROWS;
    i64 panels = cells * wide, block = 2 * QUERIES * (ld + wide) + ROWS * (2 * n + wide);
    float *keys = calloc(3 * panels + 2 * ld * wide + block, sizeof(float));
    if (!keys) return 1;
    float *rows = keys + panels, *values = rows + panels, *d_keys = values + panels, *d_values = d_keys + ld * wide;
    pack_transposed(a, line, g, end, a->k, keys);
    pack(a, line, g, end, cells, a->k, rows);
    pack_transposed(a, line, g, end, a->v, values);
    for (i64 y = g * share; y < (g + 1) * share; y++)
        for (i64 at = first; at < end; at += QUERIES)
            block_backward(a, line, y, at, end, cells, keys, rows, values, d_values + ld * wide, d_keys, d_values);
    for (i64 c = 0; c < end; c++)
        for (i64 i = 0; i < n; i += LANES) {
            store(d_kv + c * n + i, load(d_keys + c * wide + i));
            store(d_kv + apart + c * n + i, load(d_values + c * wide + i));
        }
    free(keys);
    return 0;
}

/* Both return 0, or 1 if there is no memory. */
int attention_forward(const Attention *a) {
    int failed = 0;
#pragma omp parallel for num_threads(a->threads) schedule(dynamic) reduction(| : failed)
    for (i64 item = 0; item < a->lines * a->groups; item++) failed |= line_forward(a, item / a->groups, item % a->groups);
    return failed;
}

int attention_backward(const Attention *a) {
    int failed = 0;
#pragma omp parallel for num_threads(a->threads) schedule(dynamic) reduction(| : failed)
    for (i64 item = 0; item < a->lines * a->groups; item++) failed |= line_backward(a, item / a->groups, item % a->groups);
    if (failed) return failed;
    i64 n = a->size, apart = a->lines * a->groups * a->longest * n;
#pragma omp parallel for num_threads(a->threads)
    for (i64 g = 0; g < a->groups; g++)
        for (i64 line = 0; line < a->lines; line++) {
            const float *d_kv = a->scratch + (line * a->groups + g) * a->longest * n;
            i64 first, end;
            bounds(a, line, &first, &end);
            for (i64 c = 0; c < end; c++) {
                float *k = a->d_k + (a->node[line * a->longest + c] * a->groups + g) * n;
                float *v = a->d_v + (a->node[line * a->longest + c] * a->groups + g) * n;
                for (i64 i = 0; i < n; i += LANES) {
                    store(k + i, load(k + i) + load(d_kv + c * n + i));
                    store(v + i, load(v + i) + load(d_kv + apart + c * n + i));
                }
            }
        }
    return 0;
}
