#!/usr/bin/env bash
# tasks.sh - every strategy runs the tasks that it is lowered to, in shared memory and by messages.
. "$(dirname "$0")/lib.sh"
start() { # RANKS WORKERS ARGUMENTS...: this program starts servers itself
    local workers=$2
    shift 2
    "$tutti" train "$@" -n "$workers"
}
ways=("" --flat)
. "$root/tests/tasks.sh"
for flat in "${ways[@]}"; do # a job that mpirun starts has no replicas
    check_tasks 4 2 $words $flat --strategy asgd --meet ps:2 --replicas 2
    check_tasks 4 2 $words $flat --strategy ps --meet ps:2 --replicas 2 --clip 0.5
done

# The picture has a box for each task, and the text a line.
drawn() { # ARGUMENTS...
    "$tutti" graph mlp "$@" --after lower --format json >program.json && "$tutti" graph mlp "$@" --after lower --format svg >program.svg &&
        "$tutti" graph mlp "$@" --after lower >program.txt || complain "graph mlp $*"
    python3 - <<'PY' || complain "$*: formats differ"
import json, xml.etree.ElementTree as xml
tasks = json.load(open("program.json"))["tasks"]
boxes = [g for g in xml.parse("program.svg").getroot() if g.tag.endswith("}g")]
lines = open("program.txt").read().splitlines()
assert len(tasks) == len(boxes) == len(lines) - 1 > 5, (len(tasks), len(boxes), len(lines))
for task, box, line in zip(tasks, boxes, lines[1:]):
    assert box[0].text == task["name"] and task["name"] in line, (task, line)
PY
}
drawn --strategy zero -n 2 --flat
drawn --strategy ssp -n 2 --rank 2
refused() { # TEXT ARGUMENTS...
    "$tutti" graph mlp "${@:2}" >out.txt 2>err.txt
    [ $? = 2 ] && grep -q -- "$1" err.txt || complain "${*:2}: $(cat err.txt)"
}
refused "text, svg or json" --after lower --format dot
refused "there are ranks 0 to 1" --after lower -n 2 --rank 2
refused "there are ranks 0 to 2" --after lower --strategy ps -n 2 --rank 3
refused "a program for each place" --after lower --split dp=2,tp=2 --sync step --meet ps:1 -n 4 --rank 4
refused "not lowered yet" --after lower --device cuda
finish
