/* One decode step of a small float32 model on a CPU: all layers, the head and the draw, for a share of the rows.
 *
 * Every row is computed by itself, in one order, so what it gives does not depend on the rows beside it. Products are
 * summed over k from first to last; only scores, norms and softmax use several partial sums, always the same ones.
 * whet/engine/compiled.py lays out the arguments, and tests compare the result with plain torch.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
#define BLOCK 16 /* tokens of a row that lie together, as in whet/engine/slots.py */
#define TILE 48  /* rows that go through all layers together */
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
typedef int64_t i64;

static inline vec load(const float *p) { return *(const vec *)p; }
static inline void store(float *p, vec x) { *(vec *)p = x; }

/* a where the mask is set, else b */
static inline vec pick(ivec mask, vec a, vec b) { return (vec)(((ivec)a & mask) | ((ivec)b & ~mask)); }

/* Halves are added to each other until one number is left. */
static inline float sum(vec x) {
    typedef float half __attribute__((vector_size(32)));
    typedef float quarter __attribute__((vector_size(16)));
    half a, b;
    memcpy(&a, &x, 32), memcpy(&b, (char *)&x + 32, 32);
    a += b;
    quarter c, d;
    memcpy(&c, &a, 16), memcpy(&d, (char *)&a + 16, 16);
    c += d;
    return (c[0] + c[2]) + (c[1] + c[3]);
}

static inline float largest(vec x) {
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
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
    return pick(x < -87.0f, (vec){0}, (vec)((ivec)p + ((ivec)shifted << 23)));
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

/* y[rows, n] = x[rows, k] w, n a multiple of PANEL. */
static void linear(i64 rows, i64 k, i64 n, const float *x, const float *w, const float *bias, float *y) {
    for (i64 at = 0; at < n; at += PANEL, w += k * PANEL) {
        const float *b = bias ? bias + at : NULL;
        i64 r = 0;
        for (; r + ROWS <= rows; r += ROWS) multiply(ROWS, k, x + r * k, k, w, b, y + r * n + at, n);
        for (; r + 3 <= rows; r += 3) multiply(3, k, x + r * k, k, w, b, y + r * n + at, n);
        for (; r < rows; r++) multiply(1, k, x + r * k, k, w, b, y + r * n + at, n);
    }
}

/* The weights of a linear layer, [n, k], as panels; columns past n are 0. `to` has room for whole panels. */
void pack(const float *w, i64 n, i64 k, float *to) {
    for (i64 at = 0; at < n; at += PANEL)
        for (i64 i = 0; i < k; i++)
            for (i64 c = at; c < at + PANEL; c++) *to++ = c < n ? w[c * k + i] : 0.0f;
}

i64 panel(void) { return PANEL; }

static float scale_of(const float *x, i64 n, float eps) {
    vec squares = {0};
    for (i64 i = 0; i < n; i += LANES) squares += load(x + i) * load(x + i);
    return 1.0f / sqrtf(sum(squares) / (float)n + eps);
}

/* stream += added, normed = its norm. */
static void add_norm(i64 rows, i64 n, const float *added, i64 ld, float *stream, const float *weight, float eps,
                     float *normed) {
    for (i64 r = 0; r < rows; r++, added += ld, stream += n, normed += n) {
        for (i64 i = 0; i < n; i += LANES) store(stream + i, load(stream + i) + load(added + i));
        float scale = scale_of(stream, n, eps);
        for (i64 i = 0; i < n; i += LANES) store(normed + i, load(stream + i) * scale * load(weight + i));
    }
}

/* Norm of a head where the family has one, rotation, and a factor. */
static void turn(const float *x, i64 n, const float *table, const float *weight, float eps, float factor, float *to) {
    float scale = weight ? factor * scale_of(x, n, eps) : factor;
    i64 half = n / 2, i = 0;
    for (; i + LANES <= half; i += LANES) {
        vec a = load(x + i) * scale, b = load(x + half + i) * scale, cos = load(table + i), sin = load(table + half + i);
        if (weight) a *= load(weight + i), b *= load(weight + half + i);
        store(to + i, a * cos - b * sin);
        store(to + half + i, b * cos + a * sin);
    }
    for (; i < half; i++) {
        float a = x[i] * scale, b = x[half + i] * scale;
        if (weight) a *= weight[i], b *= weight[half + i];
        to[i] = a * table[i] - b * table[half + i];
        to[half + i] = b * table[i] + a * table[half + i];
    }
}

/* Scores of LANES keys, which lie transposed: dimension by dimension, ld apart. */
static inline vec score(const float *q, const float *keys, i64 ld, i64 n) {
    vec a = {0}, b = {0}, c = {0}, d = {0};
    for (i64 i = 0; i < n; i += 4) {
        a += q[i] * load(keys + i * ld);
        b += q[i + 1] * load(keys + (i + 1) * ld);
        c += q[i + 2] * load(keys + (i + 2) * ld);
        d += q[i + 3] * load(keys + (i + 3) * ld);
    }
    return (a + b) + (c + d);
}

/* to += the values of `count` tokens, each by its share. */
static inline void mix(const float *p, const float *values, i64 count, i64 n, float *to) {
    for (i64 at = 0; at < n; at += LANES) {
        vec a = load(to + at), b = {0};
        i64 t = 0;
        for (; t + 2 <= count; t += 2) {
            a += p[t] * load(values + t * n + at);
            b += p[t + 1] * load(values + (t + 1) * n + at);
        }
        if (t < count) a += p[t] * load(values + t * n + at);
        store(to + at, a + b);
    }
}

typedef struct {
    i64 layers, hidden, inner, heads, groups, size, vocab;
    float eps;
    const float *embed, *rope, *norm, *head;
    const float **weights; /* for each layer: norm, qkv, its bias, q norm, k norm, out, norm, gate and up, down */
} Model;

typedef struct {
    const float *keys;          /* of prompts, transposed: [layers, prompts, groups, size, columns] */
    const float *prompt;        /* keys and values of prompts: [layers, 2, prompts, groups, length, size] */
    i64 prompts, columns, length;
    float **blocks; /* [layers, 2, slots, groups, BLOCK, size] each; keys lie transposed: [size, BLOCK] */
    i64 slots;
} Cache;

typedef struct {
    i64 count, columns;
    const i64 *token, *position, *slot, *prompt, *before, *column, *place;
    const double *uniform; /* [rows, columns] */
    const float *temperature;
    float *hidden; /* the final states, where they are wanted */
    i64 *drawn;
    float *logprob;
} Rows;

/* What the new token of a row makes of its prompt and all that the row has added, itself included. */
static void attend(const Model *m, const Cache *cache, const Rows *rows, i64 layer, i64 b, const float *qkv,
                   float *scores, float *to) {
    const float **w = m->weights + 9 * layer;
    i64 n = m->size, slot = rows->slot[b], column = rows->column[b], block = column / BLOCK, place = column % BLOCK;
    i64 before = rows->before[b], padded = (before + LANES - 1) / LANES * LANES, total = padded + (block + 1) * BLOCK;
    const float *table = m->rope + rows->position[b] * n;
    i64 apart = cache->slots * m->groups * BLOCK * n; /* from keys to values, and half of a layer */
    float turned[n];
    for (i64 g = 0; g < m->groups; g++) {
        i64 line = rows->prompt[b] * m->groups + g, lines = cache->prompts * m->groups;
        i64 own = 2 * layer * apart + (slot * m->groups + g) * BLOCK * n;
        const float *keys = cache->keys + (layer * lines + line) * n * cache->columns;
        const float *values = cache->prompt + ((2 * layer + 1) * lines + line) * n * cache->length;
        turn(qkv + (m->heads + g) * n, n, table, w[4], m->eps, 1.0f, turned);
        float *file = cache->blocks[block] + own;
        for (i64 i = 0; i < n; i++) file[i * BLOCK + place] = turned[i];
        memcpy(file + apart + place * n, qkv + (m->heads + m->groups + g) * n, n * sizeof(float));
        for (i64 y = g * (m->heads / m->groups); y < (g + 1) * (m->heads / m->groups); y++) {
            turn(qkv + y * n, n, table, w[3], m->eps, 1.0f / sqrtf((float)n), turned);
            for (i64 c = 0; c < padded; c += LANES) store(scores + c, score(turned, keys + c, cache->columns, n));
            for (i64 c = before; c < padded; c++) scores[c] = -INFINITY;
            for (i64 j = 0; j <= block; j++)
                store(scores + padded + j * BLOCK, score(turned, cache->blocks[j] + own, BLOCK, n));
            for (i64 c = padded + column + 1; c < total; c++) scores[c] = -INFINITY;
            vec top = load(scores), all = {0};
            for (i64 c = LANES; c < total; c += LANES) top = pick(load(scores + c) > top, load(scores + c), top);
            float most = largest(top);
            for (i64 c = 0; c < total; c += LANES) {
                vec e = exponential(load(scores + c) - most);
                store(scores + c, e);
                all += e;
            }
            float *mixed = to + y * n;
            memset(mixed, 0, n * sizeof(float));
            mix(scores, values, before, n, mixed);
            for (i64 j = 0; j < block; j++)
                mix(scores + padded + j * BLOCK, cache->blocks[j] + own + apart, BLOCK, n, mixed);
            mix(scores + padded + block * BLOCK, file + apart, place + 1, n, mixed);
            float share = 1.0f / sum(all);
            for (i64 i = 0; i < n; i += LANES) store(mixed + i, load(mixed + i) * share);
        }
    }
}

/* Put a uniform number through the inverse of the cumulative distribution; at temperature 0 take the most likely. */
static void draw(const float *logits, i64 vocab, double uniform, float temperature, float *work, i64 *token,
                 float *logprob) {
    float scale = temperature == 0 ? 1.0f : 1.0f / temperature;
    i64 whole = vocab / LANES * LANES, last = (vocab + LANES - 1) / LANES * LANES, found = 0;
    vec top = {0}, all = {0};
    top -= INFINITY;
    for (i64 i = 0; i < whole; i += LANES) top = pick(load(logits + i) > top, load(logits + i), top);
    float most = largest(top);
    for (i64 i = whole; i < vocab; i++) most = logits[i] > most ? logits[i] : most;
    for (i64 i = 0; i < last; i += LANES) {
        vec e = exponential((load(logits + i) - most) * scale);
        for (i64 c = vocab; c < i + LANES; c++) e[c - i] = 0;
        store(work + i, e);
        all += e;
    }
    float total = sum(all);
    if (temperature == 0) {
        while (logits[found] < most) found++;
    } else {
        double target = uniform * total, before = 0;
        i64 block = 0;
        for (; block + LANES < last; block += LANES) {
            double next = before + sum(load(work + block));
            if (next > target) break;
            before = next;
        }
        for (i64 i = block; i < block + LANES && i < vocab; i++) {
            if (work[i] > 0) found = i; /* the last likely one, where rounding leaves none above the target */
            if ((before += work[i]) > target) break;
        }
    }
    *token = found;
    *logprob = (logits[found] - most) * scale - logf(total);
}

/* Returns 0, or 1 where there is no memory. */
int step(const Model *m, const Cache *cache, const Rows *rows) {
    i64 hidden = m->hidden, wide = (m->heads + 2 * m->groups) * m->size, many = m->heads * m->size;
    i64 round = PANEL - 1, qkv_n = (wide + round) / PANEL * PANEL, out_n = (hidden + round) / PANEL * PANEL;
    i64 gate_n = (2 * m->inner + round) / PANEL * PANEL, head_n = (m->vocab + round) / PANEL * PANEL, longest = 0;
    for (i64 b = 0; b < rows->count; b++) {
        i64 length = rows->before[b] + rows->column[b] + 1 + 3 * LANES;
        longest = length > longest ? length : longest;
    }
    i64 largest = qkv_n > gate_n ? qkv_n : gate_n;
    largest = head_n > largest ? head_n : largest;
    i64 sizes = TILE * (2 * hidden + out_n + largest + (many > m->inner ? many : m->inner)) + longest + head_n;
    float *memory = malloc((sizes + LANES) * sizeof(float));
    if (!memory) return 1;
    float *stream = memory, *normed = stream + TILE * hidden, *added = normed + TILE * hidden;
    float *big = added + TILE * out_n, *mixed = big + TILE * largest;
    float *scores = mixed + TILE * (many > m->inner ? many : m->inner), *work = scores + longest;
    for (i64 at = 0; at < rows->count; at += TILE) {
        i64 count = rows->count - at < TILE ? rows->count - at : TILE;
        memset(stream, 0, count * hidden * sizeof(float));
        for (i64 r = 0; r < count; r++)
            memcpy(added + r * out_n, m->embed + rows->token[at + r] * hidden, hidden * sizeof(float));
        for (i64 layer = 0; layer < m->layers; layer++) {
            const float **w = m->weights + 9 * layer;
            add_norm(count, hidden, added, out_n, stream, w[0], m->eps, normed);
            linear(count, hidden, qkv_n, normed, w[1], w[2], big);
            for (i64 r = 0; r < count; r++)
                attend(m, cache, rows, layer, at + r, big + r * qkv_n, scores, mixed + r * many);
            linear(count, many, out_n, mixed, w[5], NULL, added);
            add_norm(count, hidden, added, out_n, stream, w[6], m->eps, normed);
            linear(count, hidden, gate_n, normed, w[7], NULL, big);
            for (i64 r = 0; r < count; r++)
                for (i64 i = 0; i < m->inner; i += LANES) {
                    vec gate = load(big + r * gate_n + i), up = load(big + r * gate_n + m->inner + i);
                    vec e = exponential(pick(gate < 0, gate, -gate)); /* of the side that cannot overflow */
                    store(mixed + r * m->inner + i, pick(gate < 0, gate * e, gate) / (1.0f + e) * up);
                }
            linear(count, m->inner, out_n, mixed, w[8], NULL, added);
        }
        add_norm(count, hidden, added, out_n, stream, m->norm, m->eps, normed);
        if (rows->hidden) memcpy(rows->hidden + at * hidden, normed, count * hidden * sizeof(float));
        linear(count, hidden, head_n, normed, m->head, NULL, big);
        for (i64 r = 0; r < count; r++) {
            i64 b = at + r;
            draw(big + r * head_n, m->vocab, rows->uniform[b * rows->columns + rows->place[b]], rows->temperature[b],
                 work, rows->drawn + b, rows->logprob + b);
        }
    }
    free(memory);
    return 0;
}
