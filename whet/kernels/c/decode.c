/* One decode step of a small float32 model on a CPU: all layers, the head, the draw and its record.
 *
 * Every row is computed by itself, in one order, so its result does not depend on the rows beside it. Products are
 * summed over k from first to last; scores, norms, softmax and the mix of values always use the same partial sums.
 * whet/engine/cpu/compiled_cache.py lays out the arguments, and tests compare the result with plain torch.
 */
#include "vectors.h"

#include <omp.h>

#define BLOCK 16 /* tokens of a row that lie together, as in whet/engine/cpu/dense_cache.py */
#define TILE 48  /* rows that go through all layers together */

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
void decode_pack(const float *w, i64 n, i64 k, float *to) {
    for (i64 at = 0; at < n; at += PANEL)
        for (i64 i = 0; i < k; i++)
            for (i64 c = at; c < at + PANEL; c++) *to++ = c < n ? w[c * k + i] : 0.0f;
}

i64 decode_panel(void) { return PANEL; }

/* The factor that gives a vector a root mean square of 1. */
static inline float scale_of(const float *x, i64 n, float eps) {
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

/* Norm of a head if the family has one, rotation, and a factor. */
static void rotate(const float *x, i64 n, const float *table, const float *weight, float eps, float factor, float *to) {
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

/* Scores of LANES keys, stored transposed: dimension by dimension, ld apart. */
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

/* to += the values of `count` tokens, each times its share. */
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

typedef struct { /* NULL if a model does not have it; matrices are stored in panels */
    const float *input_norm, *qkv, *qkv_bias, *q_norm, *k_norm, *out, *post_norm, *gate_up, *down;
} Layer;

typedef struct {
    i64 num_layers, hidden, inner, heads, groups, size, vocab;
    float eps;
    const float *embed, *rope, *norm, *head;
    const Layer *layers;
} Model;

typedef struct {
    const float *keys;          /* of prompts, transposed: [layers, prompts, groups, size, columns] */
    const float *prompt;        /* keys and values of prompts: [layers, 2, prompts, groups, length, size] */
    i64 prompts, columns, length;
    float **blocks; /* [layers, 2, slots, groups, BLOCK, size] each; keys lie transposed: [size, BLOCK] */
    i64 num_blocks, slots;
} Cache;

typedef struct {
    i64 used, threads, columns;
    i64 *token, *count, *live; /* a step updates these, as InputBatch does in whet/engine/input_batch.py */
    const i64 *first, *fetched, *limit, *seed;
    const float *temperature;
    int32_t *output;
    const i64 *slot, *prompt, *length; /* where a row keeps its tokens, its prompt, and how long each prompt is */
    const char *is_stop;
    float *hidden; /* the final states, if wanted; the caller then advances the rows */
} Rows;

/* Attention of a row's new token to its prompt and to all that the row has added, itself included. */
static void attend(const Model *m, const Cache *cache, const Rows *rows, i64 layer, i64 b, const float *qkv,
                   float *scores, float *to) {
    const Layer *w = m->layers + layer;
    i64 n = m->size, slot = rows->slot[b], before = rows->length[rows->prompt[b]];
    i64 position = rows->first[b] + rows->count[b], column = position - before, block = column / BLOCK;
    i64 place = column % BLOCK, padded = (before + LANES - 1) / LANES * LANES, total = padded + (block + 1) * BLOCK;
    const float *table = m->rope + position * n;
    i64 apart = cache->slots * m->groups * BLOCK * n; /* from keys to values, and half of a layer */
    float rotated[n];
    for (i64 g = 0; g < m->groups; g++) {
        i64 line = rows->prompt[b] * m->groups + g, lines = cache->prompts * m->groups;
        i64 own = 2 * layer * apart + (slot * m->groups + g) * BLOCK * n;
        const float *keys = cache->keys + (layer * lines + line) * n * cache->columns;
        const float *values = cache->prompt + ((2 * layer + 1) * lines + line) * n * cache->length;
        rotate(qkv + (m->heads + g) * n, n, table, w->k_norm, m->eps, 1.0f, rotated);
        float *own_keys = cache->blocks[block] + own;
        for (i64 i = 0; i < n; i++) own_keys[i * BLOCK + place] = rotated[i];
        memcpy(own_keys + apart + place * n, qkv + (m->heads + m->groups + g) * n, n * sizeof(float));
        for (i64 y = g * (m->heads / m->groups); y < (g + 1) * (m->heads / m->groups); y++) {
            rotate(qkv + y * n, n, table, w->q_norm, m->eps, 1.0f / sqrtf((float)n), rotated);
            for (i64 c = 0; c < padded; c += LANES) store(scores + c, score(rotated, keys + c, cache->columns, n));
            for (i64 c = before; c < padded; c++) scores[c] = -INFINITY;
            for (i64 j = 0; j <= block; j++)
                store(scores + padded + j * BLOCK, score(rotated, cache->blocks[j] + own, BLOCK, n));
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
            mix(scores + padded + block * BLOCK, own_keys + apart, place + 1, n, mixed);
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
            if (work[i] > 0) found = i; /* the last likely one, if rounding leaves none above the target */
            if ((before += work[i]) > target) break;
        }
    }
    *token = found;
    *logprob = (logits[found] - most) * scale - logf(total);
}

/* The number in [0, 1) that draws a row's next token: see `uniforms` in whet/engine/input_batch.py. */
static double uniform(uint64_t seed, uint64_t count) {
    uint64_t x = seed + (count + 1) * 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

/* Sample a row's next token and store it, as `append_tokens` does in whet/engine/input_batch.py. */
static void next(const Model *m, const Rows *rows, i64 b, const float *logits, float *work) {
    i64 token, column = 2 + rows->count[b] - rows->fetched[b];
    float logprob;
    draw(logits, m->vocab, uniform(rows->seed[b], rows->count[b]), rows->temperature[b], work, &token, &logprob);
    int32_t *output = rows->output + b * (2 + 2 * rows->columns) + column;
    *output = token;
    memcpy(output + rows->columns, &logprob, sizeof(float));
    if (rows->hidden) return;
    rows->token[b] = token;
    rows->count[b] += rows->live[b];
    if (rows->is_stop[token] || rows->count[b] >= rows->limit[b]) rows->live[b] = 0;
}

static inline i64 most(i64 a, i64 b) { return a > b ? a : b; }
static inline i64 least(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 panels(i64 n) { return (n + PANEL - 1) / PANEL * PANEL; }

/* All layers for `count` rows, and what comes of them. */
static void forward(const Model *m, const Cache *cache, const Rows *rows, i64 at, i64 count, float *memory) {
    i64 hidden = m->hidden, many = m->heads * m->size, qkv_n = panels((m->heads + 2 * m->groups) * m->size);
    i64 out_n = panels(hidden), gate_n = panels(2 * m->inner), head_n = panels(m->vocab);
    float *stream = memory, *normed = stream + TILE * hidden, *added = normed + TILE * hidden;
    float *big = added + TILE * out_n, *mixed = big + TILE * most(most(qkv_n, gate_n), head_n);
    float *scores = mixed + TILE * most(many, m->inner);
    memset(stream, 0, count * hidden * sizeof(float));
    for (i64 r = 0; r < count; r++)
        memcpy(added + r * out_n, m->embed + rows->token[at + r] * hidden, hidden * sizeof(float));
    for (i64 layer = 0; layer < m->num_layers; layer++) {
        const Layer *w = m->layers + layer;
        add_norm(count, hidden, added, out_n, stream, w->input_norm, m->eps, normed);
        linear(count, hidden, qkv_n, normed, w->qkv, w->qkv_bias, big);
        for (i64 r = 0; r < count; r++)
            attend(m, cache, rows, layer, at + r, big + r * qkv_n, scores, mixed + r * many);
        linear(count, many, out_n, mixed, w->out, NULL, added);
        add_norm(count, hidden, added, out_n, stream, w->post_norm, m->eps, normed);
        linear(count, hidden, gate_n, normed, w->gate_up, NULL, big);
        for (i64 r = 0; r < count; r++)
            for (i64 i = 0; i < m->inner; i += LANES) {
                vec gate = load(big + r * gate_n + i), up = load(big + r * gate_n + m->inner + i);
                vec e = exponential(pick(gate < 0, gate, -gate)); /* of the side that cannot overflow */
                store(mixed + r * m->inner + i, pick(gate < 0, gate * e, gate) / (1.0f + e) * up);
            }
        linear(count, m->inner, out_n, mixed, w->down, NULL, added);
    }
    add_norm(count, hidden, added, out_n, stream, m->norm, m->eps, normed);
    if (rows->hidden) memcpy(rows->hidden + at * hidden, normed, count * hidden * sizeof(float));
    linear(count, hidden, head_n, normed, m->head, NULL, big);
    for (i64 r = 0; r < count; r++) next(m, rows, at + r, big + r * head_n, scores);
}

/* Returns 0, or the number of blocks needed if there are fewer, or -1 if there is no memory. */
int decode_step(const Model *m, const Cache *cache, const Rows *rows) {
    i64 wide = most(most((m->heads + 2 * m->groups) * m->size, 2 * m->inner), m->vocab), longest = panels(m->vocab);
    i64 blocks = 0;
    for (i64 b = 0; b < rows->used; b++) {
        i64 length = rows->first[b] + rows->count[b] + 1;
        longest = most(longest, length + 3 * LANES);
        blocks = most(blocks, (length - rows->length[rows->prompt[b]] + BLOCK - 1) / BLOCK);
    }
    if (blocks > cache->num_blocks) return blocks;
    i64 rest = 2 * m->hidden + panels(m->hidden) + panels(wide) + most(m->heads * m->size, m->inner);
    i64 size = TILE * rest + longest + LANES;
    float *memory = malloc(rows->threads * size * sizeof(float));
    if (!memory) return -1;
    i64 taken = 0;
#pragma omp parallel num_threads(rows->threads)
    for (;;) {
        i64 at, count;
#pragma omp critical
        {
            /* Fewer towards the end, so that all threads end together. */
            i64 share = ((rows->used - taken) / rows->threads + ROWS - 1) / ROWS * ROWS;
            at = taken, count = least(least(most(share, ROWS), TILE), rows->used - taken);
            taken += count;
        }
        if (!count) break;
        forward(m, cache, rows, at, count, memory + omp_get_thread_num() * size);
    }
    free(memory);
    return 0;
}
