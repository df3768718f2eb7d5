#!/usr/bin/env python3
"""tasks.py TRACE PROGRAM... - a trace has the tasks that `tutti graph --after lower --format json` lists.

PROGRAM: one a rank, in their order. Of each step that was traced every rank has run the tasks of its
program, all of them and no other, and no task has begun before one that it waits for. A task between
steps is run every so many steps: after one of them at least.
--groups 0,1/2,3: ranks that share memory and a program; without it each has its own.
"""
import json
import sys

arguments = sys.argv[1:]
groups = []
if arguments[0] == "--groups":
    groups = [[int(r) for r in group.split(",")] for group in arguments[1].split("/")]
    del arguments[:2]
trace_file, *program_files = arguments
programs = [{t["task"]: t for t in json.load(open(f))["tasks"]} for f in program_files]
events = [e for e in json.load(open(trace_file))["traceEvents"] if e.get("cat") == "task"]
failures = []
FIRST_STEP = 1


def complain(text):
    if text not in failures:
        failures.append(text)


begins = {}  # (rank, step, task): times
for e in events:
    if e["ph"] != "b":
        continue
    rank, step, task = e["pid"], e["args"]["step"], e["args"]["task"]
    if step < FIRST_STEP:  # its end was seen, as tracing began
        continue
    if rank >= len(programs):
        complain(f"rank {rank} has tasks, there are {len(programs)} programs")
        continue
    listed = programs[rank].get(task)
    if not listed or listed["name"] != e["name"]:
        complain(f"rank {rank} ran {task} {e['name']}, which is not listed")
        continue
    begins.setdefault((rank, step, task), []).append(e["ts"])


def members(rank, task, wait):
    """Ranks whose part a wait of a rank's task is for."""
    group = next((g for g in groups if rank in g), [rank])
    return group if wait["by"] == "members" else [rank]


def check_uses(rank, step, program, number, wait):
    """The k-th time comes after what it waits for has begun as often; for the last use, once less."""
    own = sorted(begins[rank, step, number])
    for r in members(rank, number, wait):
        times = sorted(begins.get((r, step, wait["task"]), []))
        if wait["of"] == "last use":
            times = [0] + times
        if any(a > b for a, b in zip(times, own)) or len(times) < len(own):
            complain(f"rank {rank}: {program[number]['name']} began before rank {r}'s {program[wait['task']]['name']} of the use, step {step}")


steps = {rank: sorted({s for r, s, _ in begins if r == rank}) for rank in range(len(programs))}
for rank, program in enumerate(programs):
    if not steps[rank]:
        complain(f"rank {rank} has no tasks in the trace")
    for step in steps[rank]:
        ran = {t for r, s, t in begins if (r, s) == (rank, step)}
        for number in set(program) - ran:
            if program[number]["between"]:
                continue
            complain(f"rank {rank} did not run {number} {program[number]['name']} in step {step}")
        for number in ran:
            begin = min(begins[rank, step, number])
            for wait in program[number]["waits"]:
                if wait["by"] == "server" or wait["before"] == "end":
                    continue
                if wait["of"].endswith("use"):
                    check_uses(rank, step, program, number, wait)
                    continue
                before = step - (wait["of"] == "last step")
                for r in members(rank, number, wait):
                    times = begins.get((r, before, wait["task"]))
                    if times and max(times) > begin:
                        complain(f"rank {rank}: {program[number]['name']} began before rank {r}'s {program[wait['task']]['name']}, step {step}")
    ever = {t for r, _, t in begins if r == rank}
    for number in set(program) - ever:
        complain(f"rank {rank} never ran {number} {program[number]['name']}")
for text in failures[:12]:
    print(text)
print(f"{len(events) // 2} tasks on {len(programs)} ranks, steps {steps[0]}")
sys.exit(1 if failures else 0)
