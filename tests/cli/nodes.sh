#!/usr/bin/env bash
# nodes.sh - ranks that share no memory: the bits of one process, for every kind of model; compressed gradients.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train --threads 1 --seed 7 --quiet "$@" --out "$dir" || complain "train $*"
}

cnn=(cnn --limit 600 --batch 60 --shards 4 --optimizer adamw --clip 0.5 --epochs 1)
train cnn-1 "${cnn[@]}"
for n in 2 3 4; do
    train cnn-$n "${cnn[@]}" -n $n --flat
done
same "cnn on nodes" cnn-1 cnn-2 cnn-3 cnn-4
accuracy() { grep -o '"val_accuracy": [0-9.]*' "$1/summary.json"; }
[ "$(accuracy cnn-1)" = "$(accuracy cnn-3)" ] || complain "evaluation differs: $(accuracy cnn-1), $(accuracy cnn-3)"

# Averages, and statistics of all shards in the middle of a step.
for sync in --no-sync-batch-norm --sync-batch-norm; do
    normed=(resnet18 --width 4 --data fashion-mnist --limit 64 --epochs 1 --batch 32 --shards 4 $sync)
    train normed$sync-1 "${normed[@]}" --threads 4
    train normed$sync-2 "${normed[@]}" --threads 2 -n 2 --flat
    same "resnet18 on nodes, $sync" normed$sync-1 normed$sync-2
done

# Stopped on nodes, a run goes on in one process, and the other way round.
train half "${cnn[@]}" --steps 5 -n 2 --flat
"$tutti" train --resume half --steps 10 -n 1 --no-flat --quiet || complain "resume on one rank"
same "cnn, 5 steps on nodes and 5 on one rank" cnn-1 half
train other "${cnn[@]}" --steps 5
"$tutti" train --resume other --steps 10 --strategy multiworker -n 4 --flat --quiet || complain "resume on nodes"
same "cnn, 5 steps on one rank and 5 on nodes" cnn-1 other

# Tables of embeddings give their rows.
sentences 10 120 >plain.txt
gpt=(gpt --data ./plain.txt --width 32 --layers 1 --heads 2 --length 32 --batch 8 --shards 4 --steps 4)
train gpt-1 "${gpt[@]}"
train gpt-4 "${gpt[@]}" -n 4 --flat
same "gpt on nodes" gpt-1 gpt-4

# ... on every way between machines.
pairs pairs 256
translation=(seq2seq --data ./pairs --hidden 16 --embedding 12 --batch 48 --shards 6 --steps 6)
train rows-1 "${translation[@]}"
train rows-gather "${translation[@]}" --strategy parallax -n 2 --flat --tables gather
train rows-serve "${translation[@]}" --strategy parallax -n 3 --flat --tables serve --steps 3
"$tutti" train --resume rows-serve --steps 6 -n 2 --quiet || complain "resume with served rows"
same "tables of seq2seq on nodes" rows-1 rows-gather rows-serve
"$tutti" eval rows-serve >/dev/null || complain "evaluation of a run with served rows"
grep -q '"way": "serve"' rows-serve/summary.json || complain "the summary does not say how rows went"

# Compressed: all ranks have the same weights, which a run checks at its end; what was not sent is part of a checkpoint.
train plain mlp --limit 640 --batch 64 --shards 4 --steps 10
for codec in bf16 int8 topk:0.05 onebit powersgd:2; do
    small=(mlp --limit 640 --batch 64 --shards 4 --compress $codec -n 2)
    train whole-$codec "${small[@]}" --steps 10
    train half-$codec "${small[@]}" --steps 5
    "$tutti" train --resume half-$codec --steps 10 --quiet || complain "resume with $codec"
    same "$codec, resumed" whole-$codec half-$codec
    [ "$(hash whole-$codec)" != "$(hash plain)" ] || complain "$codec makes no difference"
done
# Steps that are not compressed yet have the bits of none; compression begins where it was said, also in a run that goes on.
late=(mlp --limit 640 --batch 64 --shards 4 --compress topk:0.05 -n 2)
train late "${late[@]}" --compress-after 10 --steps 10
same "gradients as they are, gathered" plain late
train late-5 "${late[@]}" --compress-after 5 --steps 10
train late-3 "${late[@]}" --compress-after 5 --steps 3
"$tutti" train --resume late-3 --steps 10 --quiet || complain "resume before compression began"
same "compressed after 5 steps, resumed" late-5 late-3
[ "$(hash late-5)" != "$(hash plain)" ] || complain "after 5 steps nothing was compressed"
[ "$(hash late-5)" != "$(hash whole-topk:0.05)" ] || complain "the first 5 steps were compressed"
"$tutti" train --resume half-topk:0.05 --steps 12 -n 4 --quiet || complain "resume with other nodes"
finish
