#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# run.sh [TUTTI [FOLDER [PAGE]]] - the experiment of the literature, repeated: one device, data parallel, hybrid.
#
# For each model and seed: one rank; the same batch on two ranks (data parallel, exact); a batch twice as large on two ranks,
# with the learning rate scaled, which is what people get who give each worker the batch they had; and a hybrid of two replicas of two stages
# on four ranks. A rank has one thread. Writes FOLDER/study.html (tutti compare), FOLDER/study.jsonl, and PAGE/study.md (PAGE is
# FOLDER, or docs for the one of the documentation) with plots in PAGE/study (page.py). The default sizes take half an hour on two cores; FULL=1 takes whole data sets and the epochs that
# papers train for. SEEDS="1 2 3" and MODELS="mlp cnn" choose; a run that is there is not made again.
set -euo pipefail
tutti=$(realpath "${1:-build/tutti}")
out=${2:-runs/study}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"

# MODEL BATCH FLAGS...: sizes for two cores; whole ones with FULL=1.
sizes=(
    "mlp 64 --data fashion-mnist --epochs 4 --lr 0.05"
    "cnn 64 --data fashion-mnist --limit 10000 --epochs 3 --lr 0.05"
    "vgg11 32 --data cifar10 --limit 1600 --epochs 4 --optimizer adam --lr 0.0002"
    "nbow 64 --data imdb --epochs 3 --optimizer adam --lr 0.001"
    "seq2seq 64 --data multi30k --hidden 128 --embedding 128 --limit 6000 --epochs 3 --optimizer adam --lr 0.002"
    "conv_autoencoder 64 --data fashion-mnist --limit 20000 --epochs 3 --optimizer adam --lr 0.001"
    "mobilenet_v2 32 --data cifar10 --width 0.35 --limit 3840 --epochs 4 --flip --crop 4 --optimizer adam --lr 0.002"
)
full=(
    "mlp 64 --data fashion-mnist --epochs 20 --lr 0.05"
    "cnn 64 --data fashion-mnist --epochs 10 --lr 0.05"
    "vgg11 128 --data cifar10 --epochs 10 --optimizer adam --lr 0.0002"
    "nbow 64 --data imdb --epochs 10 --optimizer adam --lr 0.001"
    "seq2seq 128 --data multi30k --epochs 10 --optimizer adam --lr 0.001"
    "conv_autoencoder 64 --data fashion-mnist --epochs 10 --optimizer adam --lr 0.001"
    "mobilenet_v2 128 --data cifar10 --epochs 10 --flip --crop 4 --optimizer adam --lr 0.001"
)
[ -z "${FULL:-}" ] || sizes=("${full[@]}")

# NAME MODEL SEED FLAGS... A checkpoint is written at the end alone: vgg11's has 340 MB, and epochs are timed.
train() {
    local name=$1 model=$2 seed=$3 dir
    shift 3
    dir=$out/$model-$name-$seed
    words+=("$name=$dir")
    grep -qs '"status": "done"' "$dir/summary.json" && return
    echo "$model, $name, seed $seed: tutti train $model $* --seed $seed"
    "$tutti" train "$model" "$@" --seed "$seed" --threads 1 --quiet --overwrite --keep 1 --checkpoint-every 1000000 \
        --out "$dir"
}

# Four shards in all: batch norm's statistics are per shard, so that each way sees the same ones.
words=()
for size in "${sizes[@]}"; do
    read -r model batch flags <<<"$size"
    [[ " ${MODELS:-$model} " == *" $model "* ]] || continue
    for seed in ${SEEDS:-1 2 3}; do
        # shellcheck disable=SC2086 # flags are words
        {
            train single "$model" "$seed" --batch "$batch" --shards 4 $flags
            train data-parallel "$model" "$seed" -n 2 --batch "$batch" --shards 4 $flags
            train data-parallel-2x "$model" "$seed" -n 2 --batch $((2 * batch)) --scale-lr --base-batch "$batch" --shards 4 $flags
            train hybrid "$model" "$seed" -n 4 --split dp=2,pp=2 --batch "$batch" --shards 4 $flags
        }
    done
done
"$tutti" compare "${words[@]}" --out "$out/study.html"
"$tutti" compare "${words[@]}" --json >"$out/study.jsonl"
python3 "$here/page.py" "$out" "${3:-$out}"
