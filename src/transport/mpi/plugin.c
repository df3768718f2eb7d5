/* SPDX-License-Identifier: MIT */
/* plugin.c - calls of an MPI library behind the face; see face.h.
 *
 * Two communicators, made anew for each job that a process takes part in, so that nothing of
 * one is received in the next. Errors are returned, not fatal, as far as the library
 * leaves that to us.
 */
#include <limits.h>
#include <mpi.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "transport/mpi/face.h"

enum { N_CHANNELS = 2, BLOCK_BYTES = 1 << 20, LEAVE_MS = 2000, DRAIN_MS = 30 };

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits a handle");

static MPI_Comm channels[N_CHANNELS] = { MPI_COMM_NULL, MPI_COMM_NULL };
static int is_own; /* we called MPI_Init */

static int check(int code, const char *call, char *text)
{
    char reason[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    if (code == MPI_SUCCESS)
        return 0;
    (void)MPI_Error_string(code, reason, &length);
    for (char *at = reason; *at; at++) {
        if (*at == '\n')
            *at = ' ';
    }
    (void)snprintf(text, MPI_FACE_TEXT, "%s failed: %.400s", call, reason);
    return 1;
}

/* Life -------------------------------------------------------------------------------------- */

static int open_world(int *out_rank, int *out_size, char *text)
{
    int is_initialized = 0, level = MPI_THREAD_SINGLE;

    (void)MPI_Initialized(&is_initialized);
    if (is_initialized) {
        (void)MPI_Query_thread(&level);
    } else {
        if (check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread",
                  text))
            return 1;
        is_own = 1;
    }
    if (level < MPI_THREAD_SERIALIZED) {
        (void)snprintf(text, MPI_FACE_TEXT,
                       "this MPI library has no MPI_THREAD_SERIALIZED, only level %d", level);
        return 1;
    }
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (check(MPI_Comm_rank(MPI_COMM_WORLD, out_rank), "MPI_Comm_rank", text))
        return 1;
    return check(MPI_Comm_size(MPI_COMM_WORLD, out_size), "MPI_Comm_size", text);
}

#ifdef MPICH_NAME
/* MPI_Finalize of MPICH over UCX and TCP may wait for ever: to close a connection takes the help
 * of its other end, which helps no more once it has closed its own and waits for the starter. So
 * all meet, for not longer than LEAVE_MS; what is on its way gets DRAIN_MS to come; and hydra is
 * told, in PMI's words, that this process may end. Slurm does not ask. */
static void tell_hydra(void)
{
    static const char words[] = "cmd=finalize\n";
    const char *descriptor = getenv("PMI_FD");
    char answer[64];

    if (!descriptor || !getenv("MPI_LOCALRANKID"))
        return;
    struct pollfd end = { .fd = (int)strtol(descriptor, NULL, 10), .events = POLLIN };
    if (write(end.fd, words, sizeof words - 1) == (ssize_t)(sizeof words - 1) &&
        poll(&end, 1, LEAVE_MS) == 1 && read(end.fd, answer, sizeof answer) <= 0)
        return; /* it is gone: nobody is left to be told */
}

static void close_world(void)
{
    const struct timespec millisecond = { .tv_nsec = 1000000 };
    int is_done = 0, ignored;
    MPI_Request request;

    if (!is_own)
        return;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS)
        is_done = 1;
    for (int ms = 0; ms < LEAVE_MS && !is_done; ms++) {
        if (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
        (void)nanosleep(&millisecond, NULL);
    }
    for (int ms = 0; ms < DRAIN_MS; ms++) {
        (void)MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &ignored, MPI_STATUS_IGNORE);
        (void)nanosleep(&millisecond, NULL);
    }
    tell_hydra();
}
#else
static void close_world(void)
{
    if (is_own)
        (void)MPI_Finalize();
}
#endif

/* Those of an earlier job stay: beats that nobody received may be on their way in them, and the
 * library would take them for messages of a new communicator in the same place. */
static int begin(char *text)
{
    for (int i = 0; i < N_CHANNELS; i++) {
        if (check(MPI_Comm_dup(MPI_COMM_WORLD, &channels[i]), "MPI_Comm_dup", text))
            return 1;
        (void)MPI_Comm_set_errhandler(channels[i], MPI_ERRORS_RETURN);
    }
    return 0;
}

static int lowest_of_node(int *out_rank, char *text)
{
    MPI_Comm node;
    int rank;

    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL,
                                  &node),
              "MPI_Comm_split_type", text))
        return 1;
    const int failed =
        check(MPI_Allreduce(&rank, out_rank, 1, MPI_INT, MPI_MIN, node), "MPI_Allreduce", text);
    (void)MPI_Comm_free(&node);
    return failed;
}

static int gather(const void *mine, size_t bytes, void *out_all, char *text)
{
    return check(MPI_Allgather(mine, (int)bytes, MPI_BYTE, out_all, (int)bytes, MPI_BYTE,
                               MPI_COMM_WORLD),
                 "MPI_Allgather", text);
}

/* Messages ------------------------------------------------------------------------------------ */

/* What describes `bytes` bytes to MPI, whose counts are ints: beyond that blocks and a rest. */
static int describe(size_t bytes, MPI_Datatype *out_type, int *out_count, char *text)
{
    MPI_Datatype block, parts[2] = { MPI_DATATYPE_NULL, MPI_BYTE };
    const size_t n_blocks = bytes / BLOCK_BYTES;
    int lengths[2] = { (int)n_blocks, (int)(bytes % BLOCK_BYTES) };
    MPI_Aint starts[2] = { 0, (MPI_Aint)(n_blocks * BLOCK_BYTES) };

    *out_type = MPI_BYTE;
    *out_count = (int)bytes;
    if (bytes <= INT_MAX)
        return 0;
    *out_count = 1;
    if (check(MPI_Type_contiguous(BLOCK_BYTES, MPI_BYTE, &block), "MPI_Type_contiguous", text))
        return 1;
    parts[0] = block;
    const int failed = check(MPI_Type_create_struct(2, lengths, starts, parts, out_type),
                             "MPI_Type_create_struct", text);
    (void)MPI_Type_free(&block);
    return failed || check(MPI_Type_commit(out_type), "MPI_Type_commit", text);
}

static int check_tag(uint32_t tag, char *text)
{
    void *value;
    int is_set;

    (void)MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &is_set);
    if (tag <= 32767 || (is_set && tag <= (uint32_t) * (int *)value))
        return 0;
    (void)snprintf(text, MPI_FACE_TEXT, "tag %lu is more than this MPI library has",
                   (unsigned long)tag);
    return 1;
}

static void store(MPI_Request request, size_t bytes, struct mpi_message *out)
{
    *out = (struct mpi_message){ .bytes = bytes };
    memcpy(&out->handle, &request, sizeof(request));
}

static MPI_Request load(const struct mpi_message *message)
{
    MPI_Request request;

    memcpy(&request, &message->handle, sizeof(request));
    return request;
}

/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): requests are waited for by `test` */
static int start_send(enum mpi_channel channel, int peer, uint32_t tag, const void *data,
                      size_t bytes, struct mpi_message *message, char *text)
{
    MPI_Request request;
    MPI_Datatype type;
    int count;

    if (check_tag(tag, text) || describe(bytes, &type, &count, text))
        return 1;
    const int failed =
        check(MPI_Isend(data, count, type, peer, (int)tag, channels[channel], &request),
              "MPI_Isend", text);
    if (type != MPI_BYTE)
        (void)MPI_Type_free(&type);
    if (!failed)
        store(request, bytes, message);
    return failed;
}

static int start_receive(enum mpi_channel channel, int peer, uint32_t tag, void *data,
                         size_t bytes, struct mpi_message *message, char *text)
{
    MPI_Request request;
    MPI_Datatype type;
    int count;

    if (check_tag(tag, text) || describe(bytes, &type, &count, text))
        return 1;
    const int from = peer == MPI_FACE_ANY ? MPI_ANY_SOURCE : peer;
    const int failed =
        check(MPI_Irecv(data, count, type, from, (int)tag, channels[channel], &request),
              "MPI_Irecv", text);
    if (type != MPI_BYTE)
        (void)MPI_Type_free(&type);
    if (!failed)
        store(request, bytes, message);
    return failed;
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static int test(struct mpi_message *message, int *out_done, size_t *out_bytes, char *text)
{
    MPI_Request request = load(message);
    MPI_Status status;
    MPI_Count count = 0;
    int class = MPI_SUCCESS;
    const int code = MPI_Test(&request, out_done, &status);

    memcpy(&message->handle, &request, sizeof(request));
    if (code != MPI_SUCCESS)
        (void)MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE) {
        *out_done = 1;
        *out_bytes = SIZE_MAX;
        return 0;
    }
    if (check(code, "MPI_Test", text))
        return 1;
    if (*out_done && MPI_Get_elements_x(&status, MPI_BYTE, &count) == MPI_SUCCESS)
        *out_bytes = (size_t)count;
    return 0;
}

static void cancel(struct mpi_message *message)
{
    MPI_Request request = load(message);

    if (request == MPI_REQUEST_NULL)
        return;
    (void)MPI_Cancel(&request);
    (void)MPI_Request_free(&request);
}

extern const struct mpi_face tutti_mpi_face;
__attribute__((visibility("default"))) const struct mpi_face tutti_mpi_face = {
    .version = MPI_FACE_VERSION,
    .open = open_world,
    .close = close_world,
    .begin = begin,
    .lowest_of_node = lowest_of_node,
    .gather = gather,
    .send = start_send,
    .receive = start_receive,
    .test = test,
    .cancel = cancel,
};
