/* SPDX-License-Identifier: MIT */
/* blas.cc - as much of cuBLASLt as the plug-in asks for: one algorithm, plain sums in f32. */
#include <cublasLt.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <string.h>
#include <vector>

#include "enqueue.h"

namespace
{

struct layout {
    cudaDataType_t type;
    uint64_t rows, columns; /* columns lie one behind the other */
    int64_t apart;
    int32_t batch;
    int64_t batch_apart;
};

struct product {
    cublasOperation_t across_a, across_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    cudaDataType_t bias_type;
    void *kept; /* what gelu is of */
    int64_t kept_apart;
};

float number(const void *data, cudaDataType_t type, int64_t i)
{
    return type == CUDA_R_16BF  ? __bfloat162float(((const __nv_bfloat16 *)data)[i])
           : type == CUDA_R_16F ? __half2float(((const __half *)data)[i])
                                : ((const float *)data)[i];
}

void put(void *data, cudaDataType_t type, int64_t i, float x)
{
    if (type == CUDA_R_16BF)
        ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn(x);
    else if (type == CUDA_R_16F)
        ((__half *)data)[i] = __float2half_rn(x);
    else
        ((float *)data)[i] = x;
}

/* Element (row, column), or (column, row) if it is taken across. */
std::vector<float> plain(const void *data, const struct layout &l, int32_t batch, bool across)
{
    const int64_t first = batch * l.batch_apart, rows = (int64_t)l.rows;
    const int64_t columns = (int64_t)l.columns;
    std::vector<float> out((size_t)(rows * columns));

    for (int64_t c = 0; c < columns; c++) {
        for (int64_t r = 0; r < rows; r++)
            out[(size_t)(across ? c * rows + r : r * columns + c)] =
                number(data, l.type, first + c * l.apart + r);
    }
    return out;
}

float gelu(float x)
{
    return 0.5F * x * (1 + tanhf(0.7978845608F * (x + 0.044715F * x * x * x)));
}

float finished(const struct product &p, int64_t row, int64_t column, float x)
{
    if (p.epilogue == CUBLASLT_EPILOGUE_BIAS || p.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ||
        p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        x += number(p.bias, p.bias_type, row);
    if (p.epilogue == CUBLASLT_EPILOGUE_RELU || p.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        x = x < 0 ? 0 : x;
    if (p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        put(p.kept, p.bias_type, column * p.kept_apart + row, x);
        x = gelu(x);
    }
    return x;
}

void multiply(const struct product &p, float alpha, const void *a, const struct layout &la,
              const void *b, const struct layout &lb, float beta, const void *c, void *d,
              const struct layout &ld)
{
    const int64_t m = (int64_t)ld.rows, n = (int64_t)ld.columns;
    const int64_t k = (int64_t)(p.across_a == CUBLAS_OP_T ? la.rows : la.columns);
    std::vector<float> sums((size_t)m);

    for (int32_t batch = 0; batch < ld.batch; batch++) {
        /* (k, m) and (n, k), whichever way they lie */
        const std::vector<float> left = plain(a, la, batch, p.across_a != CUBLAS_OP_T);
        const std::vector<float> right = plain(b, lb, batch, p.across_b != CUBLAS_OP_T);
        const int64_t first = batch * ld.batch_apart;
        for (int64_t j = 0; j < n; j++) {
            for (float &sum : sums)
                sum = 0;
            for (int64_t i = 0; i < k; i++) {
                const float y = right[(size_t)(j * k + i)], *x = &left[(size_t)(i * m)];
                for (int64_t r = 0; r < m; r++)
                    sums[(size_t)r] += x[r] * y;
            }
            for (int64_t r = 0; r < m; r++) {
                const int64_t at = first + j * ld.apart + r;
                const float before =
                    beta != 0 ? beta * number(c, ld.type, at) : 0; /* NULL is 0 */
                put(d, ld.type, at, finished(p, r, j, alpha * sums[(size_t)r] + before));
            }
        }
    }
}

template <class T> T value_of(const void *buffer)
{
    T value;

    memcpy(&value, buffer, sizeof value);
    return value;
}

} // namespace

const char *cublasLtGetStatusString(cublasStatus_t)
{
    return "not of this cuBLASLt";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    static int one;

    *out = (cublasLtHandle_t)&one;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t apart)
{
    if (apart < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *out = (cublasLtMatrixLayout_t) new layout{ type, rows, columns, apart, 1, 0 };
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete (struct layout *)l;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t of,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t)
{
    struct layout *l = (struct layout *)of;

    if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        l->batch = value_of<int32_t>(value);
    else if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
        l->batch_apart = value_of<int64_t>(value);
    else
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t,
                                        cudaDataType_t)
{
    *out = (cublasLtMatmulDesc_t) new product();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t p)
{
    delete (struct product *)p;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t)
{
    struct product *p = (struct product *)of;

    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        p->across_a = value_of<cublasOperation_t>(value);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        p->across_b = value_of<cublasOperation_t>(value);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        p->epilogue = value_of<cublasLtEpilogue_t>(value);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        p->bias = value_of<const void *>(value);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        p->bias_type = value_of<cudaDataType_t>(value);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        p->kept = value_of<void *>(value);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        p->kept_apart = value_of<int64_t>(value);
        break;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    static int one;

    *out = (cublasLtMatmulPreference_t)&one;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    void *, size_t, size_t *)
{
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *count)
{
    memset(&results[0], 0, sizeof results[0]);
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t of, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t stream)
{
    const struct product p = *(struct product *)of;
    const struct layout left = *(struct layout *)la, right = *(struct layout *)lb;
    const struct layout into = *(struct layout *)ld;
    const float by = value_of<float>(alpha), adds = value_of<float>(beta);

    enqueue(stream, [=] { multiply(p, by, a, left, b, right, adds, c, d, into); });
    return CUBLAS_STATUS_SUCCESS;
}
