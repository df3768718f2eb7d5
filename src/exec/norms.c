/* SPDX-License-Identifier: MIT */
/* norms.c - norms that must be known before anything is updated: for clipping, LARS and LAMB.
 *
 * Clipping needs the norm of all gradients, LARS that of each parameter and of its gradient, LAMB that
 * of each parameter and of the direction in which Adam would move it. A norm is made of sums of squares
 * of *pieces*: what a parameter has of a stretch, which is what one lane works on at once.
 *
 *   stretches   |-------|-------|-------|
 *   parameters  aaaaaaaaabbbbbbbbbbbccc..
 *   pieces       0       1 2     3  4          a: 0 1   b: 2 3   c: 4
 *
 * A step has two phases then. In the first the summed gradient is kept (sums->memory->sum), and who has a
 * stretch writes the squares of its pieces to arrays that all lanes see. When every lane has done
 * so, each adds the squares that it needs, from the first piece to the last, and updates. With LAMB and
 * clipping there is a phase between the two: directions are those of clipped gradients.
 *
 * Parameters begin with stretches (pass/bucket.c), so pieces follow from each parameter alone, and their sums from sums along the tree:
 * bits do not depend on lanes, ranks or stages. Stretches in a row have pieces in a row: who owns such stretches
 * writes one range of each array (norms_pieces), and no one else does. Running averages have
 * none.
 *
 * A table whose gradient has rows has no pieces either. Each row that occurs gives its squares, and these are added
 * exactly (kernel/exact.h), by whoever has summed the row: who that is does not change a bit.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "exec/exec.h"
#include "exec/layout.h"
#include "exec/norms.h"
#include "exec/pipe.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"
#include "kernel/device.h"

bool sums_scale_losses(const struct sums *sums)
{
    return sums->config->device && sums->config->device->precision == DTYPE_F16;
}

bool sums_need_norm(const struct sums *sums)
{
    return sums->layout->facts.rule.clips || sums_scale_losses(sums);
}

bool norms_are_used(const struct sums *sums)
{
    return sums_need_norm(sums) || sums->layout->facts.rule.adapts;
}

static int64_t stretches_of(const struct sums *sums, int b)
{
    const int64_t count = sums->layout->buckets.begin[b + 1] - sums->layout->buckets.begin[b];
    return (count + TREE_STRETCH - 1) / TREE_STRETCH;
}

/* Stretches of buckets before b. */
static int64_t stretches_before(const struct sums *sums, int b)
{
    int64_t count = 0;
    for (int i = 0; i < b; i++)
        count += stretches_of(sums, i);
    return count;
}

/* Pieces of one parameter, which begins at `offset` of bucket b. */
static void add_pieces(const struct sums *sums, struct norms *norms, int b, int param,
                       int64_t offset, int64_t length)
{
    norms->of_param[param] = norms->count;
    for (int64_t at = offset; at < offset + length;) {
        const int64_t stretch = at / TREE_STRETCH, end = (stretch + 1) * TREE_STRETCH;
        const int64_t count = (end < offset + length ? end : offset + length) - at;
        norms->pieces[norms->count++] =
            (struct piece){ .param = param,
                            .stretch = stretches_before(sums, b) + stretch,
                            .at = (size_t)(sums->layout->buckets.begin[b] + at),
                            .count = (size_t)count };
        at += count;
    }
}

enum status norms_create(const struct sums *sums, struct norms *norms)
{
    const int64_t stretches = stretches_before(sums, sums->layout->buckets.count);
    const size_t params = (size_t)sums->model->count;
    const size_t most = (size_t)stretches + params; /* a parameter cuts one stretch more */

    if (!norms_are_used(sums))
        return STATUS_OK;
    TRY(mem_alloc(most + 1, sizeof *norms->pieces, &norms->pieces));
    TRY(mem_alloc((size_t)stretches + 1, sizeof *norms->of_stretch, &norms->of_stretch));
    TRY(mem_alloc(params + 1, sizeof *norms->of_param, &norms->of_param));
    TRY(mem_alloc((size_t)sums->model->total + 1, sizeof(double), &norms->of_model));
    TRY(mem_alloc(2 * (size_t)sums->model->total + 1, sizeof(double), &norms->of_others));
    for (int b = 0; b < sums->layout->buckets.count; b++) {
        const bool has_none =
            sums->layout->updates[b].is_average || bucket_is_table(sums->layout, b);
        for (int p = 0; p < sums->model->count && !has_none; p++) {
            const struct value *value = sums->model->params[p];
            if (plan_bucket_of(value->flat) == b)
                add_pieces(sums, norms, b, p, value->offset, shape_count(&value->shape));
        }
    }
    for (int64_t s = 0, i = 0; s <= stretches; s++) {
        while (i < norms->count && norms->pieces[i].stretch < s)
            i++;
        norms->of_stretch[s] = i;
    }
    return STATUS_OK;
}

void norms_destroy(struct norms *norms)
{
    mem_free(norms->pieces);
    mem_free(norms->of_stretch);
    mem_free(norms->of_param);
    mem_free(norms->of_model);
    mem_free(norms->of_others);
}

size_t norms_row_sums(const struct sums *sums)
{
    const int threads = rows_threads(sums);

    return (size_t)(threads > sums->topology->nodes ? threads : sums->topology->nodes);
}

struct piece_range norms_pieces(const struct sums *sums, int b, int64_t first, int64_t end)
{
    const int64_t before = stretches_before(sums, b);

    return (struct piece_range){ sums->norms->of_stretch[before + first],
                                 sums->norms->of_stretch[before + end] };
}

/* The first phase ---------------------------------------------------------------------------- */

static struct piece_range pieces_of(const struct sums *sums, const struct stretch *stretch)
{
    return norms_pieces(sums, stretch->bucket, stretch->number, stretch->number + 1);
}

/* Sums of squares of a stretch's pieces of a flat vector. */
static void take_squares(const struct sums *sums, const struct stretch *stretch,
                         const float *vector, double *out)
{
    const struct piece_range range = pieces_of(sums, stretch);

    for (int64_t i = range.begin; i < range.end; i++) {
        const struct piece *piece = &sums->norms->pieces[i];
        out[i] = kernel_sum_squares(vector + piece->at, piece->count);
    }
}

/* Biases and norms, which have one extent, are left as they are: no decay and a ratio of 1. */
static bool is_adapted(const struct sums *sums, int param, const struct attrs *attrs)
{
    return attrs->adapts_all || sums->model->params[param]->shape.rank > 1;
}

static struct attrs attrs_of(const struct sums *sums, const struct stretch *stretch, int param)
{
    struct attrs attrs = sums->layout->updates[stretch->bucket].attrs;

    if (!is_adapted(sums, param, &attrs))
        attrs.weight_decay = 0;
    return attrs;
}

static void states_at(const struct sums *sums, size_t at, float *out[KERNEL_STATES])
{
    for (int i = 0; i < sums->layout->n_states; i++)
        out[i] = sums->memory->state[i] + at;
}

void norms_direct(const struct sums *sums, const struct stretch *stretch,
                  const struct kernel_update_step *numbers)
{
    const struct piece_range range = pieces_of(sums, stretch);

    for (int64_t i = range.begin; i < range.end; i++) {
        const struct piece *piece = &sums->norms->pieces[i];
        const struct attrs attrs = attrs_of(sums, stretch, piece->param);
        float *state[KERNEL_STATES] = { NULL }, *sum = sums->memory->sum + piece->at;

        states_at(sums, piece->at, state);
        sums->layout->updates[stretch->bucket].kernel->direct(
            sums->memory->param + piece->at, sum, state, sum, piece->count, &attrs, numbers);
    }
    take_squares(sums, stretch, sums->memory->sum, sums->norms->moves);
}

void norms_keep(const struct sums *sums, const struct stretch *stretch, const float *sum,
                const struct kernel_update_step *numbers)
{
    float *kept = sums->memory->sum + stretch->at;

    for (size_t i = 0; i < stretch->count; i++)
        kept[i] = sum[i];
    if (sums->layout->facts.rule.adapts)
        take_squares(sums, stretch, sums->memory->param, sums->norms->params);
    if (sums->layout->facts.rule.directs && !sums->layout->facts.rule.clips)
        norms_direct(sums, stretch, numbers);
    else
        take_squares(sums, stretch, sums->memory->sum, sums->norms->gradients);
}

/* The last phase ----------------------------------------------------------------------------- */

/* Of a table. */
static double squares_of_rows(const struct sums *sums, int b)
{
    const size_t count = norms_row_sums(sums);
    struct exact_sum sum = { { 0 }, 0, 0 };

    for (size_t i = 0; i < count; i++)
        exact_sum_join(&sum, &sums->norms->rows[(size_t)b * count + i]);
    return exact_sum_value(&sum);
}

static double squares_of(const struct sums *sums, const double *squares, int param)
{
    const struct norms *norms = sums->norms;
    const int b = plan_bucket_of(sums->model->params[param]->flat);
    double sum = 0;

    if (bucket_is_table(sums->layout, b))
        return squares_of_rows(sums, b);

    for (int64_t i = norms->of_param[param];
         i < norms->count && norms->pieces[i].param == param; i++)
        sum += squares[i];
    return sum;
}

static double norm_of(const struct sums *sums, const double *squares, int param)
{
    return sqrt(squares_of(sums, squares, param));
}

bool norms_count(const struct exec_config *config, const struct value *value)
{
    struct transport *shared = config->tensor;

    return value->kind == VALUE_PARAM &&
           (!shared || value->slice.count > 1 || transport_rank(shared) == 0);
}

/* Of every parameter of the model, its share; then all in the model's order, whoever has them. */
enum status norms_of_all(const struct sums *sums, double *out)
{
    const struct norms *norms = sums->norms;
    double squares = 0;

    if (!sums->config->beside.transport) {
        for (int p = 0; p < sums->model->count; p++)
            squares += sums->model->params[p]->kind == VALUE_PARAM
                           ? squares_of(sums, norms->gradients, p)
                           : 0;
        *out = sqrt(squares);
        return STATUS_OK;
    }
    memset(norms->of_model, 0, (size_t)sums->model->total * sizeof(double));
    for (int p = 0; p < sums->model->count; p++) {
        if (norms_count(sums->config, sums->model->params[p]))
            norms->of_model[sums->model->numbers[p]] = squares_of(sums, norms->gradients, p);
    }
    TRY(beside_add(&sums->config->beside, sums->beside_tag + 1, norms->of_model,
                   norms->of_others, sums->model->total));
    for (int i = 0; i < sums->model->total; i++)
        squares += norms->of_model[i];
    *out = sqrt(squares);
    return STATUS_OK;
}

/* LARS: trust ||w|| / (||g|| + decay ||w||), of the clipped gradient; LAMB: ||w|| / ||direction||.
 * Where a norm is 0 there is nothing to go by, and the ratio is 1. */
static float trust_of(const struct sums *sums, int param, const struct attrs *attrs,
                      const struct kernel_update_step *numbers)
{
    const struct norms *norms = sums->norms;

    if (!is_adapted(sums, param, attrs))
        return 1;
    const double weight = norm_of(sums, norms->params, param);
    double moves = 0, trust = 1;
    if (sums->layout->facts.rule.directs) {
        moves = norm_of(sums, norms->moves, param);
    } else {
        moves = (double)numbers->scale * norm_of(sums, norms->gradients, param);
        trust = (double)attrs->trust;
        if (moves > 0)
            moves += (double)attrs->weight_decay * weight;
    }
    return weight > 0 && moves > 0 ? (float)(trust * weight / moves) : 1;
}

void norms_update(const struct sums *sums, const struct stretch *stretch,
                  struct trusted *trusted, const struct kernel_update_step *numbers)
{
    const struct bucket *update = &sums->layout->updates[stretch->bucket];
    struct kernel_update_step own = *numbers;
    const struct piece_range range = pieces_of(sums, stretch);

    for (int64_t i = range.begin; i < range.end; i++) {
        const struct piece *piece = &sums->norms->pieces[i];
        const struct attrs attrs = attrs_of(sums, stretch, piece->param);
        float *state[KERNEL_STATES] = { NULL };

        if (trusted->param != piece->param)
            *trusted =
                (struct trusted){ piece->param, trust_of(sums, piece->param, &attrs, numbers) };
        own.trust = trusted->ratio;
        states_at(sums, piece->at, state);
        update->kernel->run(sums->memory->param + piece->at, sums->memory->sum + piece->at,
                            state, piece->count, &attrs, &own);
    }
}
