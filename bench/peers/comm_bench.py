#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long gloo's all_reduce of float32 takes through torch.distributed, ranks on one machine.

Prints one JSON object a size with the fields of `tutti bench comm --json`: op, transport, bytes,
ranks, us (median), us_p90. A number is the mean of the calls in a window of about 20 ms (one
call where a call takes longer, and where there is much data, which is then written anew before each call as tutti's
is); the median is over the windows.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
from torch import distributed

WINDOW_S = 0.02
SMALL_BYTES = 8192


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--bytes", type=int, nargs="+", default=[8, 65536, 1 << 20, 64 << 20])
    p.add_argument("--windows", type=int, default=31)
    return p.parse_args()


def seconds_a_call(buffer, count):
    distributed.barrier()
    start = time.perf_counter()
    for _ in range(count):
        distributed.all_reduce(buffer)
    took = time.perf_counter() - start
    distributed.barrier()  # nobody writes in others' time
    return took / count


def measure(nbytes, rank, args):
    buffer = torch.full((nbytes // 4,), rank + 1.0)
    distributed.all_reduce(buffer)
    if not bool((buffer == args.ranks * (args.ranks + 1) / 2).all()):
        sys.exit(f"comm_bench: wrong sum in an all_reduce of {nbytes} bytes")
    buffer.zero_()  # sums of zeros neither overflow nor become denormal
    one = torch.tensor(seconds_a_call(buffer, 3))
    distributed.broadcast(one, 0)
    count = max(1, int(WINDOW_S / one)) if nbytes <= SMALL_BYTES else 1
    times = []
    for _ in range(args.windows):
        buffer.zero_()
        times.append(seconds_a_call(buffer, count))
    return sorted(times)


def rank_main(rank, args, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=args.ranks)
    for nbytes in args.bytes:
        times = measure(nbytes, rank, args)
        if rank == 0:
            print(json.dumps({
                "op": "all_reduce", "transport": "gloo", "bytes": nbytes, "ranks": args.ranks,
                "us": round(statistics.median(times) * 1e6, 3),
                "us_p90": round(times[-1 - len(times) // 10] * 1e6, 3)}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    arguments = parse()
    torch.multiprocessing.spawn(rank_main, (arguments, 29600 + os.getpid() % 300),
                                nprocs=arguments.ranks)
