/* SPDX-License-Identifier: MIT */
/* cluster_test.c - environments as starters make them, and as they should not be. */
#include "transport/cluster.h"

#include <string.h>

#include "base/test.h"

/* An environment is a list of "NAME=value", ended by NULL. */
static const char *find(void *arg, const char *name)
{
    const size_t length = strlen(name);

    for (const char *const *line = arg; *line; line++) {
        if (strncmp(*line, name, length) == 0 && (*line)[length] == '=')
            return *line + length + 1;
    }
    return NULL;
}

struct example {
    const char *variables[12];
    struct cluster expected;
};

static const struct example examples[] = {
    { { "HOME=/root", NULL }, { STARTER_NONE, 0, 1, 0, 1 } },
    { { "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
        "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=3", "PMIX_NAMESPACE=x", NULL },
      { STARTER_OPENMPI, 3, 4, 1, 2 } },
    { { "PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=8", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2",
        NULL },
      { STARTER_MPICH, 1, 2, 1, 2 } },
    { { "PMI_RANK=1", "PMI_SIZE=2", NULL }, { STARTER_MPICH, 1, 2, -1, 0 } },
    { { "PMI_RANK=1", "PMI_SIZE=2", "PMI_JOBID=7.0", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1",
        "SLURM_LOCALID=1", "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2", NULL },
      { STARTER_MPICH, 1, 2, 1, 2 } },
    { { "PMIX_RANK=4", "PMIX_NAMESPACE=slurm.pmix.5.0", "SLURM_STEP_NUM_TASKS=5",
        "SLURM_PROCID=4", "SLURM_LOCALID=0", "SLURM_NODEID=2",
        "SLURM_STEP_TASKS_PER_NODE=2(x2),1", NULL },
      { STARTER_PMIX, 4, 5, 0, 1 } },
    { { "PMIX_RANK=1", "PMIX_NAMESPACE=prrte", NULL }, { STARTER_PMIX, 1, 0, -1, 0 } },
    { { "SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=8", "SLURM_PROCID=1", "SLURM_LOCALID=0", NULL },
      { STARTER_SLURM, 1, 2, 0, 0 } },
    /* A batch script is no task of a step. */
    { { "SLURM_NTASKS=8", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0",
        "SLURM_JOB_NODELIST=n[1-4]", NULL },
      { STARTER_NONE, 0, 1, 0, 1 } },
    /* mpirun inside an allocation of Slurm. */
    { { "SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0", "OMPI_COMM_WORLD_RANK=0",
        "OMPI_COMM_WORLD_SIZE=2", NULL },
      { STARTER_OPENMPI, 0, 2, -1, 0 } },
    /* One process may start ranks by itself. */
    { { "SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0", NULL }, { STARTER_NONE, 0, 1, 0, 1 } },
    { { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", NULL },
      { STARTER_NONE, 0, 1, 0, 1 } },
    /* Told to be alone. */
    { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "TUTTI_MPI=off", NULL },
      { STARTER_NONE, 0, 1, 0, 1 } },
};

static struct environment environment_of(const char *const *variables)
{
    return (struct environment){ find, (void *)variables };
}

static void test_examples(void)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct environment environment = environment_of(examples[i].variables);
        const struct cluster *expected = &examples[i].expected;
        struct cluster found;

        CHECK_OK(cluster_discover(&environment, &found));
        CHECK_INT(expected->starter, found.starter);
        CHECK_INT(expected->rank, found.rank);
        CHECK_INT(expected->size, found.size);
        CHECK_INT(expected->local_rank, found.local_rank);
        CHECK_INT(expected->local_size, found.local_size);
        CHECK_INT(expected->starter, cluster_starter(&environment));
    }
}

struct refusal {
    const char *variables[8], *message;
};

static const struct refusal refusals[] = {
    { { "OMPI_COMM_WORLD_RANK=x", "OMPI_COMM_WORLD_SIZE=2", NULL }, "OMPI_COMM_WORLD_RANK=x" },
    { { "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=2", NULL }, "begin with 0" },
    { { "PMI_RANK=0", "PMI_SIZE=-1", NULL }, "PMI_SIZE=-1" },
    { { "PMI_RANK=0", "PMI_SIZE=", NULL }, "PMI_SIZE=" },
    { { "PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=1", NULL },
      "rank 1 of this machine, which has 1" },
    { { "SLURM_STEP_NUM_TASKS=99999999999", NULL }, "SLURM_STEP_NUM_TASKS=99999999999" },
    { { "SLURM_STEP_NUM_TASKS=3", "SLURM_PROCID=0", "SLURM_NODEID=0",
        "SLURM_STEP_TASKS_PER_NODE=2(x3),1", NULL },
      "7 tasks on 4 nodes" },
    { { "SLURM_STEP_NUM_TASKS=7", "SLURM_PROCID=0", "SLURM_NODEID=4",
        "SLURM_STEP_TASKS_PER_NODE=2(x3),1", NULL },
      "node 4" },
    { { "SLURM_STEP_NUM_TASKS=7", "SLURM_PROCID=0", "SLURM_NODEID=0",
        "SLURM_STEP_TASKS_PER_NODE=2(y3)", NULL },
      "SLURM_STEP_TASKS_PER_NODE: tasks per node 2(y3)" },
};

static void test_refusals(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct environment environment = environment_of(refusals[i].variables);
        struct cluster found;

        CHECK_STATUS(STATUS_USAGE, cluster_discover(&environment, &found));
        CHECK_MESSAGE(refusals[i].message);
        CHECK_INT(STARTER_NONE, cluster_starter(&environment));
    }
}

static void test_names(void)
{
    CHECK_TEXT("srun", cluster_starter_name(STARTER_SLURM));
    CHECK_TEXT("nobody", cluster_starter_name(STARTER_NONE));
}

const struct test tests[] = {
    { .name = "each starter's variables are read", .run = test_examples },
    { .name = "variables that make no sense are named", .run = test_refusals },
    { .name = "starters have names", .run = test_names },
    { 0 },
};
