/* SPDX-License-Identifier: MIT */
/* scaling.cu - losses scaled while a step computes in f16, on the stream between other kernels. */
#include "kernel/cuda/device.cuh"

__global__ void scale_steps(const struct device_scaling *scaling,
                            const struct kernel_step *steps, size_t count,
                            struct kernel_step *out)
{
    const size_t i = (size_t)thread_number();

    if (i >= count)
        return;
    out[i] = steps[i];
    out[i].inv_batch *= scaling->scale;
    out[i].scale = scaling->scale;
}

__global__ void __launch_bounds__(THREADS)
    take_scale_back(const __grid_constant__ struct joint_parts squares, size_t count,
                    float max_norm, struct device_scaling *scaling,
                    struct kernel_update_step *numbers)
{
    const double sum = joint_total(squares, 0, count), scale = (double)scaling->scale;

    if (threadIdx.x > 0)
        return;
    if (!isfinite(sum)) {
        numbers->skips = 1;
        scaling->skipped++;
        scaling->good = 0;
        scaling->scale = scaling->scale > 1 ? scaling->scale / 2 : 1;
        return;
    }
    const double factor = max_norm > 0 ? (double)max_norm / (sqrt(sum) / scale + 1e-6) : 1;
    numbers->scale = (float)((factor < 1 ? factor : 1) / scale);
    if (++scaling->good == DEVICE_SCALE_STEPS) {
        scaling->good = 0;
        scaling->scale *= 2;
    }
}

void cuda_scale_losses(struct device_stream *stream, const struct device_scaling *scaling,
                       const struct kernel_step *steps, size_t count, struct kernel_step *out)
{
    scale_steps<<<blocks_of((int64_t)count, THREADS), THREADS, 0, stream->cuda>>>(
        scaling, steps, count, out);
    stream_check(stream, "scale_losses");
}

void cuda_unscale(struct device_stream *stream, const struct joint_parts *squares, size_t count,
                  float max_norm, struct device_scaling *scaling,
                  struct kernel_update_step *numbers)
{
    take_scale_back<<<1, THREADS, 0, stream->cuda>>>(*squares, count, max_norm, scaling,
                                                     numbers);
    stream_check(stream, "unscale");
}
