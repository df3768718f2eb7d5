#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# run.sh [TUTTI [FOLDER]] - four hospitals predict heart disease: all patients pooled, each hospital alone, and federated.
#
# Federated is five processes a fold, a coordinator and four participants, over mutual TLS on this machine: the coordinator learns sums
# alone (secure aggregation), also of the statistics that standardize the tables. Every fold's test patients, of all four
# hospitals, are the same for all three ways. Writes FOLDER/hospitals.md and FOLDER/hospitals.html (page.py), and fails if federated is more than
# 0.02 below pooled, or not above the mean of alone, in accuracy or AUC.
#
# FOLDS=5 folds of patients, MODEL=logistic (or tabular), ROUNDS=15, EPOCHS=4 a round, SEED=1.
set -euo pipefail
tutti=$(realpath "${1:-build/tutti}")
out=${2:-runs/hospitals}
here=$(cd "$(dirname "$0")" && pwd)
model=${MODEL:-logistic} folds=${FOLDS:-5} rounds=${ROUNDS:-15} epochs=${EPOCHS:-4} seed=${SEED:-1}
hospitals="cleveland hungarian switzerland va"
how=(--batch 16 --lr 0.05 --momentum 0 --weight-decay 0.001 --optimizer sgd --seed "$seed")

"$tutti" data info heart-disease >/dev/null
mkdir -p "$out"
cd "$out"
rm -rf keys fold-*

# Of an authority of their own, and of each its own keys.
"$tutti" fed keys init --folder keys >/dev/null
for hospital in $hospitals; do "$tutti" fed keys enrol "$hospital" --folder keys >/dev/null; done

# FOLD: five processes until all rounds are done.
federate() {
    local k=$1 fold=$1/$folds folder=fold-$1/federated url= members=() hospital
    mkdir -p "$folder"
    "$tutti" fed coordinator --state "$folder/state" --model "$model" --data heart-disease --fold "$fold" --keys keys/coordinator \
        --listen 127.0.0.1:0 --rounds "$rounds" --min-participants 4 --per-round 4 --epochs "$epochs" "${how[@]}" \
        --standardize --secure --threshold 3 --linger 20 >"$folder/coordinator.log" 2>&1 &
    members+=($!)
    until [ -n "$url" ]; do
        kill -0 "${members[0]}" 2>/dev/null || { cat "$folder/coordinator.log" >&2; return 1; }
        sleep 0.1
        url=$(sed -n 's/^listening on \(https:[^,]*\),.*/\1/p' "$folder/coordinator.log")
    done
    for hospital in $hospitals; do
        "$tutti" fed join "$url" --data "heart-disease/$hospital" --fold "$fold" --cert "keys/$hospital/cert.pem" --state "$folder/$hospital.state" \
            --policy "$here/policy.json" --give-up 60 >"$folder/$hospital.log" 2>&1 &
        members+=($!)
    done
    for k in "${members[@]}"; do wait "$k" || { tail -n 3 "$folder"/*.log >&2; return 1; }; done
}

# WHO DATA FOLD: training as everybody does it.
train() {
    "$tutti" train "$model" --data "$2" --fold "$3/$folds" --epochs $((rounds * epochs)) "${how[@]}" --eval-every 0 --checkpoint-every 1000000 \
        --quiet --out "fold-$3/$1"
}

# WHO FOLD RUN...: on the patients of all hospitals, then of each; a line of JSON each.
judge() {
    local who=$1 fold=$2/$folds data
    shift 2
    for data in heart-disease $(printf 'heart-disease/%s ' $hospitals); do
        printf '{"who": "%s", "fold": "%s", "on": "%s", "result": %s}\n' "$who" "$fold" "$data" \
            "$("$tutti" eval "$@" --data "$data" --fold "$fold" --json)"
    done
}

federations=()
for k in $(seq "$folds"); do
    federate "$k" &
    federations+=($!)
done
for k in $(seq "$folds"); do
    train pooled heart-disease "$k"
    for hospital in $hospitals; do train "$hospital" "heart-disease/$hospital" "$k"; done
done
echo "pooled and alone are trained; the federations go on"
for pid in "${federations[@]}"; do wait "$pid"; done

: >results.jsonl
for k in $(seq "$folds"); do
    judge pooled "$k" "fold-$k/pooled" >>results.jsonl
    for hospital in $hospitals; do judge "$hospital" "$k" "fold-$k/$hospital" >>results.jsonl; done
    judge federated "$k" "fold-$k/federated/state/model.json" --weights "fold-$k/federated/state/model.safetensors" >>results.jsonl
done
python3 "$here/page.py" results.jsonl "$model" "$rounds" "$epochs"
