#!/usr/bin/env python3
"""tasks.py TRACE PROGRAM... - a trace has the tasks that `tutti graph --after lower --format json` lists.

PROGRAM: one a rank, in their order. Of each step that was traced every rank has run the tasks of its
program, all of them and no other, and no task has begun before one that it waits for. A task between
steps is run every so many steps: after one of them at least. A task of a server that each worker has a
part in has an event in the row of each; tasks that take turns do not overlap.
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


begins = {}  # (rank, step, task): times, each with its row
spans = {}  # (rank, task) of servers: begin, end, row
for e, end in zip(events, events[1:] + events[:1]):
    if e["ph"] != "b":
        continue
    if (end["ph"], end["id"], end["args"]) != ("e", e["id"], e["args"]):
        complain(f"{e['name']} has no end")
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
    begins.setdefault((rank, step, task), []).append((e["ts"], e["tid"]))
    if listed["place"] == "server":
        spans.setdefault((rank, task), []).append((e["ts"], end["ts"], e["tid"]))


def members(rank, task, wait):
    """Ranks whose part a wait of a rank's task is for."""
    group = next((g for g in groups if rank in g), [rank])
    return group if wait["by"] == "members" else [rank]


def of_each(rank, task):
    return programs[rank][task]["place"] == "server" and programs[rank][task]["members"] > 1


def check_order(rank, step, number, wait):
    """No part of a task has begun before what it waits for; `own`: the same worker's."""
    before = step - wait.get("steps", wait["of"] == "last step")
    late = wait.get("but", 0)
    for r in members(rank, number, wait):
        firsts = begins.get((r, before, wait["task"]), [])
        for begin, row in begins[rank, step, number]:
            own = wait["by"] == "member" and of_each(rank, wait["task"])
            times = sorted(t for t, other in firsts if other == row or not own)
            if own and before >= FIRST_STEP and not times:
                complain(f"rank {rank}: {programs[rank][number]['name']} without {programs[r][wait['task']]['name']}, step {step}")
            if times and times[max(len(times) - 1 - late, 0)] > begin:
                complain(f"rank {rank}: {programs[rank][number]['name']} began before rank {r}'s {programs[r][wait['task']]['name']}, step {step}")


def check_turns(rank, number, other):
    for a in spans.get((rank, number), []):
        for b in spans.get((rank, other), []):
            if a != b and a[0] < b[1] and b[0] < a[1]:
                complain(f"rank {rank}: {programs[rank][number]['name']} and {programs[rank][other]['name']} overlap")


def check_uses(rank, step, number, wait):
    """The k-th time comes after what it waits for has begun as often; for the last use, once less."""
    own = sorted(begins[rank, step, number])
    for r in members(rank, number, wait):
        times = sorted(begins.get((r, step, wait["task"]), []))
        if wait["of"] == "last use":
            times = [(0, None)] + times
        if any(a > b for (a, _), (b, _) in zip(times, own)) or len(times) < len(own):
            complain(f"rank {rank}: {programs[rank][number]['name']} began before rank {r}'s {programs[r][wait['task']]['name']} of the use, step {step}")


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
            times = begins[rank, step, number]
            if program[number]["place"] == "server" and len(times) != program[number]["members"]:
                complain(f"rank {rank} ran {program[number]['name']} {len(times)} times in step {step}")
            for wait in program[number]["waits"]:
                if wait["by"] == "server" or wait["before"] == "end" or wait["of"] == "any step":
                    continue
                if wait["of"].endswith("use"):
                    check_uses(rank, step, number, wait)
                else:
                    check_order(rank, step, number, wait)
    for number in program:
        for wait in program[number]["waits"]:
            if wait["of"] == "any step":
                check_turns(rank, number, wait["task"])
    ever = {t for r, _, t in begins if r == rank}
    for number in set(program) - ever:
        complain(f"rank {rank} never ran {number} {program[number]['name']}")
for text in failures[:12]:
    print(text)
print(f"{len(events) // 2} tasks on {len(programs)} ranks, steps {steps[0]}")
sys.exit(1 if failures else 0)
