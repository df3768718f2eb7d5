#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# run.sh [TUTTI [FOLDER]] - one of four workers is four times as slow: what becomes of each way to synchronize?
#
# Runs every mode without and with a slow worker, one after the other, and writes FOLDER/straggler.md and
# FOLDER/straggler.html (page.py). With fewer cores than workers and a server give ALL=8, or MODEL=mlp ALL=100 on a busy
# machine: then all workers sleep most of the time, and the rest shows what as many machines would do.
set -euo pipefail
tutti=$(realpath "${1:-build/tutti}")
out=${2:-runs/straggler}
here=$(cd "$(dirname "$0")" && pwd)
steps=${STEPS:-1500} all=${ALL:-1}
common=("${MODEL:-cnn}" --data fashion-mnist -n 4 --threads 1 --batch 128 --lr 0.02 --steps "$steps" --log-every 10 --seed 7 --quiet)
mkdir -p "$out"

# NAME FLAGS...: as the command line has them.
modes=(
    "step --strategy mirrored"
    "ps --strategy ps"
    "backup --strategy ps --backup 1"
    "bounded-3 --sync bounded:3"
    "bounded-far --sync bounded:$steps"
    "async --sync async"
    "elastic --sync elastic:10"
    "local --sync local:10"
    "gossip --sync gossip:ring"
)
ran=()
for mode in "${modes[@]}"; do
    read -r name flags <<<"$mode"
    for how in healthy slowed; do
        factor=4
        [ $how = slowed ] || factor=1
        extra=(--slow "rank=2,factor=$factor,all=$all")
        echo "$name, $how: tutti train ${common[*]} $flags ${extra[*]}"
        # shellcheck disable=SC2086 # flags are words
        if ! "$tutti" train "${common[@]}" $flags "${extra[@]}" --overwrite --out "$out/$name-$how" 2>"$out/$name-$how.err"; then
            echo "  left out: $(tail -1 "$out/$name-$how.err")"
            continue 2
        fi
    done
    ran+=("$name")
done
python3 "$here/page.py" "$out" "${ran[@]}"
