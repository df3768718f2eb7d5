#!/usr/bin/env bash
# bench_comm.sh - bench comm prints a line for each op and size: what a step does, and what comm/ does.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

# lines MEDIUM ARGUMENTS...: the ops of a step, at sizes that divide and that do not
lines() {
    local medium=$1
    shift
    timeout 120 "$tutti" bench comm "$@" --bytes 4,65536 --op all_reduce,reduce_scatter,update,all_gather --json >lines.txt ||
        complain "bench comm $*"
    python3 - "$medium" "$@" <<'PY' || complain "bench comm $*: $(head -4 lines.txt)"
import json, sys
medium, flags = sys.argv[1], sys.argv[2:]
ranks = int(flags[flags.index("-n") + 1])
lines = [json.loads(line) for line in open("lines.txt")]
ops = ["all_reduce", "reduce_scatter", "update", "all_gather"][:3 if ranks == 1 else 4] # one rank gathers nothing
assert [(l["bytes"], l["op"]) for l in lines] == [(b, o) for b in (4, 65536) for o in ops], lines
for l in lines:
    assert l["bench"] == "comm" and l["ranks"] == ranks and l["transport"] and l["calls"] >= 5, l
    assert l["nodes"] == (ranks if medium == "messages" else 1), l
    assert 0 < l["us"] <= l["us_p90"] < 1e7, l
    tasks = "shared: reduce_scatter+update" + ("+all_gather" if ranks > 1 else "")
    if medium == "messages":
        tasks = {"all_reduce": "messages: reduce_scatter+update, all_gather", "all_gather": "messages: all_gather"}.get(l["op"], "messages: reduce_scatter+update")
    assert l["algorithm"] == tasks, l
    parts = 2 if medium == "shared" or l["op"] == "all_reduce" else 1
    assert abs(l["optimum"] - parts * l["bytes"] * (ranks - 1) / ranks) < 1, l
    # Parts of a bucket are whole stretches, so a rank may have most of a small one.
    assert l["bytes"] < 65536 or 0.9 <= l["bytes_sent"] / max(l["optimum"], 1) <= 1.5 or ranks == 1, l
PY
}
for ranks in 1 2 3 4; do
    lines shared -n $ranks
    [ $ranks = 1 ] || lines messages -n $ranks --flat
done
lines shared -n 2 --threads 2 --accumulate 2 --optimizer adam
has_size() { "$tutti" bench comm -n 2 --bytes 4084 "$@" | grep -q '^all_reduce *4084 bytes' || complain "4084 bytes $*"; }
has_size
has_size --flat

# Settings of training change the step.
has() { # TEXT ARGUMENTS...
    local text=$1
    shift
    "$tutti" bench comm -n 2 --bytes 4096 "$@" >out.txt 2>err.txt && grep -qF "$text" out.txt || complain "$*: $(cat out.txt err.txt)"
}
has 'shared: reduce_scatter, norm, update+all_gather' --clip 1
has 'messages: all_reduce+update (compressed)' --compress int8
has 'messages: reduce_scatter+update, all_gather (no bytes)' --strategy zero --split dp=2,zero=3 --flat
has 'none: update' --op update --clip 1 --flat

# What training does besides, and the algorithms.
has ' shared' --algorithm auto
has ' direct' --algorithm auto --op reduce_scatter --flat
has ' tree' --algorithm all --flat
"$tutti" bench comm -n 2 --bytes 64,4096 --op all_reduce,broadcast,barrier,ping --json >out.txt || complain "four ops"
[ "$(grep -o '"op": "[a-z_]*"' out.txt | sort | uniq -c | grep -c ' 2 ')" = 4 ] && [ "$(grep -c update out.txt)" = 2 ] ||
    complain "ops of a step and of comm/: $(cat out.txt)"

refused() { # TEXT ARGUMENTS...
    "$tutti" bench comm "${@:2}" >out.txt 2>err.txt
    [ $? = 2 ] && grep -q -- "$1" err.txt && [ ! -s out.txt ] || complain "${*:2}: $(cat out.txt err.txt)"
}
refused '--op sum: there are all_reduce.*and, without --algorithm, update' --op sum
refused '--op update: there are all_reduce' --op update --algorithm direct
refused 'strategy localsgd: its workers make steps alone' -n 2 --strategy localsgd
refused 'strategy tensor: its ranks have different buckets' -n 2 --strategy tensor
refused 'of ranks that compute on the cpu' -n 1 --device cuda
finish
