#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How fast PyTorch trains one model: whole steps (zero_grad, forward, loss, backward, update) on
a synthetic batch that is already in memory.

Prints one JSON object a run: samples_per_s and step_ms are medians over windows of about 0.25 s,
step_ms_p10 and step_ms_p90 say how much the windows differ, peak_bytes is the resident peak of
the process (of rank 0 with --ranks) or the allocator's peak on a GPU.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
from torch import distributed

import models

WINDOW_S = 0.25


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("model", choices=models.ZOO)
    p.add_argument("batch", type=int, help="samples in a step, over all ranks together")
    p.add_argument("--threads", type=int, default=0, help="a rank (all cores; 1 with --ranks)")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--mode", choices=("eager", "compile", "graphs"), default="eager")
    p.add_argument("--channels-last", action="store_true", help="NHWC images and weights")
    p.add_argument("--fused", action="store_true", help="fused optimizer (always on a GPU)")
    p.add_argument("--fp32", action="store_true", help="no bfloat16 on a GPU")
    p.add_argument("--ranks", type=int, default=1, help="DistributedDataParallel over gloo")
    p.add_argument("--windows", type=int, default=9)
    args = p.parse_args()
    if args.ranks < 1 or args.batch % args.ranks:
        p.error(f"batch {args.batch} does not divide over {args.ranks} ranks")
    args.fused = args.fused or args.device == "cuda"
    args.threads = args.threads or (1 if args.ranks > 1 else os.cpu_count())
    return args


def make_optimizer(args, parameters):
    kind = models.OPTIMIZER.get(args.model, "sgd")
    fused = {"fused": True} if args.fused else {}  # before PyTorch 2 there is none for CPUs
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4, **fused)
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=1e-3, **fused)
    return torch.optim.AdamW(parameters, lr=3e-4, **fused)


def make_step(args, case):
    net = case.model.to(args.device)
    batch = case.batch(args.batch // args.ranks, args.device)
    if args.channels_last:
        nhwc = torch.channels_last
        net = net.to(memory_format=nhwc)
        batch = [x.contiguous(memory_format=nhwc) if x.dim() == 4 else x for x in batch]
    if args.ranks > 1:
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = make_optimizer(args, net.parameters())
    bfloat16 = args.device == "cuda" and not args.fp32

    def loss():
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=bfloat16):
            return case.loss(net, *batch)

    if args.mode != "eager":
        loss = torch.compile(loss, mode="reduce-overhead" if args.mode == "graphs" else None)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def make_wait(args):
    """What makes the clock see finished work only: of the GPU, or of the other ranks."""
    if args.device == "cuda":
        return torch.cuda.synchronize
    return distributed.barrier if args.ranks > 1 else lambda: None


def seconds_a_step(step, wait, count):
    wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return (time.perf_counter() - start) / count


def measure(args, case):
    """Sorted seconds a step, one number a window."""
    step, wait = make_step(args, case), make_wait(args)
    seconds_a_step(step, wait, 1)  # compiles, allocates
    one = torch.tensor(seconds_a_step(step, wait, 3))
    if args.ranks > 1:
        distributed.broadcast(one, 0)  # windows must have as many steps on every rank
    seconds_a_step(step, wait, max(2, min(20, int(0.5 / one))))
    count = max(1, int(WINDOW_S / one))
    return sorted(seconds_a_step(step, wait, count) for _ in range(args.windows))


def run(args, rank=0):
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    case = models.ZOO[args.model]()
    times = measure(args, case)
    if rank:
        return
    median, tenth = statistics.median(times), len(times) // 10
    if args.device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({
        "peer": f"torch {torch.__version__}", "model": args.model, "batch": args.batch,
        "ranks": args.ranks, "threads": args.threads, "device": args.device,
        "mode": args.mode, "channels_last": args.channels_last, "fused": args.fused,
        "samples_per_s": round(args.batch / median, 2),
        "tokens_per_s": round(args.batch * case.tokens_per_sample / median, 1),
        "step_ms": round(median * 1e3, 4),
        "step_ms_p10": round(times[tenth] * 1e3, 4),
        "step_ms_p90": round(times[-1 - tenth] * 1e3, 4),
        "peak_bytes": peak}), flush=True)


def rank_main(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=args.ranks)
    run(args, rank)
    distributed.destroy_process_group()


def main():
    args = parse()
    if args.ranks == 1:
        run(args)
    else:
        port = 29600 + os.getpid() % 300
        torch.multiprocessing.spawn(rank_main, (args, port), nprocs=args.ranks)


if __name__ == "__main__":
    main()
