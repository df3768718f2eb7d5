/* SPDX-License-Identifier: MIT */
/* kernel_lab.c - how fast each kernel solves the problems of the models, in one thread.
 *
 *     kernel_lab [--pool N] [part of a problem's line | a problem's line ...]
 *
 * One line a problem: GFLOP/s (median, and the best in parentheses) of every kernel that can
 * run it, how far its result is from "reference" (where that takes less than a second or so),
 * the best kernel's share of the processor's multiply-add peak measured in the same minute, and
 * the rate at which it reads its inputs and writes its outputs once, which is what counts
 * for a depthwise convolution. Operations are those of the plain sum, so "winograd" may pass the peak. Kernels
 * take turns, so that a disturbance hits all of them. What the built-in table of choices
 * says comes from here; TUTTI_ISA=avx2 measures the other instruction set.
 *
 * With --pool N, "xR" follows: how many times as fast N threads are that share the problem, by the
 * clock on the wall, so other programs count.
 *
 * Ops that memory bounds have microseconds instead, and beside them the floor: the bytes that must
 * pass (whatever is read before and after a sum twice), as fast as "add" of two tensors of this size
 * passes its own, taking turns with it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "kernel/kernel.h"
#include "kernel/measure.h"
#include "kernels/peak.h"

enum { ROUNDS = 25, MOST_KERNELS = 8 };
static const double SAMPLE_NS = 2e6, CHECK_FLOPS = 1e9;

/* Lines as kernel_parse reads them, by model. A line that begins with # is a heading. */
static const char *const problems[] = {
    "# mlp, shard of 32",
    "linear 32x784 250x784 250 relu",
    "linear 32x250 100x250 100 relu",
    "linear 32x100 10x100 10",
    "linear_grad_weight 32x784 32x250 -> 250x784 250",
    "linear_grad_weight 32x250 32x100 -> 100x250 100",
    "linear_grad_weight 32x100 32x10 -> 10x100 10",
    "linear_grad_input 32x100 100x250 -> 32x250",
    "linear_grad_input 32x10 10x100 -> 32x100",
    "# mlp, shard of 64",
    "linear 64x784 250x784 250 relu",
    "linear_grad_weight 64x784 64x250 -> 250x784 250",
    "linear_grad_input 64x100 100x250 -> 64x250",
    "# mlp, shard of 256",
    "linear 256x784 250x784 250 relu",
    "linear 256x250 100x250 100 relu",
    "linear 256x100 10x100 10",
    "linear_grad_weight 256x784 256x250 -> 250x784 250",
    "linear_grad_weight 256x250 256x100 -> 100x250 100",
    "linear_grad_weight 256x100 256x10 -> 10x100 10",
    "linear_grad_input 256x100 100x250 -> 256x250",
    "linear_grad_input 256x10 10x100 -> 256x100",
    "# cnn, shard of 32",
    "conv2d_pool 32x1x28x28 32x1x3x3 32 stride 1x1 pad 1x1 window 2x2 relu",
    "conv2d 32x1x28x28 32x1x3x3 32 stride 1x1 pad 1x1 relu",
    "conv2d_pool 32x32x14x14 64x32x3x3 64 stride 1x1 pad 1x1 window 2x2 relu",
    "conv2d 32x32x14x14 64x32x3x3 64 stride 1x1 pad 1x1 relu",
    "linear 32x3136 128x3136 128 relu",
    "linear 32x128 10x128 10",
    "conv2d_grad_weight 32x1x28x28 32x32x28x28 -> 32x1x3x3 32 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x32x14x14 32x64x14x14 -> 64x32x3x3 64 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x64x14x14 64x32x3x3 -> 32x32x14x14 stride 1x1 pad 1x1",
    "conv2d_pool_grad_weight 32x1x28x28 32x32x14x14 32x32x14x14 -> 32x1x3x3 32 "
    "stride 1x1 pad 1x1 window 2x2",
    "conv2d_pool_grad_weight 32x32x14x14 32x64x7x7 32x64x7x7 -> 64x32x3x3 64 "
    "stride 1x1 pad 1x1 window 2x2",
    "conv2d_pool_grad_input 32x64x7x7 32x64x7x7 64x32x3x3 -> 32x32x14x14 "
    "stride 1x1 pad 1x1 window 2x2",
    "linear_grad_weight 32x3136 32x128 -> 128x3136 128",
    "linear_grad_input 32x128 128x3136 -> 32x3136",
    "# vgg11 on 32x32, shard of 32",
    "conv2d 32x3x32x32 64x3x3x3 64 stride 1x1 pad 1x1 relu",
    "conv2d 32x64x16x16 128x64x3x3 128 stride 1x1 pad 1x1 relu",
    "conv2d 32x256x8x8 256x256x3x3 256 stride 1x1 pad 1x1 relu",
    "conv2d 32x512x4x4 512x512x3x3 512 stride 1x1 pad 1x1 relu",
    "conv2d 32x512x2x2 512x512x3x3 512 stride 1x1 pad 1x1 relu",
    "conv2d_grad_weight 32x3x32x32 32x64x32x32 -> 64x3x3x3 64 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x64x16x16 32x128x16x16 -> 128x64x3x3 128 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x256x8x8 32x256x8x8 -> 256x256x3x3 256 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x512x4x4 32x512x4x4 -> 512x512x3x3 512 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x512x2x2 32x512x2x2 -> 512x512x3x3 512 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x128x16x16 128x64x3x3 -> 32x64x16x16 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x256x8x8 256x256x3x3 -> 32x256x8x8 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x512x4x4 512x512x3x3 -> 32x512x4x4 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x512x2x2 512x512x3x3 -> 32x512x2x2 stride 1x1 pad 1x1",
    "# lenet, shard of 64",
    "conv2d_pool 64x1x28x28 6x1x5x5 6 stride 1x1 pad 0x0 window 2x2 relu",
    "conv2d_pool 64x6x12x12 16x6x5x5 16 stride 1x1 pad 0x0 window 2x2 relu",
    "conv2d_pool_grad_weight 64x1x28x28 64x6x12x12 64x6x12x12 -> 6x1x5x5 6 "
    "stride 1x1 pad 0x0 window 2x2",
    "conv2d_pool_grad_weight 64x6x12x12 64x16x4x4 64x16x4x4 -> 16x6x5x5 16 "
    "stride 1x1 pad 0x0 window 2x2",
    "conv2d_pool_grad_input 64x16x4x4 64x16x4x4 16x6x5x5 -> 64x6x12x12 "
    "stride 1x1 pad 0x0 window 2x2",
    "# resnet18, shard of 32",
    "conv2d 32x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d 32x64x32x32 128x64x3x3 stride 2x2 pad 1x1",
    "conv2d 32x64x32x32 128x64x1x1 stride 2x2 pad 0x0",
    "conv2d_grad_weight 32x64x32x32 32x64x32x32 -> 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x64x32x32 32x128x16x16 -> 128x64x3x3 stride 2x2 pad 1x1",
    "conv2d_grad_weight 32x64x32x32 32x128x16x16 -> 128x64x1x1 stride 2x2 pad 0x0",
    "conv2d_grad_input 32x64x32x32 64x64x3x3 -> 32x64x32x32 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x128x16x16 128x64x3x3 -> 32x64x32x32 stride 2x2 pad 1x1",
    "conv2d_grad_input 32x128x16x16 128x64x1x1 -> 32x64x32x32 stride 2x2 pad 0x0",
    "# mobilenet_v2 on 32x32, shard of 64: depthwise, bound by memory",
    "conv2d 64x32x32x32 32x1x3x3 stride 1x1 pad 1x1 groups 32",
    "conv2d_grad_input 64x32x32x32 32x1x3x3 -> 64x32x32x32 stride 1x1 pad 1x1 groups 32",
    "conv2d_grad_weight 64x32x32x32 64x32x32x32 -> 32x1x3x3 stride 1x1 pad 1x1 groups 32",
    "conv2d 64x96x32x32 96x1x3x3 stride 1x1 pad 1x1 groups 96",
    "conv2d_grad_input 64x96x32x32 96x1x3x3 -> 64x96x32x32 stride 1x1 pad 1x1 groups 96",
    "conv2d_grad_weight 64x96x32x32 64x96x32x32 -> 96x1x3x3 stride 1x1 pad 1x1 groups 96",
    "conv2d 64x144x32x32 144x1x3x3 stride 1x1 pad 1x1 groups 144",
    "conv2d_grad_input 64x144x32x32 144x1x3x3 -> 64x144x32x32 stride 1x1 pad 1x1 groups 144",
    "conv2d_grad_weight 64x144x32x32 64x144x32x32 -> 144x1x3x3 stride 1x1 pad 1x1 groups 144",
    "conv2d 64x144x32x32 144x1x3x3 stride 2x2 pad 1x1 groups 144",
    "conv2d_grad_input 64x144x16x16 144x1x3x3 -> 64x144x32x32 stride 2x2 pad 1x1 groups 144",
    "conv2d_grad_weight 64x144x32x32 64x144x16x16 -> 144x1x3x3 stride 2x2 pad 1x1 groups 144",
    "conv2d 64x192x16x16 192x1x3x3 stride 1x1 pad 1x1 groups 192",
    "conv2d_grad_input 64x192x16x16 192x1x3x3 -> 64x192x16x16 stride 1x1 pad 1x1 groups 192",
    "conv2d_grad_weight 64x192x16x16 64x192x16x16 -> 192x1x3x3 stride 1x1 pad 1x1 groups 192",
    "conv2d 64x384x8x8 384x1x3x3 stride 1x1 pad 1x1 groups 384",
    "conv2d_grad_input 64x384x8x8 384x1x3x3 -> 64x384x8x8 stride 1x1 pad 1x1 groups 384",
    "conv2d_grad_weight 64x384x8x8 64x384x8x8 -> 384x1x3x3 stride 1x1 pad 1x1 groups 384",
    "conv2d 64x576x8x8 576x1x3x3 stride 2x2 pad 1x1 groups 576",
    "conv2d_grad_input 64x576x4x4 576x1x3x3 -> 64x576x8x8 stride 2x2 pad 1x1 groups 576",
    "conv2d_grad_weight 64x576x8x8 64x576x4x4 -> 576x1x3x3 stride 2x2 pad 1x1 groups 576",
    "conv2d 64x960x4x4 960x1x3x3 stride 1x1 pad 1x1 groups 960",
    "conv2d_grad_input 64x960x4x4 960x1x3x3 -> 64x960x4x4 stride 1x1 pad 1x1 groups 960",
    "conv2d_grad_weight 64x960x4x4 64x960x4x4 -> 960x1x3x3 stride 1x1 pad 1x1 groups 960",
    "# mobilenet_v2: 1x1",
    "conv2d 64x24x32x32 144x24x1x1 stride 1x1",
    "conv2d_grad_input 64x144x32x32 144x24x1x1 -> 64x24x32x32 stride 1x1",
    "conv2d_grad_weight 64x24x32x32 64x144x32x32 -> 144x24x1x1 stride 1x1",
    "conv2d 64x144x32x32 24x144x1x1 stride 1x1",
    "conv2d_grad_input 64x24x32x32 24x144x1x1 -> 64x144x32x32 stride 1x1",
    "conv2d_grad_weight 64x144x32x32 64x24x32x32 -> 24x144x1x1 stride 1x1",
    "conv2d 64x64x8x8 384x64x1x1 stride 1x1",
    "conv2d_grad_input 64x384x8x8 384x64x1x1 -> 64x64x8x8 stride 1x1",
    "conv2d_grad_weight 64x64x8x8 64x384x8x8 -> 384x64x1x1 stride 1x1",
    "conv2d 64x384x8x8 64x384x1x1 stride 1x1",
    "conv2d_grad_input 64x64x8x8 64x384x1x1 -> 64x384x8x8 stride 1x1",
    "conv2d_grad_weight 64x384x8x8 64x64x8x8 -> 64x384x1x1 stride 1x1",
    "conv2d 64x160x4x4 960x160x1x1 stride 1x1",
    "conv2d_grad_input 64x960x4x4 960x160x1x1 -> 64x160x4x4 stride 1x1",
    "conv2d_grad_weight 64x160x4x4 64x960x4x4 -> 960x160x1x1 stride 1x1",
    "conv2d 64x960x4x4 160x960x1x1 stride 1x1",
    "conv2d_grad_input 64x160x4x4 160x960x1x1 -> 64x960x4x4 stride 1x1",
    "conv2d_grad_weight 64x960x4x4 64x160x4x4 -> 160x960x1x1 stride 1x1",
    "conv2d 64x320x4x4 1280x320x1x1 stride 1x1",
    "conv2d_grad_input 64x1280x4x4 1280x320x1x1 -> 64x320x4x4 stride 1x1",
    "conv2d_grad_weight 64x320x4x4 64x1280x4x4 -> 1280x320x1x1 stride 1x1",
    "# 3x3 of resnet18, shard of 64",
    "conv2d 64x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 64x64x32x32 64x64x3x3 -> 64x64x32x32 stride 1x1 pad 1x1",
    "conv2d_grad_weight 64x64x32x32 64x64x32x32 -> 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d 64x128x16x16 128x128x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 64x128x16x16 128x128x3x3 -> 64x128x16x16 stride 1x1 pad 1x1",
    "conv2d_grad_weight 64x128x16x16 64x128x16x16 -> 128x128x3x3 stride 1x1 pad 1x1",
    "conv2d 64x256x8x8 256x256x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 64x256x8x8 256x256x3x3 -> 64x256x8x8 stride 1x1 pad 1x1",
    "conv2d_grad_weight 64x256x8x8 64x256x8x8 -> 256x256x3x3 stride 1x1 pad 1x1",
    "conv2d 64x512x4x4 512x512x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 64x512x4x4 512x512x3x3 -> 64x512x4x4 stride 1x1 pad 1x1",
    "conv2d_grad_weight 64x512x4x4 64x512x4x4 -> 512x512x3x3 stride 1x1 pad 1x1",
    "# strided 3x3 of resnet18, shard of 64",
    "conv2d 64x64x32x32 128x64x3x3 stride 2x2 pad 1x1",
    "conv2d_grad_input 64x128x16x16 128x64x3x3 -> 64x64x32x32 stride 2x2 pad 1x1",
    "conv2d_grad_weight 64x64x32x32 64x128x16x16 -> 128x64x3x3 stride 2x2 pad 1x1",
    "conv2d 64x128x16x16 256x128x3x3 stride 2x2 pad 1x1",
    "conv2d_grad_input 64x256x8x8 256x128x3x3 -> 64x128x16x16 stride 2x2 pad 1x1",
    "conv2d_grad_weight 64x128x16x16 64x256x8x8 -> 256x128x3x3 stride 2x2 pad 1x1",
    "conv2d 64x256x8x8 512x256x3x3 stride 2x2 pad 1x1",
    "conv2d_grad_input 64x512x4x4 512x256x3x3 -> 64x256x8x8 stride 2x2 pad 1x1",
    "conv2d_grad_weight 64x256x8x8 64x512x4x4 -> 512x256x3x3 stride 2x2 pad 1x1",
    "# conv_autoencoder, shard of 64",
    "conv2d 64x1x28x28 16x1x3x3 16 stride 2x2 pad 1x1 relu",
    "conv2d_grad_weight 64x1x28x28 64x16x14x14 -> 16x1x3x3 16 stride 2x2 pad 1x1",
    "conv2d 64x16x14x14 32x16x3x3 32 stride 2x2 pad 1x1 relu",
    "conv2d_grad_input 64x32x7x7 32x16x3x3 -> 64x16x14x14 stride 2x2 pad 1x1",
    "conv2d_grad_weight 64x16x14x14 64x32x7x7 -> 32x16x3x3 32 stride 2x2 pad 1x1",
    "conv2d 64x32x7x7 64x32x7x7 64 stride 1x1",
    "conv2d_grad_input 64x64x1x1 64x32x7x7 -> 64x32x7x7 stride 1x1",
    "conv2d_grad_weight 64x32x7x7 64x64x1x1 -> 64x32x7x7 64 stride 1x1",
    "conv2d_transpose 64x64x1x1 64x32x7x7 32 stride 1x1 extent 7x7 relu",
    "conv2d_transpose_grad_input 64x32x7x7 64x32x7x7 -> 64x64x1x1 stride 1x1",
    "conv2d_transpose_grad_weight 64x64x1x1 64x32x7x7 -> 64x32x7x7 32 stride 1x1",
    "conv2d_transpose 64x32x7x7 32x16x3x3 16 stride 2x2 pad 1x1 extent 14x14 relu",
    "conv2d_transpose_grad_input 64x16x14x14 32x16x3x3 -> 64x32x7x7 stride 2x2 pad 1x1",
    "conv2d_transpose_grad_weight 64x32x7x7 64x16x14x14 -> 32x16x3x3 16 stride 2x2 pad 1x1",
    "conv2d_transpose 64x16x14x14 16x1x3x3 1 stride 2x2 pad 1x1 extent 28x28 sigmoid",
    "conv2d_transpose_grad_input 64x1x28x28 16x1x3x3 -> 64x16x14x14 stride 2x2 pad 1x1",
    "conv2d_transpose_grad_weight 64x16x14x14 64x1x28x28 -> 16x1x3x3 1 stride 2x2 pad 1x1",
    "# batch norm, shard of 64: resnet18, vgg11_bn, mobilenet_v2 on 32x32",
    "batch_norm 64x64x32x32 64 64 relu",
    "batch_norm 64x64x32x32 64 64 64x64x32x32 relu",
    "batch_norm 64x128x16x16 128 128 relu",
    "batch_norm 64x256x8x8 256 256 relu",
    "batch_norm 64x512x4x4 512 512 relu",
    "batch_norm 64x24x32x32 24 24",
    "batch_norm 64x96x32x32 96 96 relu6",
    "batch_norm 64x144x32x32 144 144 relu6",
    "batch_norm 64x1280x4x4 1280 1280 relu6",
    "batch_norm_grad 64x64x32x32 64x64x32x32 64 2x64 64x64x32x32 -> 64x64x32x32 64 64 relu",
    "batch_norm_grad 64x64x32x32 64x64x32x32 64 2x64 64x64x32x32 -> 64x64x32x32 64 64 "
    "64x64x32x32 relu",
    "batch_norm_grad 64x128x16x16 64x128x16x16 128 2x128 64x128x16x16 -> 64x128x16x16 128 128 "
    "relu",
    "batch_norm_grad 64x256x8x8 64x256x8x8 256 2x256 64x256x8x8 -> 64x256x8x8 256 256 relu",
    "batch_norm_grad 64x512x4x4 64x512x4x4 512 2x512 64x512x4x4 -> 64x512x4x4 512 512 relu",
    "batch_norm_grad 64x24x32x32 64x24x32x32 24 2x24 -> 64x24x32x32 24 24",
    "batch_norm_grad 64x96x32x32 64x96x32x32 96 2x96 64x96x32x32 -> 64x96x32x32 96 96 relu6",
    "batch_norm_grad 64x144x32x32 64x144x32x32 144 2x144 64x144x32x32 -> 64x144x32x32 144 144 "
    "relu6",
    "batch_norm_grad 64x1280x4x4 64x1280x4x4 1280 2x1280 64x1280x4x4 -> 64x1280x4x4 1280 1280 "
    "relu6",
    "batch_norm_apply 64x64x32x32 64 64 64 64 relu",
    "# global average pools",
    "avg_pool 64x512x4x4 stride 4x4 window 4x4",
    "avg_pool 64x1280x4x4 stride 4x4 window 4x4",
    "avg_pool 64x512x2x2 stride 2x2 window 2x2",
    "avg_pool 64x512x7x7 stride 7x7 window 7x7",
    "avg_pool 64x512x1x1 stride 1x1 window 1x1",
    "avg_pool_grad 64x512x1x1 -> 64x512x4x4 stride 4x4 window 4x4",
    "avg_pool_grad 64x1280x1x1 -> 64x1280x4x4 stride 4x4 window 4x4",
    "avg_pool_grad 64x512x1x1 -> 64x512x2x2 stride 2x2 window 2x2",
    "avg_pool_grad 64x512x1x1 -> 64x512x7x7 stride 7x7 window 7x7",
    "avg_pool_grad 64x512x1x1 -> 64x512x1x1 stride 1x1 window 1x1",
    "# activations",
    "relu6 64x96x32x32",
    "relu6_grad 64x96x32x32 64x96x32x32 -> 64x96x32x32",
    "sigmoid 64x96x32x32",
    "sigmoid_grad 64x96x32x32 64x96x32x32 -> 64x96x32x32",
    "# seq2seq, shard of 64: layers of 512 units, 25 steps",
    "lstm 64x25x2048 2048x512 2048 64x25 64x1024",
    "lstm_grad 64x25x2048 2048x512 64x25 64x25x512 64x25x512 -> 64x25x2048 64x1024",
    "gru 64x25x1536 1536x512 1536 64x25 64x512",
    "gru_grad 64x25x1536 1536x512 64x25 64x25x512 64x25x512 64x25x512 -> 64x25x1536 64x25x1536 "
    "64x512",
    "# gpt",
    "linear 1536x384 1152x384 1152",
    "linear 1536x1536 384x1536 384",
    "linear 256x768 3072x768 3072",
    "linear_grad_weight 1536x384 1536x1152 -> 1152x384 1152",
    "linear_grad_weight 1536x1536 1536x384 -> 384x1536 384",
    "linear_grad_weight 256x768 256x3072 -> 3072x768 3072",
    "linear_grad_input 1536x1152 1152x384 -> 1536x384",
    "linear_grad_input 1536x384 384x1536 -> 1536x1536",
    "linear_grad_input 256x3072 3072x768 -> 256x768",
    "linear 1536x384 384x384 384",
    "linear 1536x384 65x384",
    "linear 256x768 768x768 768",
    "linear_grad_weight 256x768 256x768 -> 768x768 768",
    "linear 128x768 50257x768 plain",
    "linear_grad_input 128x50257 50257x768 -> 128x768 plain",
    "linear_grad_weight 128x768 128x50257 -> 50257x768 plain",
    "linear 1024x1024 1024x1024 1024",
    "attention 6x256x1152 heads 6 causal",
    "attention_grad 6x256x384 6x256x1152 6x256x384 6x256x6 -> 6x256x1152 heads 6 causal",
    "attention 2x64x2304 heads 12 causal",
    "attention_grad 2x64x768 2x64x2304 2x64x768 2x64x12 -> 2x64x2304 heads 12 causal",
    "attention 1x1024x2304 heads 12 causal",
    "attention 8x128x768 8x128 heads 4",
    "layer_norm 1536x384 384 384",
    "layer_norm_grad 1536x384 1536x384 384 1536x2 -> 1536x384 384 384",
    "gelu_tanh 1536x1536",
    "gelu_tanh_grad 1536x1536 1536x1536 -> 1536x1536",
    "gelu 1536x1536",
    "gelu_grad 1536x1536 1536x1536 -> 1536x1536",
    "add_positions 6x256x384 256x384",
    "positions_grad 6x256x384 -> 256x384 extent 256x0",
    "# textcnn, shard of 32",
    "conv1d_max 32x256x100 100x100x3 100 relu",
    "conv1d_max 32x256x100 100x100x4 100 relu",
    "conv1d_max 32x256x100 100x100x5 100 relu",
    "conv1d_max_grad_weight 32x256x100 32x100 32x100 -> 100x100x4 100 extent 4x0",
    "conv1d_max_grad_input 32x100 32x100 100x100x4 32x256x100 -> 32x256x100",
    "# tokens",
    "token_cross_entropy 256x50257 256",
    "token_cross_entropy_grad 256x50257 256x1 256 -> 256x50257",
    "token_accuracy 256x50257 256",
    "token_cross_entropy 3072x65 3072",
    "token_cross_entropy_grad 3072x65 3072x1 3072 -> 3072x65",
    "# seq2seq",
    "linear 64x512 2048x512 2048",
    "linear 1600x256 2048x256 2048",
    "linear_grad_input 1600x2048 2048x256 -> 1600x256",
    "linear_grad_weight 1600x256 1600x2048 -> 2048x256 2048",
    "linear 1600x512 6000x512 6000",
    "# head of vgg11",
    "linear 32x512 4096x512 4096 relu",
    "linear 32x4096 4096x4096 4096 relu",
    "linear_grad_input 32x4096 4096x4096 -> 32x4096",
    "linear_grad_weight 32x4096 32x4096 -> 4096x4096 4096",
};

static bool is_recurrent(const struct kernel_problem *problem)
{
    return strncmp(problem->op, "lstm", 4) == 0 || strncmp(problem->op, "gru", 3) == 0;
}

static bool is_attention(const struct kernel_problem *problem)
{
    return strcmp(problem->op, "attention") == 0 || strcmp(problem->op, "attention_grad") == 0;
}

/* Multiply-adds are two operations. */
static double flops_of(const struct kernel_problem *problem)
{
    const struct shape *a = &problem->in[0].shape, *b = &problem->in[1].shape;
    const struct shape *out = &problem->out[0].shape;
    const int *window = problem->attrs.window;

    if (strncmp(problem->op, "linear", 6) == 0)
        return strcmp(problem->op, "linear_grad_weight") == 0
                   ? 2.0 * (double)shape_count(a) * (double)b->dim[1]
                   : 2.0 * (double)shape_count(a) * (double)shape_count(b) / (double)a->dim[1];
    if (is_attention(problem)) { /* products of what tokens see */
        const struct shape *qkv = strcmp(problem->op, "attention") == 0 ? a : b;
        const double pairs =
            (double)qkv->dim[1] * (double)(qkv->dim[1] + 1) / (problem->attrs.causal ? 2 : 1);
        return (qkv == a ? 4.0 : 10.0) * (double)qkv->dim[0] * pairs * (double)qkv->dim[2] / 3;
    }
    if (is_recurrent(problem)) /* steps of all rows times the weights */
        return 2.0 * (double)(a->dim[0] * a->dim[1]) * (double)shape_count(b);
    if (strncmp(problem->op, "conv1d", 6) ==
        0) /* forward alone: gradients of a maximum are sparse */
        return 2.0 * (double)shape_count(b) * (double)(a->dim[0] * (a->dim[1] - b->dim[2] + 1));
    /* Pixels of dy or y (before pooling) times what one of them takes; transposed, of x or dx. */
    const bool is_weight = strstr(problem->op, "grad_weight") != NULL;
    const bool is_input = strstr(problem->op, "grad_input") != NULL;
    const bool is_transposed = strstr(problem->op, "transpose") != NULL;
    const struct shape *w = out, *y = is_transposed ? (is_input ? out : a)
                                      : is_weight   ? b
                                      : is_input    ? a
                                                    : out;
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].layout == LAYOUT_HWIO)
            w = &problem->in[i].shape;
    }
    const double pool = window[0] > 0 ? window[0] * window[1] : 1;
    return 2.0 * pool * (double)(y->dim[0] * y->dim[2] * y->dim[3]) * (double)shape_count(w);
}

static bool is_memory_bound(const struct kernel_problem *problem)
{
    return strncmp(problem->op, "linear", 6) != 0 && strncmp(problem->op, "conv2d", 6) != 0 &&
           !is_recurrent(problem) && !is_attention(problem) &&
           strcmp(problem->op, "conv1d") != 0 && strcmp(problem->op, "conv1d_max") != 0;
}

/* Bytes that must pass between memory and processor. */
static double bytes_of(const struct kernel_problem *problem)
{
    const bool is_norm = strcmp(problem->op, "batch_norm") == 0;
    const bool is_norm_grad = strcmp(problem->op, "batch_norm_grad") == 0;
    double bytes = 0;

    for (int i = 0; i < problem->n_in; i++) { /* a residual and y need be read once */
        const bool is_twice = (is_norm_grad && i < 4) || (is_norm && i == 0);
        bytes += (is_twice ? 2.0 : 1.0) * (double)shape_count(&problem->in[i].shape) *
                 (double)dtype_size(problem->in[i].dtype);
    }
    for (int i = 0; i < problem->n_out; i++)
        bytes += (double)shape_count(&problem->out[i].shape) *
                 (double)dtype_size(problem->out[i].dtype);
    return bytes;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct entry {
    const struct kernel *kernel;
    struct kernel_trial *trial;
    double difference; /* from the reference, over the largest value; 0 if not compared */
    double ns[ROUNDS];
    double alone[ROUNDS], shared[ROUNDS]; /* on the wall: in one thread, and by the pool */
};

/* Time this thread has run: other programs on the machine do not count. */
static double busy_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* `guess` nanoseconds are about what a run takes. */
static void time_entry(struct entry *entry, int round, double guess)
{
    const int count = guess > SAMPLE_NS ? 1 : (int)(SAMPLE_NS / guess) + 1;
    const double begin = busy_ns();

    for (int i = 0; i < count; i++)
        kernel_trial_run(entry->trial);
    entry->ns[round] = (busy_ns() - begin) / count;
}

static double wall_ns(struct entry *entry, struct pool *pool, int count)
{
    kernel_trial_call(entry->trial)->pool = pool;
    const int64_t begin = clock_ns();

    for (int i = 0; i < count; i++)
        kernel_trial_run(entry->trial);
    return (double)(clock_ns() - begin) / count;
}

/* Prints by how much the pool is faster; NULL: nothing. */
static void print_sharing(struct entry *entry, struct pool *pool, double guess)
{
    const int count = guess > SAMPLE_NS ? 1 : (int)(SAMPLE_NS / guess) + 1;

    if (pool == NULL)
        return;
    for (int round = 0; round < ROUNDS; round++) {
        entry->alone[round] = wall_ns(entry, NULL, count);
        entry->shared[round] = wall_ns(entry, pool, count);
    }
    qsort(entry->alone, ROUNDS, sizeof entry->alone[0], compare);
    qsort(entry->shared, ROUNDS, sizeof entry->shared[0], compare);
    printf(" x%.2f", entry->alone[ROUNDS / 2] / entry->shared[ROUNDS / 2]);
}

/* All kernels for the problem but the reference; its result is compared with theirs. */
static int make_entries(const struct kernel_problem *problem, double flops,
                        struct entry entries[MOST_KERNELS])
{
    struct kernel_trial *reference = NULL;
    const struct kernel *kernel;
    int n = 0;

    if (flops < CHECK_FLOPS &&
        kernel_trial_create(kernel_find(problem->op, "reference"), problem, KERNEL_FILL_NORMAL,
                            1, &reference) == STATUS_OK)
        kernel_trial_run(reference);
    for (size_t i = 0; (kernel = kernel_at(i)) != NULL && n < MOST_KERNELS; i++) {
        if (strcmp(kernel->op, problem->op) != 0 || strcmp(kernel->name, "reference") == 0)
            continue;
        if (kernel_trial_create(kernel, problem, KERNEL_FILL_NORMAL, 1, &entries[n].trial) !=
            STATUS_OK)
            continue;
        entries[n].kernel = kernel;
        kernel_trial_run(entries[n].trial);
        if (kernel_trial_check(entries[n].trial) != STATUS_OK)
            printf("%s writes where it must not\n", kernel->name);
        if (reference != NULL)
            entries[n].difference = kernel_trial_difference(reference, entries[n].trial, 0);
        n++;
    }
    kernel_trial_destroy(reference);
    return n;
}

/* "add" of two tensors as large as the largest of the problem: what memory can do. */
static enum status make_add(const struct kernel_problem *problem, struct entry *out)
{
    const struct shape *a = &problem->in[0].shape, *b = &problem->out[0].shape;
    struct kernel_problem add = { .op = "add", .n_in = 2, .n_out = 1 };

    add.in[0] = problem->in[0];
    add.in[0].shape = shape_count(a) > shape_count(b) ? *a : *b;
    add.in[1] = add.out[0] = add.in[0];
    out->kernel = kernel_find("add", "own");
    return kernel_trial_create(out->kernel, &add, KERNEL_FILL_NORMAL, 1, &out->trial);
}

static void measure_memory_bound(const char *line, const struct kernel_problem *problem,
                                 struct pool *pool)
{
    struct entry entries[MOST_KERNELS] = { 0 }, add = { 0 };
    const double bytes = bytes_of(problem);
    const int n = make_entries(problem, bytes, entries);

    if (make_add(problem, &add) != STATUS_OK) {
        printf("%s: %s\n", line, status_message());
        return;
    }
    for (int round = 0; round < ROUNDS; round++) {
        time_entry(&add, round, bytes / 10);
        for (int i = 0; i < n; i++)
            time_entry(&entries[i], round, bytes / 10);
    }
    qsort(add.ns, ROUNDS, sizeof add.ns[0], compare);
    const double per_byte =
        add.ns[ROUNDS / 2] / bytes_of(kernel_trial_call(add.trial)->problem);
    printf("%-82s", line);
    for (int i = 0; i < n; i++) {
        qsort(entries[i].ns, ROUNDS, sizeof entries[i].ns[0], compare);
        printf(" %s %.0f us (%.0f)", entries[i].kernel->name, entries[i].ns[ROUNDS / 2] / 1e3,
               entries[i].ns[0] / 1e3);
        if (entries[i].difference > 0)
            printf(" %.0e", entries[i].difference);
        print_sharing(&entries[i], pool, bytes / 10);
        kernel_trial_destroy(entries[i].trial);
    }
    printf("  floor %.0f us at %.1f GB/s\n", bytes * per_byte / 1e3, 1 / per_byte);
    fflush(stdout);
    kernel_trial_destroy(add.trial);
}

static void measure(const char *line, struct pool *pool)
{
    struct kernel_problem problem;
    struct entry entries[MOST_KERNELS] = { 0 };

    if (kernel_parse(line, &problem) != STATUS_OK) {
        printf("%s: %s\n", line, status_message());
        return;
    }
    if (is_memory_bound(&problem)) {
        measure_memory_bound(line, &problem, pool);
        return;
    }
    const double flops = flops_of(&problem);
    const int n = make_entries(&problem, flops, entries);
    const double peak = peak_gflops(kernel_isa());
    double most = 0;

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++)
            time_entry(&entries[i], round, flops / 100);
    }
    printf("%-82s", line);
    for (int i = 0; i < n; i++) {
        qsort(entries[i].ns, ROUNDS, sizeof entries[i].ns[0], compare);
        const double median = flops / entries[i].ns[ROUNDS / 2],
                     best = flops / entries[i].ns[0];
        printf(" %s %.0f (%.0f, %.3f ms)", entries[i].kernel->name, median, best,
               entries[i].ns[ROUNDS / 2] / 1e6);
        if (entries[i].difference > 0)
            printf(" %.0e", entries[i].difference);
        print_sharing(&entries[i], pool, flops / 100);
        most = best > most ? best : most;
        kernel_trial_destroy(entries[i].trial);
    }
    printf("  %.0f%% of %.0f, %.1f GB/s\n", 100 * most / peak, peak,
           most * bytes_of(&problem) / flops);
    fflush(stdout);
}

static bool is_wanted(const char *line, int n, char **parts)
{
    for (int i = 0; i < n; i++) {
        if (strstr(line, parts[i]) != NULL)
            return line[0] != '#';
    }
    return n == 0;
}

/* The problems that hold one of the parts, or all; and parts that are problems themselves. */
static void measure_all(int n, char **parts, struct pool *pool)
{
    struct kernel_problem problem;

    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        if (!is_wanted(problems[i], n, parts))
            continue;
        if (problems[i][0] == '#')
            puts(problems[i]);
        else
            measure(problems[i], pool);
    }
    for (int i = 0; i < n; i++) {
        if (kernel_parse(parts[i], &problem) == STATUS_OK)
            measure(parts[i], pool);
    }
}

int main(int argc, char **argv)
{
    const int used = argc > 2 && strcmp(argv[1], "--pool") == 0 ? 3 : 1;
    struct pool *pool = NULL;

    if (used == 3 && pool_create((int)strtol(argv[2], NULL, 10), &pool) != STATUS_OK) {
        printf("%s\n", status_message());
        return 1;
    }
    printf("%s, GFLOP/s or microseconds: median (best)\n", kernel_isa());
    measure_all(argc - used, argv + used, pool);
    pool_destroy(pool);
    return 0;
}
