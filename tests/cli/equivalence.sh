#!/usr/bin/env bash
# equivalence.sh - the same weights to the last bit, however shards are spread.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train --limit "${limit:-3000}" "$@" --seed 7 --quiet --out "$dir" || complain "train $*"
}

for n in 1 2 3 4; do
    train mlp-$n mlp --shards 4 --threads 1 --epochs 1 --strategy mirrored -n $n --batch 60
done
train mlp-single mlp --shards 4 --threads 1 --epochs 1 --batch 60
train mlp-1x2 mlp --shards 4 --threads 2 --epochs 1 --batch 60
train mlp-1x4 mlp --shards 4 --threads 4 --epochs 1 --batch 60
train mlp-2x2 mlp --shards 4 --threads 2 --epochs 1 --strategy mirrored -n 2 --batch 60
train mlp-bucket mlp --shards 4 --threads 1 --epochs 1 --strategy mirrored -n 2 --batch 60 --bucket-mib 0.01
train mlp-gradients mlp --shards 4 --threads 1 --epochs 1 --strategy mirrored -n 2 --batch 60 --no-factors
same "mlp, 4 shards" mlp-gradients mlp-1 mlp-2 mlp-3 mlp-4 mlp-single mlp-1x2 mlp-1x4 mlp-2x2 mlp-bucket

# More lanes than there are pieces of the first layer's columns: some have none.
for t in 2 20; do
    limit=600 train lanes-$t mlp --shards 20 --threads $t --epochs 1 --batch 60
done
same "mlp, 20 shards" lanes-2 lanes-20

# The last batch of 696 samples in batches of 128 has 56: uneven shards. Dropout, AdamW, clipping, warm-up.
limit=696
cnn=(cnn --epochs 1 --batch 128 --shards 8 --optimizer adamw --clip 0.5 --schedule cosine --warmup 5)
for n in 1 2 3 4; do
    train cnn-$n "${cnn[@]}" --threads 1 --strategy mirrored -n $n
done
train cnn-1x2 "${cnn[@]}" --threads 2
same "cnn, 8 shards, adamw, clip" cnn-1 cnn-2 cnn-3 cnn-4 cnn-1x2

# Norms of each parameter come before its update; of LAMB's directions after clipping.
for optimizer in "lars --nesterov" "lamb --clip 0.5" "lamb --adapt-all"; do
    read -ra adapted <<<"$optimizer"
    name=${optimizer// /}
    for n in 1 2 3; do
        limit=600 train $name-$n cnn --epochs 1 --batch 120 --shards 6 --threads 1 -n $n --optimizer "${adapted[@]}"
    done
    limit=600 train $name-1x3 cnn --epochs 1 --batch 120 --shards 6 --threads 3 --optimizer "${adapted[@]}"
    limit=600 train $name-one cnn --epochs 1 --batch 128 --shards 1 --threads 1 --optimizer "${adapted[@]}"
    limit=600 train $name-one-3 cnn --epochs 1 --batch 128 --shards 1 --threads 3 --optimizer "${adapted[@]}"
    same "cnn, 6 shards, $optimizer" $name-1 $name-2 $name-3 $name-1x3
    same "cnn, one shard, $optimizer" $name-one $name-one-3
done

# Augmentation follows the sample, not who reads it.
augmented=(cnn --epochs 1 --batch 128 --shards 4 --crop 4 --flip --cutout 8)
for n in 1 2 4; do
    train augmented-$n "${augmented[@]}" --threads 1 -n $n
done
train augmented-readers "${augmented[@]}" --threads 1 --loader-threads 3
same "cnn, 4 shards, crop, flip, cutout" augmented-1 augmented-2 augmented-4 augmented-readers
train augmented-not cnn --epochs 1 --batch 128 --shards 4 --threads 1
[ "$(hash augmented-not)" != "$(hash augmented-1)" ] || complain "augmentation makes no difference"

# Batch statistics of the whole step: a shard a thread, whichever rank has it.
normed=(resnet18 --width 4 --data fashion-mnist --limit 64 --epochs 1 --batch 32 --shards 4)
train normed-4x1 "${normed[@]}" --sync-batch-norm --threads 1 -n 4
train normed-2x2 "${normed[@]}" --sync-batch-norm --threads 2 -n 2
train normed-1x4 "${normed[@]}" --sync-batch-norm --threads 4
train normed-recompute "${normed[@]}" --sync-batch-norm --threads 2 -n 2 --recompute
same "resnet18, 4 shards, synchronized" normed-4x1 normed-2x2 normed-1x4 normed-recompute
"$tutti" eval normed-1x4 --threads 1 >/dev/null || complain "eval of a synchronized run"
train normed-not "${normed[@]}" --threads 4
[ "$(hash normed-not)" != "$(hash normed-1x4)" ] || complain "--sync-batch-norm makes no difference"

# One shard shared by threads.
train one-1 cnn --epochs 1 --shards 1 --threads 1
train one-2 cnn --epochs 1 --shards 1 --threads 2
train one-3 cnn --epochs 1 --shards 1 --threads 3
same "one shard, threads share it" one-1 one-2 one-3

# So with batch norm, where a rank has one shard unless told otherwise: Winograd's and strided convolutions,
# depthwise ones, oneDNN's in parts.
for model in "resnet18 --width 8" "mobilenet_v2 --width 0.25"; do
    read -ra shared <<<"$model"
    for t in 1 2 3; do
        limit=128 train "${shared[0]}-$t" "${shared[@]}" --data fashion-mnist --steps 2 --batch 64 --shards 1 --threads $t
    done
    same "$model, one shard" "${shared[0]}-1" "${shared[0]}-2" "${shared[0]}-3"
done

# And other settings do make a difference: the comparison is not blind.
# A wide first layer has kernels of its own for few rows, but its columns belong to lanes in some layouts and not in others.
"$tutti" graph mlp --format json >graph.json || complain "graph mlp --format json"
sed -e 's/"shape": \[250, 784\]/"shape": [1024, 784]/; s/"shape": \[250\]/"shape": [1024]/; s/"shape": \[100, 250\]/"shape": [100, 1024]/' graph.json >wide.json
wide=(./wide.json --data fashion-mnist --shards 2 --threads 1 --batch 64 --limit 64 --steps 3)
train wide "${wide[@]}"
train wide-2 "${wide[@]}" -n 2
train wide-flat "${wide[@]}" -n 2 --flat
train wide-gradients "${wide[@]}" --no-factors
same "a wide mlp" wide wide-2 wide-flat wide-gradients

limit=3000 train other mlp --shards 2 --threads 1 --epochs 1 --batch 60
[ "$(hash other)" != "$(hash mlp-1)" ] || complain "2 and 4 shards give the same bits"
finish
