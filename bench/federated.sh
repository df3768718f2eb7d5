#!/usr/bin/env bash
# bench/federated.sh [ROUNDS [TARGET]] - Fashion-MNIST among 100 participants: rounds to a test accuracy of TARGET (0.85) with
# FedAvg, FedProx and SCAFFOLD, alike data and Dirichlet 0.3; ROUNDS (100) at most. Ten participants a round, one epoch of
# batches of 20 with plain SGD. About a second a round on two cores. Prints a table and keeps the runs in runs/federated.
set -euo pipefail
cd "$(dirname "$0")/.."

tutti=${TUTTI:-build/tutti}
rounds=${1:-100} target=${2:-0.85}
out=runs/federated
common=(mlp --data fashion-mnist -p 100 --per-round 10 --epochs 1 --batch 20 --lr 0.1 --rounds "$rounds" --stop-at "$target"
    --overwrite --json)

field() { # NAME LINE
    sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" <<<"$2"
}

printf '%-14s %-10s %10s %10s %10s %10s\n' data algorithm rounds accuracy seconds skew
for partition in iid dirichlet:0.3; do
    for algorithm in fedavg fedprox scaffold; do
        line=$("$tutti" fed simulate "${common[@]}" --partition "$partition" --algorithm "$algorithm" \
            --out "$out/$algorithm-${partition%:*}" | tail -n 1)
        reached=$(field reached_in "$line")
        printf '%-14s %-10s %10s %10.4f %10.1f %10.3f\n' "$partition" "$algorithm" "${reached:-> $rounds}" \
            "$(field val_accuracy "$line")" "$(field seconds "$line")" "$(field label_skew "$line")"
    done
done
