#!/usr/bin/env bash
# vision.sh - the image models on small pictures in colour: the same weights however shards are spread, with
# batch norm, shortcuts, depthwise convolutions and augmentation; recomputed or kept.
. "$(dirname "$0")/lib.sh"
colours colours 160

train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train "$@" --seed 7 --limit 160 --epochs 1 --batch 32 --data ./colours --quiet --out "$dir" ||
        complain "train $*"
}

augmented=(--shards 4 --threads 1 --crop 4 --flip --cutout 8)
for model in "resnet18 --width 4" "mobilenet_v2 --width 0.1"; do
    name=${model%% *}
    # shellcheck disable=SC2086 # the model's options are words of their own
    for n in 1 2 4; do
        train "$name-$n" $model "${augmented[@]}" --strategy mirrored -n $n
    done
    # shellcheck disable=SC2086
    train "$name-again" $model "${augmented[@]}" --recompute
    same "$name, 4 shards, augmented" "$name-1" "$name-2" "$name-4" "$name-again"
done

# Without --shards, batch statistics do not depend on threads: a shard a rank. Without batch norm, a
# shard a thread.
shards() { sed -n 's/.*"shards": \([0-9]*\),.*/\1/p' "$1/config.json" | head -1; }
train threads resnet18 --width 4 --threads 2
[ "$(shards threads)" = 1 ] || complain "resnet18 on 2 threads has $(shards threads) shards"
train lenet lenet --threads 2
[ "$(shards lenet)" = 2 ] || complain "lenet on 2 threads has $(shards lenet) shards"

refused 2 "stem rgb: must be cifar or imagenet" "$tutti" train resnet18 --data ./colours --stem rgb
refused 2 "did you mean --width" "$tutti" train resnet18 --data ./colours --widht 4
refused 2 "width 2.5: must be a whole number" "$tutti" train resnet18 --data ./colours --width 2.5
refused 2 "needs images of 224x224" "$tutti" train vgg11 --head imagenet --data ./colours
refused 2 "takes 28x28" "$tutti" train conv_autoencoder --data ./colours
finish
