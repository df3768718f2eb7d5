/* SPDX-License-Identifier: MIT */
/* face.h - private: what the plug-in for an MPI library offers.
 *
 * The plug-in is a shared object of its own, built once for each MPI library, and opened by a
 * rank that was started by mpirun, mpiexec or srun. It wraps calls and decides nothing; it
 * uses nothing of the program that opens it.
 *
 * Threads: one call at a time; the caller has a lock.
 * Errors:  calls that can fail return 0, or 1 and then a line of text in `text`.
 */
#ifndef TRANSPORT_MPI_FACE_H
#define TRANSPORT_MPI_FACE_H

#include <stddef.h>
#include <stdint.h>

enum {
    MPI_FACE_VERSION = 1,
    MPI_FACE_TEXT = 512,
    MPI_FACE_ANY = -1, /* a message from whomever */
};

/* Two channels whose messages do not meet. */
enum mpi_channel { MPI_CHANNEL_DATA, MPI_CHANNEL_CONTROL };

/* A message under way. */
struct mpi_message {
    uint64_t handle;
    size_t bytes;
};

struct mpi_face {
    uint32_t version;
    /* Joins the job unless the program has; ranks are those of MPI. */
    int (*open)(int *out_rank, int *out_size, char *text);
    void (*close)(void); /* leaves it if open joined */
    /* Collective: makes the channels anew. */
    int (*begin)(char *text);
    /* Collective: the lowest rank of the machine that this one is on. */
    int (*lowest_of_node)(int *out_rank, char *text);
    /* Collective: everyone's bytes, in order of rank. */
    int (*gather)(const void *mine, size_t bytes, void *out_all, char *text);

    int (*send)(enum mpi_channel channel, int peer, uint32_t tag, const void *data,
                size_t bytes, struct mpi_message *message, char *text);
    int (*receive)(enum mpi_channel channel, int peer, uint32_t tag, void *data, size_t bytes,
                   struct mpi_message *message, char *text);
    /* *out_bytes of a receive: how many came; SIZE_MAX: more than there was room for. */
    int (*test)(struct mpi_message *message, int *out_done, size_t *out_bytes, char *text);
    void (*cancel)(struct mpi_message *message); /* a receive; a send is left to itself */
};

/* The one name that the plug-in exports. */
#define MPI_FACE_NAME "tutti_mpi_face"

#endif /* TRANSPORT_MPI_FACE_H */
