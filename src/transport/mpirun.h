/* SPDX-License-Identifier: MIT */
/* mpirun.h - the command that starts ranks on other machines: Open MPI's mpirun or MPICH's
 * mpiexec, whichever is installed or named.
 */
#ifndef TRANSPORT_MPIRUN_H
#define TRANSPORT_MPIRUN_H

#include "base/arena.h"
#include "base/status.h"
#include "transport/hosts.h"

struct mpirun {
    const char *program;       /* a name or a path; "": mpirun, else mpiexec */
    const char *launch_agent;  /* runs a command on a machine instead of ssh; "": ssh */
    const struct hosts *hosts; /* with their ranks: hosts_assign */
    char *const *command;      /* what each rank runs, ended by NULL */
    char *const *environment;  /* as `environ`: of it the ranks get TUTTI_* and
                                  LD_LIBRARY_PATH, with MPICH all */
};

enum mpirun_kind { MPIRUN_OPENMPI, MPIRUN_HYDRA };

/* Tells by what `--version` printed. STATUS_UNSUPPORTED if it is neither. */
MUST_CHECK enum status mpirun_recognize(const char *program, const char *version,
                                        enum mpirun_kind *out);

/* The words of the command, ended by NULL; they and the array lie in the arena. */
MUST_CHECK enum status mpirun_words(const struct mpirun *mpirun, enum mpirun_kind kind,
                                    const char *program, struct arena *arena,
                                    const char ***out);

/* Becomes that command: returns only where it cannot. STATUS_NOT_FOUND, with what to install, if
 * there is none. */
MUST_CHECK enum status mpirun_become(const struct mpirun *mpirun);

#endif /* TRANSPORT_MPIRUN_H */
