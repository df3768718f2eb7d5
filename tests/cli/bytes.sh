#!/usr/bin/env bash
# bytes.sh - the bytes that a step program's tasks move are those that ranks count when they run it.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

# moves WITHIN ARGUMENTS...: of two ranks, all bytes of a step differ by no more than this share
moves() {
    local within=$1 nodes=1
    shift
    case " $* " in *" --flat "* | *" tensor "* | *" pipeline "*) nodes=2 ;; esac # each has its own
    "$tutti" bench train "$@" -n 2 --threads 1 --windows 1 --json >bench.json || complain "bench $*"
    for ((r = 0; r < nodes; r++)); do
        "$tutti" graph "$@" -n 2 --threads 1 --after lower --rank $r --format json \
            >program-$r.json ||
            complain "graph $*"
    done
    python3 - "$within" "$nodes" <<'PY' || complain "$*: $(tail -1 moved.txt)"
import json, sys
within, nodes = float(sys.argv[1]), int(sys.argv[2])
counted = 2 * json.load(open("bench.json"))["bytes_per_step"]
programs = [json.load(open(f"program-{r}.json"))["tasks"] for r in range(nodes)]
says = sum(task["bytes"] for tasks in programs for task in tasks)
open("moved.txt", "w").write(f"ranks count {counted} bytes a step, their programs say {says}\n")
sys.exit(not (counted > 0 and abs(says - counted) <= within * counted))
PY
}

moves 0.001 mlp
moves 0.001 mlp --no-factors
moves 0.001 nbow
moves 0.001 mlp --flat
moves 0.001 nbow --flat
moves 0.001 mlp --flat --strategy zero --split dp=2,zero=2
moves 0.001 mlp --flat --strategy zero --split dp=2,zero=3
moves 0.001 mlp --flat --compress int8
moves 0.005 lenet --clip 1 --flat
moves 0.001 lenet --strategy tensor
moves 0.001 lenet --strategy tensor --flat
moves 0.001 gpt --strategy tensor --batch 2
moves 0.001 lenet --strategy pipeline
moves 0.001 lenet --strategy pipeline --pipeline interleaved:2
finish
