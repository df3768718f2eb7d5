/* SPDX-License-Identifier: MIT */
/* cluster.h - who started this process, and as which rank of what: read from the environment.
 *
 * mpirun, mpiexec and srun tell each process of a job its place by variables. These functions
 * only read them, through a function that the caller gives, so that tests have an environment
 * of their own. They call no MPI: that follows, once it is known that there is one to call.
 *
 *   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
 *   MPICH      PMI_RANK, PMI_SIZE; hydra also MPI_LOCALRANKID, MPI_LOCALNRANKS
 *   PMIx       PMIX_RANK, PMIX_NAMESPACE; how many there are it does not say: Slurm's do
 *   Slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS (else SLURM_NTASKS), SLURM_LOCALID,
 *              SLURM_NODEID, SLURM_STEP_TASKS_PER_NODE
 *
 * The first in this order wins: a starter inside another's job knows more of it. A step of
 * Slurm is told by SLURM_STEP_NUM_TASKS, as a batch script has a SLURM_PROCID too. TUTTI_MPI=off
 * makes a process of a job one by itself.
 */
#ifndef TRANSPORT_CLUSTER_H
#define TRANSPORT_CLUSTER_H

#include "base/status.h"

enum starter {
    STARTER_NONE,    /* nobody, or one process by itself: ranks are forked */
    STARTER_OPENMPI, /* mpirun of Open MPI */
    STARTER_MPICH,   /* mpiexec of MPICH and its kin, srun --mpi=pmi2 */
    STARTER_PMIX,    /* srun --mpi=pmix */
    STARTER_SLURM,   /* srun with neither: its tasks cannot find each other */
};

/* The value of a variable, or NULL; `getenv` behind one argument more. */
typedef const char *cluster_lookup(void *arg, const char *name);

struct environment {
    cluster_lookup *get;
    void *arg;
};
extern const struct environment cluster_environment; /* the process's own */

struct cluster {
    enum starter starter;
    int rank, size;             /* of the job; size 0: not said */
    int local_rank, local_size; /* among those of this machine; -1 and 0: not said */
};

/* Reads who started us. STATUS_USAGE, naming the variable, where one holds no number or two
 * contradict. STARTER_NONE is rank 0 of 1. */
MUST_CHECK enum status cluster_discover(const struct environment *environment,
                                        struct cluster *out);

/* Threads for each rank of this machine: its processors, divided by those ranks, one at least. */
int cluster_threads(const struct cluster *cluster);

/* The same in a word, STARTER_NONE where the variables make no sense. */
enum starter cluster_starter(const struct environment *environment);
const char *cluster_starter_name(enum starter starter); /* as people call it: "mpirun" */

#endif /* TRANSPORT_CLUSTER_H */
