// SPDX-License-Identifier: MIT
// How long MPI_Allreduce of float32 takes:  mpirun -n RANKS mpi_allreduce [BYTES...]
//
// Prints one JSON object a size with the fields of `tutti bench comm --json`. A number is the
// mean of the calls in a window of about 20 ms (one call where a call takes longer, and where there is much
// data, which is then written anew before each call as tutti's is); us is the
// median over the windows. Each size is measured with two buffers and in place.
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MANY_WINDOWS = 301, WINDOWS = 31, FEW_WINDOWS = 7, SMALL_BYTES = 8192 };
static const double WINDOW_S = 0.02, ENOUGH_S = 2;

struct buffers {
    float *send; // or MPI_IN_PLACE
    float *receive;
    int count;
};

static double seconds_a_call(const struct buffers *b, int calls)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(b->send, b->receive, b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double took = MPI_Wtime() - start;
    MPI_Barrier(MPI_COMM_WORLD); // nobody writes in others' time
    return took / calls;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill(float *x, int count, float value)
{
    for (int i = 0; i < count; i++)
        x[i] = value;
}

// Reduces rank + 1 over all ranks once and compares each element with the sum.
static bool sum_is_right(const struct buffers *b, int rank, int ranks)
{
    fill(b->receive, b->count, (float)(rank + 1));
    if (b->send != MPI_IN_PLACE)
        fill(b->send, b->count, (float)(rank + 1));
    seconds_a_call(b, 1);
    for (int i = 0; i < b->count; i++)
        if (b->receive[i] != (float)(ranks * (ranks + 1) / 2))
            return false;
    return true;
}

// Sums of zeros neither overflow nor become denormal.
static void write_anew(const struct buffers *b)
{
    fill(b->send == MPI_IN_PLACE ? b->receive : b->send, b->count, 0);
}

// How many windows were measured: fewer where a call takes long.
static int measure(const struct buffers *b, double times[MANY_WINDOWS])
{
    bool is_small = (size_t)b->count * sizeof(float) <= SMALL_BYTES;

    write_anew(b);
    seconds_a_call(b, 3);
    double one = seconds_a_call(b, 3);
    MPI_Bcast(&one, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    int calls = is_small && one < WINDOW_S ? (int)(WINDOW_S / one) : 1;
    int most = is_small ? WINDOWS : MANY_WINDOWS;
    int windows = one * calls * most < ENOUGH_S ? most
                  : one * WINDOWS < ENOUGH_S    ? WINDOWS
                                                : FEW_WINDOWS;
    for (int w = 0; w < windows; w++) {
        write_anew(b);
        times[w] = seconds_a_call(b, calls);
    }
    qsort(times, (size_t)windows, sizeof(*times), by_size);
    return windows;
}

static bool bench(const struct buffers *b, int rank, int ranks)
{
    if (!sum_is_right(b, rank, ranks)) {
        fprintf(stderr, "mpi_allreduce: wrong sum of %d floats\n", b->count);
        return false;
    }

    double times[MANY_WINDOWS];
    int windows = measure(b, times);
    if (rank == 0)
        printf("{\"op\": \"all_reduce\", \"transport\": \"mpi\", \"algorithm\": \"%s\", "
               "\"bytes\": %zu, \"ranks\": %d, \"us\": %.3f, \"us_p90\": %.3f}\n",
               b->send == MPI_IN_PLACE ? "in place" : "two buffers",
               (size_t)b->count * sizeof(float), ranks, times[windows / 2] * 1e6,
               times[windows - 1 - windows / 10] * 1e6);
    return true;
}

static bool bench_size(long bytes, int rank, int ranks)
{
    float *send, *receive;
    MPI_Alloc_mem(bytes, MPI_INFO_NULL, &send);
    MPI_Alloc_mem(bytes, MPI_INFO_NULL, &receive);

    int count = (int)(bytes / (long)sizeof(float));
    bool ok = bench(&(struct buffers){ send, receive, count }, rank, ranks) &&
              bench(&(struct buffers){ MPI_IN_PLACE, receive, count }, rank, ranks);

    MPI_Free_mem(receive);
    MPI_Free_mem(send);
    return ok;
}

int main(int argc, char **argv)
{
    static const long DEFAULT_SIZES[] = { 8, 65536, 1 << 20, 64 << 20 };
    int n_default = (int)(sizeof(DEFAULT_SIZES) / sizeof(*DEFAULT_SIZES));

    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    bool ok = true;
    int n = argc > 1 ? argc - 1 : n_default;
    for (int i = 0; i < n && ok; i++)
        ok = bench_size(argc > 1 ? strtol(argv[i + 1], NULL, 10) : DEFAULT_SIZES[i], rank,
                        ranks);
    if (!ok)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
