/* SPDX-License-Identifier: MIT */
/* openblas.c - the linear layer and its gradients by cblas_sgemm, one thread a call.
 *
 * x is (m,k), W lies as [k][n], or plain as [n][k], y is (m,n), row-major. Bias and relu are a second pass
 * over y, which is in cache for the sizes where this kernel is of use.
 */
#include <cblas.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "kernel/cpu/rows.h"

enum { BUFFER_MIB = 160 }; /* 128 and what is about it */

static void use_one_thread(void)
{
    openblas_set_num_threads(1);
}

static bool can_run(const struct kernel_problem *problem)
{
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].dtype != DTYPE_F32 || shape_count(&problem->in[i].shape) > INT32_MAX)
            return false;
    }
    return true;
}

/* A thread's first call takes a buffer; where addresses are refused it tries again for ever. */
static enum status check_room(void)
{
    const size_t bytes = (size_t)BUFFER_MIB << 20;
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return STATUS_OK;
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return FAIL(
            STATUS_NO_MEMORY,
            "OpenBLAS needs %d MiB of addresses, more than ulimit -v %llu leaves: raise it",
            BUFFER_MIB, (unsigned long long)limit.rlim_cur >> 10);
    (void)munmap(room, bytes);
    return STATUS_OK;
}

static enum status prepare(const struct kernel_problem *problem, void **out_state)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)problem;
    TRY(check_room());
    pthread_once(&once, use_one_thread);
    *out_state = NULL;
    return STATUS_OK;
}

static void run_forward(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const int k = (int)problem->in[1].shape.dim[1], n = (int)problem->in[1].shape.dim[0];
    const int m = (int)(shape_count(&problem->out[0].shape) / n);
    const float *bias = problem->n_in > 2 ? call->in[2] : NULL;
    const bool relu = problem->attrs.activation == ACTIVATION_RELU;
    float *y = call->out[0];

    const bool plain = problem->in[1].layout == LAYOUT_PLAIN;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, plain ? CblasTrans : CblasNoTrans, m, n, k, 1.0f,
                call->in[0], k, call->in[1], plain ? k : n, 0.0f, y, n);
    if (bias == NULL && !relu)
        return;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            const float sum = bias != NULL ? y[i * n + j] + bias[j] : y[i * n + j];
            y[i * n + j] = relu && sum <= 0.0f ? 0.0f : sum;
        }
    }
}

static void run_input(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const int k = (int)problem->in[1].shape.dim[1], n = (int)problem->in[1].shape.dim[0];
    const int m = (int)(shape_count(&problem->in[0].shape) / n);

    const bool plain = problem->in[1].layout == LAYOUT_PLAIN;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, plain ? CblasNoTrans : CblasTrans, m, k, n, 1.0f,
                call->in[0], n, call->in[1], plain ? k : n, 0.0f, call->out[0], k);
}

static void run_weight(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const int k = (int)problem->out[0].shape.dim[1], n = (int)problem->out[0].shape.dim[0];
    const int m = (int)(shape_count(&problem->in[0].shape) / k);
    const float *dy = call->in[1];

    if (problem->out[0].layout == LAYOUT_PLAIN)
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, m, 1.0f, dy, n, call->in[0],
                    k, 0.0f, call->out[0], k);
    else
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, k, n, m, 1.0f, call->in[0], k, dy,
                    n, 0.0f, call->out[0], n);
    if (problem->n_out < 2)
        return;
    float *db = call->out[1];
    for (int64_t j = 0; j < n; j++)
        db[j] = 0.0f;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++)
            db[j] += dy[i * n + j];
    }
}

const struct kernel kernel_openblas_rows[] = {
    { .op = "linear",
      .name = "openblas",
      .can_run = can_run,
      .prepare = prepare,
      .run = run_forward },
    { .op = "linear_grad_input",
      .name = "openblas",
      .can_run = can_run,
      .prepare = prepare,
      .run = run_input },
    { .op = "linear_grad_weight",
      .name = "openblas",
      .can_run = can_run,
      .prepare = prepare,
      .run = run_weight },
    { 0 },
};
