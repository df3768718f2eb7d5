/* SPDX-License-Identifier: MIT */
/* cell.cu - cells of LSTM and GRU, and additive attention, one step at a time.
 *
 * The formulas are those of cpu/reference_recurrent.c and cpu/reference_attend.c. A thread has one unit of one
 * row; a block has the attention of one row. The products between them are gemm.h's.
 */
#include "kernel/cuda/cell.h"
#include "kernel/cuda/device.cuh"

__global__ void begin_rows(struct cell_at a, const float *first, float *last, float *before)
{
    const int64_t i = thread_number(), row = i / a.state_row, j = i % a.state_row;

    if (row >= a.rows)
        return;
    const float x = first ? first[i] : 0;
    last[i] = x;
    if (j < a.units)
        before[row * a.steps * a.units + j] = x;
}

void cell_begin(struct device_stream *stream, const struct cell_at *at, const float *first,
                const struct cell_forward *cell)
{
    begin_rows<<<blocks_of(at->rows * at->state_row, THREADS), THREADS, 0, stream->cuda>>>(
        *at, first, cell->last, cell->before);
    stream_check(stream, "recurrent");
}

__global__ void step_rows(struct cell_at a, struct cell_forward f)
{
    const int64_t i = thread_number(), row = i / a.units, j = i % a.units, H = a.units;

    if (row >= a.rows)
        return;
    const int64_t step = row * a.steps + a.t, at = step * H + j, gate = step * a.gates + j;
    const float *hidden = f.hidden + row * a.gates + j;
    const bool is_over = f.ids[step] < 0;
    float *state = f.last + row * a.state_row + j;
    float h;

    if (a.is_lstm) {
        const float c = state[H];
        const float in = sigmoid_of(f.gates[gate] + f.bias[j] + hidden[0]);
        const float forget = sigmoid_of(f.gates[gate + H] + f.bias[H + j] + hidden[H]);
        const float g = tanhf(f.gates[gate + 2 * H] + f.bias[2 * H + j] + hidden[2 * H]);
        const float out = sigmoid_of(f.gates[gate + 3 * H] + f.bias[3 * H + j] + hidden[3 * H]);
        const float next = fmaf(forget, c, in * g);
        h = out * tanhf(next);
        f.acts[gate] = in;
        f.acts[gate + H] = forget;
        f.acts[gate + 2 * H] = g;
        f.acts[gate + 3 * H] = out;
        f.kept[at] = c;
        if (!is_over)
            state[H] = next;
    } else {
        const float old = state[0], q = f.bias[2 * H + j] + hidden[2 * H];
        const float reset = sigmoid_of(f.gates[gate] + f.bias[j] + hidden[0]);
        const float z = sigmoid_of(f.gates[gate + H] + f.bias[H + j] + hidden[H]);
        const float n = tanhf(fmaf(reset, q, f.gates[gate + 2 * H]));
        h = fmaf(z, old, (1 - z) * n);
        f.acts[gate] = reset;
        f.acts[gate + H] = z;
        f.acts[gate + 2 * H] = n;
        f.kept[at] = q;
    }
    f.y[at] = is_over ? 0 : h;
    if (!is_over)
        state[0] = h;
    if (a.t + 1 < a.steps)
        f.before[at + H] = state[0];
}

void cell_step(struct device_stream *stream, const struct cell_at *at,
               const struct cell_forward *cell)
{
    step_rows<<<blocks_of(at->rows * at->units, THREADS), THREADS, 0, stream->cuda>>>(*at,
                                                                                      *cell);
    stream_check(stream, "recurrent");
}

__global__ void step_rows_back(struct cell_at a, struct cell_backward b)
{
    const int64_t i = thread_number(), row = i / a.units, j = i % a.units, H = a.units;

    if (row >= a.rows)
        return;
    const int64_t step = row * a.steps + a.t, at = step * H + j, gate = step * a.gates + j;
    float *dstate = b.dstate + row * a.state_row + j;
    const int n_gates = a.is_lstm ? 4 : 3;
    float act[4], dgates[4] = { 0 }, dhidden[4] = { 0 };

    for (int g = 0; g < n_gates; g++)
        act[g] = b.acts[gate + g * H];
    if (b.ids[step] >= 0) {
        const float dh = dstate[0] + (b.dy ? b.dy[at] : 0), kept = b.kept[at];
        if (a.is_lstm) {
            const float bent = tanhf(fmaf(act[1], kept, act[0] * act[2]));
            const float dc = dstate[H] + dh * act[3] * (1 - bent * bent);
            dgates[0] = dc * act[2] * act[0] * (1 - act[0]);
            dgates[1] = dc * kept * act[1] * (1 - act[1]);
            dgates[2] = dc * act[0] * (1 - act[2] * act[2]);
            dgates[3] = dh * bent * act[3] * (1 - act[3]);
            dstate[0] = 0;
            dstate[H] = dc * act[1];
        } else {
            const float reset = act[0], z = act[1], n = act[2];
            const float dn = dh * (1 - z) * (1 - n * n);
            dgates[0] = dhidden[0] = dn * kept * reset * (1 - reset);
            dgates[1] = dhidden[1] = dh * (b.before[at] - n) * z * (1 - z);
            dgates[2] = dn;
            dhidden[2] = dn * reset;
            dstate[0] = dh * z;
        }
    }
    for (int g = 0; g < n_gates; g++) {
        b.dgates[gate + g * H] = dgates[g];
        if (!a.is_lstm)
            b.dhidden[gate + g * H] = dhidden[g];
    }
}

void cell_step_back(struct device_stream *stream, const struct cell_at *at,
                    const struct cell_backward *cell)
{
    step_rows_back<<<blocks_of(at->rows * at->units, THREADS), THREADS, 0, stream->cuda>>>(
        *at, *cell);
    stream_check(stream, "recurrent");
}

/* Attention ---------------------------------------------------------------------------- */

enum { ATTEND_THREADS = 128 };

__global__ void attend_row(struct attend_at a, struct attend_forward f)
{
    const int64_t row = blockIdx.x, step = row * a.at.steps + a.at.t;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const float *query = f.query + step * a.keys, *keys = f.keys + row * a.places * a.keys;
    const float *memory = f.memory + row * a.places * a.memory;
    const int32_t *source = f.source + row * a.places;
    float *weights = f.weights + step * a.places;
    float largest = -INFINITY, total = 0;

    for (int64_t s = warp; s < a.places; s += ATTEND_THREADS / WARP) {
        float score = 0;
        for (int64_t k = lane; k < a.keys; k += WARP)
            score = fmaf(f.score[k], tanhf(query[k] + keys[s * a.keys + k]), score);
        score = warp_sum(score);
        if (lane == 0)
            weights[s] = source[s] < 0 ? -INFINITY : score;
    }
    __syncthreads();
    for (int64_t s = threadIdx.x; s < a.places; s += ATTEND_THREADS)
        largest = fmaxf(largest, weights[s]);
    largest = block_max(largest);
    for (int64_t s = threadIdx.x; s < a.places; s += ATTEND_THREADS)
        total += weights[s] > -INFINITY ? expf(weights[s] - largest) : 0;
    total = block_sum(total);
    for (int64_t s = threadIdx.x; s < a.places; s += ATTEND_THREADS)
        weights[s] = weights[s] > -INFINITY ? expf(weights[s] - largest) / total : 0;
    __syncthreads();
    for (int64_t e = threadIdx.x; e < a.memory; e += ATTEND_THREADS) {
        float sum = 0;
        for (int64_t s = 0; s < a.places; s++)
            sum = fmaf(weights[s], memory[s * a.memory + e], sum);
        f.context[step * a.memory + e] = sum;
    }
}

void attend_step(struct device_stream *stream, const struct attend_at *at,
                 const struct attend_forward *attend)
{
    attend_row<<<(unsigned)at->at.rows, ATTEND_THREADS, 0, stream->cuda>>>(*at, *attend);
    stream_check(stream, "lstm_attend");
}

__global__ void attend_row_back(struct attend_at a, struct attend_backward b)
{
    const int64_t row = blockIdx.x, step = row * a.at.steps + a.at.t;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const float *query = b.query + step * a.keys, *keys = b.keys + row * a.places * a.keys;
    const float *memory = b.memory + row * a.places * a.memory;
    const float *weights = b.weights + step * a.places, *dcontext = b.dcontext + row * a.memory;
    float *dkeys = b.dkeys + row * a.places * a.keys, *flow = b.flow + row * a.places;
    float *dmemory = b.dmemory + row * a.places * a.memory;
    float mean = 0;

    for (int64_t s = warp; s < a.places; s += ATTEND_THREADS / WARP) {
        float sum = 0;
        for (int64_t e = lane; e < a.memory; e += WARP) {
            sum = fmaf(dcontext[e], memory[s * a.memory + e], sum);
            dmemory[s * a.memory + e] += weights[s] * dcontext[e];
        }
        sum = warp_sum(sum);
        if (lane == 0)
            flow[s] = sum;
    }
    __syncthreads();
    for (int64_t s = threadIdx.x; s < a.places; s += ATTEND_THREADS)
        mean = fmaf(weights[s], flow[s], mean);
    mean = block_sum(mean);
    for (int64_t k = threadIdx.x; k < a.keys; k += ATTEND_THREADS) {
        float dquery = 0, dscore = b.dscore[row * a.keys + k];
        for (int64_t s = 0; s < a.places; s++) {
            const float d = weights[s] * (flow[s] - mean);
            const float u = tanhf(query[k] + keys[s * a.keys + k]);
            const float down = d * b.score[k] * (1 - u * u);
            dscore = fmaf(d, u, dscore);
            dkeys[s * a.keys + k] += down;
            dquery += down;
        }
        b.dquery[step * a.keys + k] = dquery;
        b.dscore[row * a.keys + k] = dscore;
    }
}

void attend_step_back(struct device_stream *stream, const struct attend_at *at,
                      const struct attend_backward *attend)
{
    attend_row_back<<<(unsigned)at->at.rows, ATTEND_THREADS, 0, stream->cuda>>>(*at, *attend);
    stream_check(stream, "lstm_attend_grad");
}
