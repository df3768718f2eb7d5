/* SPDX-License-Identifier: MIT */
/* lower.c - a rank's step program: what it is lowered from, and the proof that it can run. */
#include "sched/lower.h"

#include "base/mem.h"
#include "exec/net_face.h"
#include "exec/remote.h"
#include "exec/state.h"
#include "sched/verify.h"

/* What the ranks of a node run; all know it of all nodes. */
static struct lower_config config_of(const struct exec *exec, int node)
{
    const struct exec_config *config = &exec->config;
    const bool has_one_shard = exec->topology.job_lanes == exec->topology.shards;

    return (struct lower_config){
        .topology = { .nodes = exec->topology.nodes,
                      .node_ranks = transport_node_size(exec->transport, node),
                      .lanes = exec->topology.n_lanes,
                      .rails = exec->topology.nodes > 1 ? net_rails(exec) : 0 },
        .workers = { .count = config->workers.count,
                     .index = config->workers.index,
                     .nodes = config->workers.nodes },
        .compresses = config->compress.codec != NULL,
        .gives = exec->remote != NULL,
        .is_direct = exec->remote && exec->remote->is_direct,
        .is_device = config->device != NULL,
        .releases = exec->layout.releases,
        .window = exec->layout.releases && has_one_shard ? exec->layout.window : 0,
        .has_steps = config->batch > 0,
        .clips_samples = config->privacy != NULL,
        .in_arena = exec->layout.buckets.pass,
        .shares_tensor = config->tensor_memory != NULL,
        .pipeline = exec->layout.buckets.pipeline,
    };
}

/* Nodes of one size have one program: is this one the first of its size? */
static bool is_first_of_size(const struct exec *exec, int node)
{
    const int size = transport_node_size(exec->transport, node);

    for (int other = 0; other < node; other++) {
        if (transport_node_size(exec->transport, other) == size)
            return false;
    }
    return true;
}

static int64_t most_shards(const struct exec *exec)
{
    int64_t most = 0, first, count;

    for (int lane = 0; lane < exec->topology.job_lanes; lane++) {
        exec_lane_row(exec, lane, &first, &count);
        most = count > most ? count : most;
    }
    return most;
}

/* No step can race, or wait for ever, on any node. */
static enum status verify(const struct exec *exec)
{
    const int own_size = transport_node_size(exec->transport, exec->topology.node);
    const struct program **programs; /* this node's, and those of nodes of other sizes */
    struct program *other;
    enum status status = STATUS_OK;
    int n = 1;

    TRY(program_verify(exec->program));
    TRY(mem_alloc((size_t)exec->topology.nodes, sizeof *programs, &programs));
    programs[0] = exec->program;
    for (int node = 0; node < exec->topology.nodes && status == STATUS_OK; node++) {
        const struct lower_config config = config_of(exec, node);
        if (config.topology.node_ranks == own_size || !is_first_of_size(exec, node))
            continue;
        status = program_lower(exec->config.train, &config, &other);
        if (status == STATUS_OK)
            programs[n++] = other;
    }
    if (status == STATUS_OK)
        status = program_verify_nodes(programs, n, most_shards(exec));
    while (--n > 0)
        program_destroy((struct program *)programs[n]);
    mem_free(programs);
    return status;
}

static enum status verify_pipeline(const struct exec *exec)
{
    const struct exec_pipeline *pipeline = &exec->config.pipeline;
    const struct pipe_config config = { .kind = pipeline->kind,
                                        .stages = pipeline->stages,
                                        .chunks = pipeline->chunks,
                                        .shards = exec_shard_count(exec) };

    if (pipeline->stages < 2 || exec->config.batch == 0)
        return STATUS_OK;
    TRY(pipe_check(&config));
    return pipe_verify(exec->config.train, &config);
}

enum status exec_make_program(struct exec *exec)
{
    const struct lower_config config = config_of(exec, exec->topology.node);

    TRY(program_lower(exec->config.train, &config, &exec->program));
    exec->account.program = exec->program;
    TRY(verify(exec));
    TRY(verify_pipeline(exec));
    return account_name_tasks(&exec->account);
}

const struct program *exec_program(const struct exec *exec)
{
    return exec->program;
}

void exec_destroy_program(struct exec *exec)
{
    program_destroy(exec->program);
}
