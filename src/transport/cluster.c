/* SPDX-License-Identifier: MIT */
/* cluster.c - reads what starters say, from a table of which variables they use. */
#include "transport/cluster.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "transport/hosts.h"

static const char *own_variable(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

const struct environment cluster_environment = { own_variable, NULL };

/* Variables of a starter; NULL where it has none. It is there if `sign` is set. */
struct dialect {
    enum starter starter;
    const char *name;
    const char *sign, *rank, *size, *other_size, *local_rank, *local_size;
};

/* First the starters that may run inside others. */
static const struct dialect dialects[] = {
    { STARTER_OPENMPI, "mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE", NULL, "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE" },
    { STARTER_MPICH, "mpiexec of MPICH", "PMI_RANK", "PMI_RANK", "PMI_SIZE", NULL,
      "MPI_LOCALRANKID", "MPI_LOCALNRANKS" },
    { STARTER_PMIX, "a starter that speaks PMIx", "PMIX_NAMESPACE", "PMIX_RANK",
      "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", NULL, NULL },
    { STARTER_SLURM, "srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
      "SLURM_NTASKS", NULL, NULL },
};
enum { DIALECTS = sizeof dialects / sizeof *dialects };

static const char *look_up(const struct environment *environment, const char *name)
{
    return name ? environment->get(environment->arg, name) : NULL;
}

/* A number from 0 to `most`; `absent` if the variable is not there. */
static enum status read_number(const struct environment *environment, const char *name,
                               int most, int absent, int *out)
{
    const char *text = look_up(environment, name);

    *out = absent;
    if (!text)
        return STATUS_OK;
    if (!hosts_whole_number(text, strlen(text), most, out))
        return FAIL(STATUS_USAGE, "the environment has %s=%.60s: a number up to %d is meant",
                    name, text, most);
    return STATUS_OK;
}

/* Where on this machine a task of Slurm is: for ranks that srun started, whichever way they find
 * each other. */
static enum status read_slurm_place(const struct environment *environment, struct cluster *c)
{
    const char *tasks = look_up(environment, "SLURM_STEP_TASKS_PER_NODE");
    int task, node;

    TRY(read_number(environment, "SLURM_PROCID", HOSTS_MAX, -1, &task));
    if (task != c->rank)
        return STATUS_OK;
    TRY(read_number(environment, "SLURM_LOCALID", HOSTS_MAX, -1, &c->local_rank));
    TRY(read_number(environment, "SLURM_NODEID", HOSTS_MAX, -1, &node));
    if (!tasks || node < 0)
        return STATUS_OK;
    struct task_counts counts;
    if (task_counts_parse(tasks, &counts) != STATUS_OK)
        return FAIL(STATUS_USAGE, "the environment has SLURM_STEP_TASKS_PER_NODE: %s",
                    status_message());
    if (node >= counts.n_nodes || (c->size && counts.n_tasks != c->size))
        return FAIL(STATUS_USAGE,
                    "the environment has SLURM_STEP_TASKS_PER_NODE=%.60s, that is %d tasks on "
                    "%d nodes, but node %d and %d tasks",
                    tasks, counts.n_tasks, counts.n_nodes, node, c->size);
    c->local_size = counts.tasks[node];
    return STATUS_OK;
}

static enum status read_dialect(const struct environment *environment, const struct dialect *d,
                                struct cluster *c)
{
    const char *size_name = look_up(environment, d->size) ? d->size : d->other_size;

    c->starter = d->starter;
    TRY(read_number(environment, d->rank, HOSTS_MAX, 0, &c->rank));
    if (size_name)
        TRY(read_number(environment, size_name, HOSTS_MAX, 0, &c->size));
    TRY(read_number(environment, d->local_rank, HOSTS_MAX, -1, &c->local_rank));
    TRY(read_number(environment, d->local_size, HOSTS_MAX, 0, &c->local_size));
    if (c->local_rank < 0)
        TRY(read_slurm_place(environment, c));
    if (c->size && c->rank >= c->size)
        return FAIL(STATUS_USAGE, "the environment has %s=%d and %s=%d: ranks begin with 0",
                    d->rank, c->rank, size_name, c->size);
    if (c->local_size && c->local_rank >= c->local_size)
        return FAIL(STATUS_USAGE,
                    "the environment says rank %d of this machine, which has %d of them",
                    c->local_rank, c->local_size);
    return STATUS_OK;
}

enum status cluster_discover(const struct environment *environment, struct cluster *out)
{
    const struct cluster alone = { STARTER_NONE, 0, 1, 0, 1 };

    const char *wish = look_up(environment, "TUTTI_MPI");

    *out = alone;
    if (wish && strcmp(wish, "off") == 0)
        return STATUS_OK;
    for (int i = 0; i < DIALECTS; i++) {
        struct cluster found = { STARTER_NONE, 0, 0, -1, 0 };
        if (!look_up(environment, dialects[i].sign))
            continue;
        TRY(read_dialect(environment, &dialects[i], &found));
        if (found.size != 1) /* one process may start others as it likes */
            *out = found;
        return STATUS_OK;
    }
    return STATUS_OK;
}

int cluster_threads(const struct cluster *cluster)
{
    const int ranks = cluster->local_size ? cluster->local_size : cluster->size;
    cpu_set_t set;
    const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    return ranks > 0 && cores > ranks ? cores / ranks : 1;
}

enum starter cluster_starter(const struct environment *environment)
{
    struct cluster cluster;

    return cluster_discover(environment, &cluster) == STATUS_OK ? cluster.starter
                                                                : STARTER_NONE;
}

const char *cluster_starter_name(enum starter starter)
{
    for (int i = 0; i < DIALECTS; i++) {
        if (dialects[i].starter == starter)
            return dialects[i].name;
    }
    return "nobody";
}
