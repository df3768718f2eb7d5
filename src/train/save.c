/* SPDX-License-Identifier: MIT */
/* save.c - checkpoints of a run: rank 0's copy of parameters and state, and what is saved beside
 * it. */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "train/loss_scale.h"
#include "train/regime.h"

enum status rank_make_copy(struct rank *rank)
{
    const struct run *run = rank->run;
    struct weights_extra extra = {
        .workers = 1,
        .streams = rank_streams(rank),
        .grid = rank->grid,
        .graph = rank->job->graph,
        .file = run->checkpoint ? checkpoint_weights(run->checkpoint) : run->init,
        .seed = rank->job->settings.seed,
    };

    if (rank->regime->extra)
        rank->regime->extra(rank, &extra);
    weights_copy_destroy(rank->save.copy);
    rank->save.copy = NULL;
    return rank->is_first ? weights_copy_create(rank->exec, extra, &rank->save.copy)
                          : STATUS_OK;
}

void rank_take_copy(struct rank *rank)
{
    if (rank->is_first && !rank_streams(rank))
        weights_copy_take(rank->save.copy, rank->exec);
}

/* What is saved beside tensors. */
static enum status print_state(const struct rank *rank, const struct tally *epoch,
                               struct strbuf *state)
{
    char augment[AUGMENT_TEXT];
    const struct settings *s = &rank->job->settings;

    strbuf_printf(state,
                  "{\"step\": %llu, \"batch\": %lld, \"shards\": %lld, \"seed\": \"%llu\", "
                  "\"shuffle\": %s, \"drop_last\": %s, \"samples\": %lld, \"seconds\": ",
                  (unsigned long long)rank->step + 1, (long long)s->batch, (long long)s->shards,
                  (unsigned long long)s->seed, s->shuffle ? "true" : "false",
                  s->drop_last ? "true" : "false", (long long)rank->counts.samples);
    strbuf_add_number(state, rank_seconds(rank));
    strbuf_printf(state, ", \"epoch_samples\": %lld, \"epoch_weight\": %lld, \"epoch_loss\": ",
                  (long long)epoch->samples, (long long)epoch->weight);
    strbuf_add_number(state, epoch->loss);
    strbuf_add(state, ", \"epoch_correct\": ");
    strbuf_add_number(state, epoch->correct);
    strbuf_add(state, ", \"epoch_seconds\": ");
    strbuf_add_number(state, epoch->seconds);
    if (rank->regime->print_state)
        rank->regime->print_state(rank, state);
    TRY(loss_scale_print(rank->exec, state));
    strbuf_printf(state,
                  ", \"isa\": \"%s\", \"choices\": \"%s\", \"data\": \"%s\", "
                  "\"augment\": \"%s\"}",
                  kernel_isa(), kernel_choices_hash(rank->job->choices),
                  rank->job->train->fingerprint, augment_print(&rank->job->augment, augment));
    return strbuf_status(state);
}

/* Rank 0 writes; tensors that stream come from the others meanwhile. */
static enum status write_checkpoint(struct rank *rank, const struct tally *epoch)
{
    const struct settings *s = &rank->job->settings;
    const uint64_t step = rank->step + 1;
    struct strbuf state;
    char *folder;

    strbuf_init(&state, 64 << 10);
    enum status status = print_state(rank, epoch, &state);
    if (status == STATUS_OK)
        status = file_join(s->out, "checkpoint", &folder);
    if (status == STATUS_OK) {
        status = rank_streams(rank) ? weights_stream(rank->save.copy, rank->exec, folder, step,
                                                     state.text, (int)s->keep)
                                    : weights_copy_save(rank->save.copy, folder, step,
                                                        state.text, (int)s->keep);
        mem_free(folder);
    }
    strbuf_release(&state);
    TRY(status);
    rank->run->shared->saved_step = (int64_t)step;
    run_note_saved(rank->run);
    return STATUS_OK;
}

/* Rank 0 writes tensors as they come from the others. */
static enum status stream_checkpoint(struct rank *rank, const struct tally *epoch)
{
    if (rank->is_first)
        return write_checkpoint(rank, epoch);
    return rank->grid ? grid_serve(rank->grid, rank->exec)
                      : weights_stream(NULL, rank->exec, NULL, 0, NULL, 0);
}

enum status rank_save(struct rank *rank)
{
    const int64_t traced = trace_begin_rare(rank->tracing.row);
    const bool streams = rank_streams(rank);
    struct tally epoch = rank->epoch;

    rank->save.is_owed = false;
    TRY(streams ? exec_settle(rank->exec) : exec_collect(rank->exec));
    TRY(rank->regime->gather(rank, &epoch));
    if (streams)
        TRY(stream_checkpoint(rank, &epoch));
    TRY(exec_settle(rank->exec)); /* from here on the others may go on */
    rank->save.at = clock_seconds();
    if (!streams && !rank->is_first)
        return STATUS_OK;
    if (!streams)
        TRY(write_checkpoint(rank, &epoch));
    trace_end(rank->tracing.row, traced, TRACE_CHECKPOINT, "write a checkpoint", NULL);
    return STATUS_OK;
}
