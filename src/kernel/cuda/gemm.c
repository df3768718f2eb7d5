/* SPDX-License-Identifier: MIT */
/* gemm.c - plans of cuBLASLt, and the linear layers, which are nothing else.
 *
 * cuBLASLt's matrices are column-major: a row-major c = a b is its c' = b' a', so its A is our b and its
 * B our a, and its rows are our columns. An epilogue's bias goes along its rows, as a layer's does.
 *
 * Two things its proposals do not do well are done here. A product of few elements over a long k, a weight's gradient,
 * is cut into parts along k, a batch of products. And large ones of bf16 whose rows are no multiple of 16 bytes
 * apart, such as logits of 50257 tokens, go through a copy whose rows are.
 *
 * What cuBLASLt's epilogue has no way for is a launch of its own: of f32, whose gelu is to be as exact as elsewhere, and
 * of rows that are no multiple of 16 bytes.
 */
#include "kernel/cuda/gemm.h"

#include <cublasLt.h>
#include <pthread.h>

#include "base/mem.h"
#include "kernel/cuda/column_sums.h"
#include "kernel/precision.h"

struct gemm {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t scratch;
    struct gemm_form form;
    bool
        finishes; /* bias and relu are a launch of their own, as cuBLASLt has no way for both */
    bool activates; /* gelu is one */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cublasLtHandle_t the_handle; /* one a process, made when first needed; guarded by lock */

#define TRY_BLAS(call)                                                                         \
    do {                                                                                       \
        const cublasStatus_t try_blas_ = (call);                                               \
        if (try_blas_ != CUBLAS_STATUS_SUCCESS)                                                \
            return FAIL(STATUS_IO, "cublasLt: %s: %s", cublasLtGetStatusString(try_blas_),     \
                        #call);                                                                \
    } while (0)

static enum status make_handle(void)
{
    enum status status = STATUS_OK;

    pthread_mutex_lock(&lock);
    if (the_handle == NULL) {
        const cublasStatus_t result = cublasLtCreate(&the_handle);
        if (result != CUBLAS_STATUS_SUCCESS)
            status = FAIL(STATUS_IO, "cublasLt: %s: cublasLtCreate",
                          cublasLtGetStatusString(result));
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Of cuBLASLt's own. */
static size_t workspace_of(const struct gemm_form *form)
{
    const double work = (double)form->m * (double)form->n * (double)form->k;

    return work < 1e6 ? 0 : work < 1e9 ? (size_t)4 << 20 : (size_t)32 << 20;
}

static size_t up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

enum { ROW_OF = 8, LARGE = 1 << 28 }; /* elements of two bytes that are 16 */

/* Is a matrix of such with rows this far apart copied, so that they are a multiple of 16 bytes apart? */
static bool is_repacked(const struct gemm_form *form, enum dtype dtype, int64_t row)
{
    return kernel_is_half(dtype) && row % ROW_OF != 0 && form->parts <= 1 && !form->with_bias &&
           !form->relu && !form->gelu &&
           (double)form->m * (double)form->n * (double)form->k > LARGE;
}

static int64_t padded(int64_t row)
{
    return (row + ROW_OF - 1) / ROW_OF * ROW_OF;
}

/* How a and c lie, as cuBLASLt sees them. */
static bool repacks_a(const struct gemm_form *form)
{
    const bool is_possible =
        form->a_across || !form->b_across; /* else b's rows are k long, too */

    return is_possible && is_repacked(form, form->of, form->a_row);
}

static bool repacks_c(const struct gemm_form *form)
{
    return is_repacked(form, form->into, form->c_row) && !form->adds;
}

/* Then the extent along those rows is filled up, too, with zeros in b: an odd one has slow ways alone. */
static bool repacks_b(const struct gemm_form *form)
{
    return repacks_c(form) ? form->b_across : repacks_a(form) && !form->a_across;
}

static int64_t rows_of_a(const struct gemm_form *form)
{
    return form->a_across ? form->k : form->m;
}

static int64_t rows_of_b(const struct gemm_form *form)
{
    return form->b_across ? form->n : form->k;
}

static size_t repacked_bytes(int64_t rows, int64_t row)
{
    return up((size_t)(rows * row) * sizeof(uint16_t));
}

/* Bytes of the copies, 0 where there is none. */
static size_t bytes_of_a(const struct gemm_form *form)
{
    return repacks_a(form) ? repacked_bytes(rows_of_a(form), padded(form->a_row)) : 0;
}

static size_t bytes_of_b(const struct gemm_form *form)
{
    return repacks_b(form) ? repacked_bytes(padded(rows_of_b(form)), form->b_row) : 0;
}

static size_t bytes_of_c(const struct gemm_form *form)
{
    return repacks_c(form) ? repacked_bytes(form->m, padded(form->c_row)) : 0;
}

/* Rows of the products of parts: m, or, as an odd extent has slow ways alone, m rounded up to eight where rows of a are long enough; what
 * is made too much is not added up. */
static int64_t made_rows(const struct gemm_form *form)
{
    return form->parts > 1 && form->a_across && kernel_is_half(form->of) &&
                   padded(form->m) <= form->a_row
               ? padded(form->m)
               : form->m;
}

/* After that, a bias in its other type, or the products of parts; then copies of a, b and c. */
static size_t gemm_own_scratch(const struct gemm_form *form)
{
    const bool converts = form->with_bias && kernel_is_half(form->into);
    const size_t bias = converts ? up((size_t)form->n * sizeof(float)) : 0;
    const size_t parts =
        form->parts > 1 ? up((size_t)(form->parts * made_rows(form) * form->n) * sizeof(float))
                        : 0;

    return workspace_of(form) + bias + parts;
}

size_t gemm_scratch(const struct gemm_form *form)
{
    return gemm_own_scratch(form) + bytes_of_a(form) + bytes_of_b(form) + bytes_of_c(form);
}

static cudaDataType_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? CUDA_R_16BF : dtype == DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* A matrix of `rows` rows as it lies, `row` elements apart; or `parts` of them, one behind the other. */
static enum status describe(int64_t rows, int64_t columns, int64_t row, enum dtype dtype,
                            int64_t parts, cublasLtMatrixLayout_t *out)
{
    const int32_t count = (int32_t)parts;
    const int64_t apart = rows * row;

    TRY_BLAS(cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)columns, (uint64_t)rows,
                                        row));
    if (parts <= 1)
        return STATUS_OK;
    TRY_BLAS(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count));
    TRY_BLAS(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &apart, sizeof apart));
    return STATUS_OK;
}

static bool has_epilogue(const struct gemm_form *form)
{
    return form->into == DTYPE_BF16 && form->c_row % ROW_OF == 0;
}

/* A proposal is made for a buffer that is there; every run says where its own is. */
static enum status set_kept(struct gemm *gemm, const struct gemm_form *form)
{
    void *const somewhere = (void *)(uintptr_t)256;

    TRY_BLAS(cublasLtMatmulDescSetAttribute(gemm->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                            &form->c_row, sizeof form->c_row));
    TRY_BLAS(cublasLtMatmulDescSetAttribute(gemm->product,
                                            CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                            &somewhere, sizeof somewhere));
    return STATUS_OK;
}

static enum status set_epilogue(struct gemm *gemm, const struct gemm_form *form)
{
    const cudaDataType_t bias = type_of(form->into); /* cuBLASLt's are of c's type */
    const cublasLtEpilogue_t epilogue =
        gemm->finishes                   ? CUBLASLT_EPILOGUE_DEFAULT
        : form->gelu && !gemm->activates ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
        : form->with_bias ? (form->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
        : form->relu      ? CUBLASLT_EPILOGUE_RELU
                          : CUBLASLT_EPILOGUE_DEFAULT;

    TRY_BLAS(cublasLtMatmulDescSetAttribute(gemm->product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                            &epilogue, sizeof epilogue));
    if (form->with_bias && !gemm->finishes)
        TRY_BLAS(cublasLtMatmulDescSetAttribute(
            gemm->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias));
    return form->gelu && !gemm->activates ? set_kept(gemm, form) : STATUS_OK;
}

static enum status limit(cublasLtMatmulPreference_t preference, const struct gemm_form *form)
{
    const uint32_t align = form->align ? (uint32_t)form->align : 16;
    const size_t scratch = workspace_of(form);
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE |
                             CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                             CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };

    TRY_BLAS(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch, sizeof scratch));
    TRY_BLAS(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++)
        TRY_BLAS(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &align,
                                                      sizeof align));
    return STATUS_OK;
}

/* Proposals ----------------------------------------------------------------------------- */

enum { PROPOSALS = 8, TILE = 128 };

static uint32_t setting(const cublasLtMatmulAlgo_t *algorithm,
                        cublasLtMatmulAlgoConfigAttributes_t which, size_t size)
{
    uint32_t value = 0; /* of a size that the attribute has; little end first */

    (void)cublasLtMatmulAlgoConfigGetAttribute(algorithm, which, &value, size, NULL);
    return value;
}

/* Short sums for wide rows, of so many tiles of 128 x 128 that the last ones do not matter: quicker by these than by the larger ones that come
 * first, as more of them end while others begin. */
static bool wants_tiles(const struct gemm_form *form)
{
    enum { LEAST = 792, MOST = 8192, SHORTEST = 384 };
    const int64_t tiles = (form->m + TILE - 1) / TILE * ((form->n + TILE - 1) / TILE);

    return kernel_is_half(form->into) && !form->gelu && form->n > form->k &&
           form->k >= SHORTEST && tiles >= LEAST && tiles <= MOST;
}

/* Is this proposal better than those before it? By what was timed on an H200, never by timing: bits would depend on it. */
static bool is_preferred(const struct gemm *gemm, const cublasLtMatmulAlgo_t *algorithm)
{
    const uint32_t tile = setting(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, sizeof(uint32_t));

    return wants_tiles(&gemm->form) && tile == CUBLASLT_MATMUL_TILE_128x128;
}

static enum status ask(struct gemm *gemm, cublasLtMatmulPreference_t preference,
                       const struct gemm_form *form)
{
    cublasLtMatmulHeuristicResult_t results[PROPOSALS], *taken = NULL;
    int count = 0;

    TRY(limit(preference, form));
    TRY_BLAS(cublasLtMatmulAlgoGetHeuristic(the_handle, gemm->product, gemm->a, gemm->b,
                                            gemm->c, gemm->c, preference, PROPOSALS, results,
                                            &count));
    for (int i = count - 1; i >= 0; i--) { /* the first that is preferred, else the first */
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            (!taken || !is_preferred(gemm, &taken->algo) ||
             is_preferred(gemm, &results[i].algo)))
            taken = &results[i];
    }
    if (!taken)
        return FAIL(STATUS_UNSUPPORTED, "cublasLt knows no way for %lld x %lld x %lld",
                    (long long)form->m, (long long)form->n, (long long)form->k);
    gemm->algorithm = taken->algo;
    gemm->scratch = taken->workspaceSize;
    return STATUS_OK;
}

static enum status plan(struct gemm *gemm, const struct gemm_form *form)
{
    const cublasOperation_t a = form->b_across ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = form->a_across ? CUBLAS_OP_T : CUBLAS_OP_N;
    const bool fills = repacks_b(form);
    const int64_t n = fills && repacks_c(form) ? padded(form->n) : form->n;
    const int64_t all = fills && !repacks_c(form) ? padded(form->k) : form->k;
    const int64_t k = form->parts > 1 ? all / form->parts : all;
    const int64_t m = made_rows(form);
    const int64_t a_row = repacks_a(form) ? padded(form->a_row) : form->a_row;
    const int64_t c_row = repacks_c(form) ? padded(form->c_row) : form->c_row;
    cublasLtMatmulPreference_t preference;

    gemm->form = *form;
    TRY_BLAS(cublasLtMatmulDescCreate(
        &gemm->product, form->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F));
    TRY_BLAS(cublasLtMatmulDescSetAttribute(gemm->product, CUBLASLT_MATMUL_DESC_TRANSA, &a,
                                            sizeof a));
    TRY_BLAS(cublasLtMatmulDescSetAttribute(gemm->product, CUBLASLT_MATMUL_DESC_TRANSB, &b,
                                            sizeof b));
    TRY(set_epilogue(gemm, form));
    TRY(form->b_across ? describe(n, k, form->b_row, form->of, form->parts, &gemm->a)
                       : describe(k, n, form->b_row, form->of, form->parts, &gemm->a));
    TRY(form->a_across ? describe(k, m, a_row, form->of, form->parts, &gemm->b)
                       : describe(m, k, a_row, form->of, form->parts, &gemm->b));
    TRY(describe(m, n, c_row, form->into, form->parts, &gemm->c));
    TRY_BLAS(cublasLtMatmulPreferenceCreate(&preference));
    const enum status status = ask(gemm, preference, form);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static void forget(struct gemm *gemm)
{
    if (gemm->product)
        (void)cublasLtMatmulDescDestroy(gemm->product);
    if (gemm->a)
        (void)cublasLtMatrixLayoutDestroy(gemm->a);
    if (gemm->b)
        (void)cublasLtMatrixLayoutDestroy(gemm->b);
    if (gemm->c)
        (void)cublasLtMatrixLayoutDestroy(gemm->c);
    *gemm = (struct gemm){ .product = NULL };
}

enum status gemm_create(const struct gemm_form *form, struct gemm **out)
{
    struct gemm *gemm;

    TRY(make_handle());
    TRY(mem_alloc(1, sizeof *gemm, &gemm));
    gemm->activates = form->gelu && !has_epilogue(form);
    enum status status = plan(gemm, form);
    if (status != STATUS_OK && form->gelu && !gemm->activates) {
        forget(gemm);
        gemm->activates = true;
        status = plan(gemm, form);
    }
    if (status != STATUS_OK &&
        (form->with_bias || form->relu)) { /* without an epilogue, then */
        forget(gemm);
        gemm->finishes = true;
        gemm->activates = form->gelu;
        status = plan(gemm, form);
    }
    if (status != STATUS_OK) {
        gemm_destroy(gemm);
        return status;
    }
    *out = gemm;
    return STATUS_OK;
}

void gemm_destroy(struct gemm *gemm)
{
    if (gemm == NULL)
        return;
    forget(gemm);
    mem_free(gemm);
}

/* What has no epilogue, where the product lies; its bias is f32. */
static void finish(struct device_stream *stream, const struct gemm_form *form,
                   const struct gemm_data *data, void *made)
{
    struct gemm_data wide = *data;

    wide.c = made;
    if (form->with_bias && form->half_bias) {
        void *bias = (char *)data->scratch + workspace_of(form);
        cuda_convert(stream, bias, DTYPE_F32, data->bias, form->into, (size_t)form->n);
        wide.bias = bias;
    }
    gemm_finish(stream, form, &wide);
}

void gemm_run(const struct gemm *gemm, struct device_stream *stream,
              const struct gemm_data *data)
{
    const struct gemm_form *form = &gemm->form;
    const float one = 1, beta = form->adds ? 1 : 0;
    char *const copy_of_a = (char *)data->scratch + gemm_own_scratch(form);
    char *const copy_of_b = copy_of_a + bytes_of_a(form);
    char *const copy_of_c = copy_of_b + bytes_of_b(form);
    const void *a = data->a, *b = data->b;
    void *const made = form->gelu && gemm->activates ? data->kept : data->c;
    void *c = form->parts > 1   ? (char *)data->scratch + workspace_of(form)
              : repacks_c(form) ? copy_of_c
                                : made;
    cublasStatus_t result = CUBLAS_STATUS_SUCCESS;

    if (repacks_a(form)) {
        const int64_t rows = rows_of_a(form);
        cuda_repack(stream, copy_of_a, padded(form->a_row), rows, data->a, form->a_row, rows);
        a = copy_of_a;
    }
    if (repacks_b(form)) {
        const int64_t rows = rows_of_b(form);
        cuda_repack(stream, copy_of_b, form->b_row, padded(rows), data->b, form->b_row, rows);
        b = copy_of_b;
    }
    if (form->with_bias && !gemm->finishes) {
        const void *bias = data->bias;
        if (kernel_is_half(form->into) && !form->half_bias) {
            void *half = (char *)data->scratch + workspace_of(form);
            cuda_convert(stream, half, form->into, bias, DTYPE_F32, (size_t)form->n);
            bias = half;
        }
        /* The pointer is copied when the product is enqueued. */
        result = cublasLtMatmulDescSetAttribute(
            gemm->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    }
    if (result == CUBLAS_STATUS_SUCCESS && form->gelu && !gemm->activates)
        result = cublasLtMatmulDescSetAttribute(gemm->product,
                                                CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                &data->kept, sizeof data->kept);
    if (result == CUBLAS_STATUS_SUCCESS)
        result = cublasLtMatmul(the_handle, gemm->product, &one, b, gemm->a, a, gemm->b, &beta,
                                data->base ? data->base : c, gemm->c, c, gemm->c,
                                &gemm->algorithm, data->scratch, gemm->scratch, stream->cuda);
    if (result != CUBLAS_STATUS_SUCCESS)
        stream_note(stream, "cublasLtMatmul", cublasLtGetStatusString(result));
    if (form->parts > 1)
        cuda_add_parts(stream, data->c, (const float *)c, (size_t)form->parts,
                       (size_t)(form->m * form->n), (size_t)(made_rows(form) * form->n));
    else if (repacks_c(form))
        cuda_repack(stream, data->c, form->c_row, form->m, c, padded(form->c_row), form->m);
    if (gemm->finishes)
        finish(stream, form, data, made);
    if (gemm->activates)
        gemm_activate(stream, form, data);
}

/* Linear layers: x (m,k), y (m,n), w as (k,n), or plain as (n,k) -------------------------- */

/* May operands, which are f32, be rounded? */
static bool rounds(const struct kernel_problem *p)
{
    return p->rounds && p->in[0].dtype == DTYPE_F32;
}

static struct gemm_form linear_form(const struct kernel_problem *p)
{
    const int64_t m = p->in[0].shape.dim[0], k = p->in[0].shape.dim[1];
    const int64_t n = p->out[0].shape.dim[1];
    const bool plain = p->in[1].layout == LAYOUT_PLAIN;

    return (struct gemm_form){ .m = m,
                               .n = n,
                               .k = k,
                               .a_row = k,
                               .b_row = plain ? k : n,
                               .c_row = n,
                               .b_across = plain,
                               .with_bias = p->n_in > 2,
                               .half_bias = p->n_in > 2 && kernel_is_half(p->in[2].dtype),
                               .relu = p->attrs.activation == ACTIVATION_RELU,
                               .tf32 = rounds(p),
                               .of = p->in[0].dtype,
                               .into = p->out[0].dtype };
}

static struct gemm_form grad_input_form(const struct kernel_problem *p)
{
    const int64_t m = p->in[0].shape.dim[0], n = p->in[0].shape.dim[1];
    const int64_t k = p->out[0].shape.dim[1];
    const bool plain = p->in[1].layout == LAYOUT_PLAIN;

    return (struct gemm_form){ .m = m,
                               .n = k,
                               .k = n,
                               .a_row = n,
                               .b_row = plain ? k : n,
                               .c_row = k,
                               .b_across = !plain,
                               .tf32 = rounds(p),
                               .of = p->in[0].dtype,
                               .into = p->out[0].dtype };
}

int64_t gemm_parts(int64_t m, int64_t n, int64_t rows)
{
    enum { PART = 512, TILES = 64, MORE_TILES = 100, MOST = 32, FEW = 2 };
    const int64_t tiles = (m + TILE - 1) / TILE * ((n + TILE - 1) / TILE);
    int64_t parts = 1;

    while (parts < MOST && tiles * parts < (parts <= FEW ? MORE_TILES : TILES) &&
           rows % (2 * parts) == 0 && rows / (2 * parts) >= PART)
        parts *= 2;
    return parts;
}

/* dw (k,n) = x' dy; plain (n,k) = dy' x. */
static struct gemm_form grad_weight_form(const struct kernel_problem *p)
{
    const int64_t m = p->in[0].shape.dim[0], k = p->in[0].shape.dim[1];
    const int64_t n = p->in[1].shape.dim[1];
    const bool plain = p->out[0].layout == LAYOUT_PLAIN;

    return (struct gemm_form){ .parts = gemm_parts(k, n, m),
                               .m = plain ? n : k,
                               .n = plain ? k : n,
                               .k = m,
                               .a_row = plain ? n : k,
                               .b_row = plain ? k : n,
                               .c_row = plain ? k : n,
                               .a_across = true,
                               .tf32 = rounds(p),
                               .of = p->in[0].dtype,
                               .into = p->out[0].dtype };
}

static struct gemm_form linear_gelu_form(const struct kernel_problem *p)
{
    struct gemm_form form = linear_form(p);

    form.gelu = true;
    return form;
}

static struct gemm_form linear_add_form(const struct kernel_problem *p)
{
    struct gemm_form form = linear_form(p);

    form.adds = true;
    return form;
}

static size_t linear_scratch(const struct kernel_problem *p)
{
    const struct gemm_form form = linear_form(p);
    return gemm_scratch(&form);
}

static enum status linear_prepare(const struct kernel_problem *p, void **out)
{
    const struct gemm_form form = linear_form(p);
    return gemm_create(&form, (struct gemm **)out);
}

static void release(void *state)
{
    gemm_destroy(state);
}

static void linear(const struct kernel_call *call)
{
    const struct gemm_data data = { .a = call->in[0],
                                    .b = call->in[1],
                                    .bias = call->problem->n_in > 2 ? call->in[2] : NULL,
                                    .c = call->out[0],
                                    .scratch = call->scratch };
    gemm_run(call->state, call->stream, &data);
}

static size_t linear_gelu_scratch(const struct kernel_problem *p)
{
    const struct gemm_form form = linear_gelu_form(p);
    return gemm_scratch(&form);
}

static enum status linear_gelu_prepare(const struct kernel_problem *p, void **out)
{
    const struct gemm_form form = linear_gelu_form(p);
    return gemm_create(&form, (struct gemm **)out);
}

static void linear_gelu(const struct kernel_call *call)
{
    const struct gemm_data data = { .a = call->in[0],
                                    .b = call->in[1],
                                    .bias = call->in[2],
                                    .c = call->out[0],
                                    .kept = call->out[1],
                                    .scratch = call->scratch };
    gemm_run(call->state, call->stream, &data);
}

static size_t linear_add_scratch(const struct kernel_problem *p)
{
    const struct gemm_form form = linear_add_form(p);
    return gemm_scratch(&form);
}

static enum status linear_add_prepare(const struct kernel_problem *p, void **out)
{
    const struct gemm_form form = linear_add_form(p);
    return gemm_create(&form, (struct gemm **)out);
}

static void linear_add(const struct kernel_call *call)
{
    const struct gemm_data data = { .a = call->in[0],
                                    .b = call->in[1],
                                    .bias = call->in[2],
                                    .base = call->in[3],
                                    .c = call->out[0],
                                    .scratch = call->scratch };
    gemm_run(call->state, call->stream, &data);
}

/* The product's scratch, and after it that of the sums. */
static size_t grad_input_scratch(const struct kernel_problem *p)
{
    const struct gemm_form form = grad_input_form(p);
    return gemm_scratch(&form);
}

static enum status grad_input_prepare(const struct kernel_problem *p, void **out)
{
    const struct gemm_form form = grad_input_form(p);
    return gemm_create(&form, (struct gemm **)out);
}

/* The product's scratch, and after it that of the bias's sum. */
static size_t grad_weight_scratch(const struct kernel_problem *p)
{
    const struct gemm_form form = grad_weight_form(p);
    const size_t sums =
        p->n_out > 1 ? sum_rows_scratch(p->in[1].shape.dim[0], p->in[1].shape.dim[1]) : 0;

    return gemm_scratch(&form) + sums;
}

static enum status grad_weight_prepare(const struct kernel_problem *p, void **out)
{
    const struct gemm_form form = grad_weight_form(p);
    return gemm_create(&form, (struct gemm **)out);
}

static void grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const bool plain = p->out[0].layout == LAYOUT_PLAIN;
    const struct gemm_form form = grad_weight_form(p);
    const struct gemm_data data = { .a = call->in[plain ? 1 : 0],
                                    .b = call->in[plain ? 0 : 1],
                                    .c = call->out[0],
                                    .scratch = call->scratch };

    gemm_run(call->state, call->stream, &data);
    if (p->n_out > 1)
        sum_rows(call->stream, (void *)call->in[1], NULL, p->in[1].dtype, p->in[1].shape.dim[0],
                 p->in[1].shape.dim[1], call->out[1],
                 (char *)call->scratch + gemm_scratch(&form));
}

const struct kernel cuda_linear_rows[] = {
    { .op = "linear",
      .name = "cublaslt",
      .scratch_bytes = linear_scratch,
      .prepare = linear_prepare,
      .release = release,
      .run = linear },
    { .op = "linear_grad_input",
      .name = "cublaslt",
      .scratch_bytes = grad_input_scratch,
      .prepare = grad_input_prepare,
      .release = release,
      .run = linear },
    { .op = "linear_grad_weight",
      .name = "cublaslt",
      .scratch_bytes = grad_weight_scratch,
      .prepare = grad_weight_prepare,
      .release = release,
      .run = grad_weight },
    { .op = "linear_gelu",
      .name = "cublaslt",
      .scratch_bytes = linear_gelu_scratch,
      .prepare = linear_gelu_prepare,
      .release = release,
      .run = linear_gelu },
    { .op = "linear_add",
      .name = "cublaslt",
      .scratch_bytes = linear_add_scratch,
      .prepare = linear_add_prepare,
      .release = release,
      .run = linear_add },
    { 0 },
};
