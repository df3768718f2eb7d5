#!/usr/bin/env bash
# zero.sh - state, gradients and parameters in parts: the bits of one process, checkpoints in any layout, and memory
# that falls as predicted.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train --threads 1 --seed 7 --quiet "$@" --out "$dir" || complain "train $*"
}

# levels NAME ARGUMENTS...: one hash for accumulation on one rank, ranks of one machine, machines, and each level.
levels() {
    local name=$1
    shift
    train "$name" "$@"
    train "$name-mirrored" "$@" -n 2
    train "$name-multiworker" "$@" -n 4 --flat
    train "$name-1" "$@" -n 2 --flat --split dp=2,zero=1
    train "$name-2" "$@" -n 2 --split zero=2
    train "$name-2f" "$@" -n 4 --flat --strategy zero --split dp=4,zero=2
    train "$name-3" "$@" -n 4 --flat --strategy zero
    same "$name with zero" "$name" "$name"-{mirrored,multiworker,1,2,2f,3}
}
levels cnn cnn --limit 96 --batch 16 --shards 4 --optimizer adamw --clip 0.5 --steps 5
levels resnet18 resnet18 --width 4 --data fashion-mnist --limit 24 --batch 16 --shards 4 --steps 2
accuracy() { grep -o '"val_accuracy": [0-9.]*' "$1/summary.json"; }
[ "$(accuracy cnn)" = "$(accuracy cnn-3)" ] || complain "evaluation differs: $(accuracy cnn), $(accuracy cnn-3)"

# Stopped in one layout, a run goes on in another.
resume() { # DIR ARGUMENTS...
    "$tutti" train --resume "$1" --quiet "${@:2}" || complain "resume $*"
}
half=(cnn --limit 96 --batch 16 --shards 4 --optimizer adamw --clip 0.5 --steps 2)
train half-3 "${half[@]}" -n 4 --flat --strategy zero
cp -r half-3 half-31
resume half-3 --steps 5 -n 1 --no-flat --strategy single
resume half-31 --steps 3 -n 2 --flat --strategy zero --split dp=2,zero=1
resume half-31 --steps 4 -n 3 --flat --strategy zero --split dp=3,zero=3
resume half-31 --steps 5 -n 2 --no-flat --strategy mirrored --split dp=2,zero=2
train half-0 "${half[@]}"
resume half-0 --steps 5 -n 4 --flat --strategy zero
same "cnn, resumed in another layout" cnn half-3 half-31 half-0
cmp -s cnn/checkpoint/*/weights.safetensors cnn-3/checkpoint/*/weights.safetensors || complain "weights files differ"
cmp -s cnn/checkpoint/*/optimizer.safetensors cnn-3/checkpoint/*/optimizer.safetensors || complain "optimizer files differ"

# Outputs are looked at on rank 0, which has no parameters of its own then.
train auto conv_autoencoder --limit 32 --batch 16 --shards 2 --steps 2
train auto-3 conv_autoencoder --limit 32 --batch 16 --shards 2 --steps 2 -n 2 --flat --strategy zero
same "autoencoder" auto auto-3
cmp -s auto/reconstructions.png auto-3/reconstructions.png || complain "reconstructions differ"

# A rank that dies while others wait for its parts: named, and nobody is left; the last checkpoint is good.
"$tutti" train cnn --limit 640 --batch 16 --shards 4 --epochs 500 --checkpoint-every 5 --threads 1 --quiet -n 4 --flat \
    --strategy zero --out killed 2>killed.err &
pid=$!
for _ in $(seq 500); do
    [ -n "$(ls killed/checkpoint 2>/dev/null)" ] && break
    sleep 0.02
done
ranks=($(pgrep -P $pid))
kill -KILL "${ranks[2]}"
wait $pid && complain "a run without rank 2 went on"
grep -q 'rank 2 .*signal 9' killed.err || complain "rank 2 is not named: $(cat killed.err)"
for rank in "${ranks[@]}"; do
    ! grep -q '^State:.[^ZX]' "/proc/$rank/status" 2>/dev/null || complain "rank process $rank is left"
done
step=$(ls killed/checkpoint | sort | tail -1 | grep -o '[1-9][0-9]*$')
resume killed --steps $((step + 1)) -n 1 --no-flat --strategy single

refused 2 "use -n 4" "$tutti" train cnn -n 2 --split dp=4,zero=3
refused 2 "whole number from 0 to 3" "$tutti" train cnn -n 2 --split dp=2,zero=4
refused 2 "use --strategy zero" "$tutti" train cnn --split dp=1,zero=2
refused 2 "none holds a part" "$tutti" train cnn -n 2 --strategy zero --compress bf16

sentences 10 120 >plain.txt
levels gpt gpt --data ./plain.txt --width 32 --layers 2 --heads 2 --length 32 --batch 8 --shards 4 --steps 3 --limit 32
sample() { grep '"kind": "sample"' "$1/metrics.jsonl"; }
[ "$(sample gpt)" = "$(sample gpt-3)" ] || complain "what the model says differs"

# Memory of ranks 1 to 3 of four; rank 0 also writes. What libraries keep is not predicted: some megabytes, always
# the same.
wide=(gpt --data ./plain.txt --width 256 --layers 6 --heads 4 --length 32 --batch 4 --shards 4 --steps 2 --limit 8 --dense)
most() { # DIR KEY: the largest of ranks 1 to 3
    grep -o '"rank": [1-3].*' "$1/summary.json" | grep -o "\"$2\": [0-9]*" | grep -o '[0-9]*$' | sort -n | tail -1
}
for level in 0 2 3; do
    train wide-$level "${wide[@]}" -n 4 --flat --split dp=4,zero=$level
    is=$(most wide-$level training_bytes) said=$(most wide-$level predicted_bytes)
    [ $((is * 100)) -ge $((said * 90)) ] && [ "$is" -le $((said * 110 / 100 + 24000000)) ] ||
        complain "zero=$level: $is bytes, predicted $said"
done
same "wide gpt" wide-0 wide-2 wide-3
for pair in "0 2" "2 3"; do
    set -- $pair
    falls=$(($(most wide-$1 training_bytes) - $(most wide-$2 training_bytes)))
    should=$(($(most wide-$1 predicted_bytes) - $(most wide-$2 predicted_bytes)))
    [ $((falls + 3000000)) -ge $((should * 75 / 100)) ] || complain "from zero=$1 to $2 memory falls by $falls, predicted $should"
done
finish
