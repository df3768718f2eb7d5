#!/usr/bin/env bash
# uneven.sh - what does not divide is counted once and gives the same bits: last batches that ranks and shards do not
# divide, or that leave shards empty; ranks with unequal rows of shards; accumulation instead of ranks.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train "$@" --seed 7 --quiet --out "$dir" || complain "train $*"
}
# on_ranks NAME ARGUMENTS...: 4 shards on 1, 2, 3 and 4 ranks
on_ranks() {
    local name=$1 n
    shift
    for n in 1 2 3 4; do
        train "$name-$n" "$@" --shards 4 --threads 1 -n $n
    done
    same "$name" "$name-1" "$name-2" "$name-3" "$name-4"
}
# number FILE KEY
number() { sed -n "s/.*\"$2\": \([-0-9.e]*\).*/\1/p" "$1/summary.json"; }

# Last batches: 7 of 60; 2 of 60, so that two shards have none.
on_ranks mlp-7 mlp --limit 127 --batch 60 --epochs 2
on_ranks mlp-2 mlp --limit 122 --batch 60 --epochs 2 --clip 0.5
# Batch norm, its averages too: 7 of 32, and 1, of which statistics have one pixel at the end.
on_ranks norm-7 resnet18 --width 4 --data fashion-mnist --limit 39 --batch 32 --epochs 2
on_ranks norm-1 resnet18 --width 4 --data fashion-mnist --limit 33 --batch 32 --epochs 2
for limit in 39 33; do # statistics of the whole step: a shard a thread
    synced=(resnet18 --width 4 --data fashion-mnist --limit $limit --batch 32 --epochs 2 --shards 4 --sync-batch-norm)
    train synced-$limit-4x1 "${synced[@]}" -n 4 --threads 1
    train synced-$limit-2x2 "${synced[@]}" -n 2 --threads 2
    train synced-$limit-1x4 "${synced[@]}" --threads 4
    same "synchronized, $limit samples" synced-$limit-4x1 synced-$limit-2x2 synced-$limit-1x4
done
# Text, whose sentences are of unequal lengths: 67 documents in batches of 20, and pairs, whose losses are means of
# words.
sentences() { # COUNT SEED
    awk -v count="$1" -v seed="$2" 'BEGIN {
        for (i = 0; i < count; i++) {
            line = ""
            seed = (seed * 16807) % 2147483647
            for (n = 2 + seed % 9; n > 0; n--) {
                seed = (seed * 16807) % 2147483647
                line = line "w" seed % 40 " "
            }
            print line
        }
    }'
}
mkdir documents pairs
for split in train test; do
    sentences 67 9 | awk '{ print (NR % 2 ? "pos" : "neg") "\t" NR % 10 "\t" NR "\t" $0 }' >documents/$split.tsv
done
for split in train val; do
    sentences 47 7 >pairs/$split.de
    sentences 47 8 >pairs/$split.en
done
on_ranks nbow nbow --data ./documents --batch 20 --epochs 2 --dim 12
on_ranks pairs seq2seq --data ./pairs --batch 20 --epochs 2 --hidden 8 --embedding 8

# Every sample counts once, and as much as any other: with a rate of 0 the epoch's mean loss is that of the data,
# however it is cut.
train whole mlp --lr 0 --limit 1000 --epochs 1 --batch 1000 --shards 1 --threads 1
for n in 1 3; do
    train cut-$n mlp --lr 0 --limit 1000 --epochs 1 --batch 70 --shards 10 --threads 1 -n $n
done
same "cut" cut-1 cut-3
[ "$(number cut-3 samples)" = 1000 ] || complain "an epoch of 1000 samples has $(number cut-3 samples)"
awk -v a="$(number whole train_loss)" -v b="$(number cut-3 train_loss)" \
    'BEGIN { d = a - b; exit !(a > 1 && d < 2e-6 && d > -2e-6) }' ||
    complain "mean loss $(number cut-3 train_loss) instead of $(number whole train_loss)"
[ "$(number whole train_accuracy)" = "$(number cut-3 train_accuracy)" ] || complain "accuracies differ"
train dropped mlp --lr 0 --limit 1000 --epochs 1 --batch 70 --shards 10 --threads 1 --drop-last
[ "$(number dropped samples)" = 980 ] || complain "--drop-last: $(number dropped samples) samples instead of 980"

# Ranks with unequal rows of shards.
rows=(mlp --limit 500 --epochs 1 --batch 48 --shards 12 --threads 1)
train rows-one "${rows[@]}"
train rows-2-1 "${rows[@]}" -n 2 --balance 2,1
train rows-1-5 "${rows[@]}" -n 2 --balance 1,5
train rows-of-3 "${rows[@]}" -n 3 --balance 1,0.5,3
train rows-auto "${rows[@]}" -n 3 --balance auto
train rows-threads mlp --limit 500 --epochs 1 --batch 48 --shards 12 --threads 2 -n 2 --balance 2,1
train rows-flat "${rows[@]}" -n 3 --flat --strategy multiworker --balance 1,2,1
same "uneven rows of shards" rows-one rows-2-1 rows-1-5 rows-of-3 rows-auto rows-threads rows-flat
grep -q '"balance": {"measured": false, "weights": \[2, 1\], "shards": \[8, 4\]}' rows-2-1/summary.json ||
    complain "rows-2-1: $(grep balance rows-2-1/summary.json)"
grep -q '"measured": true, "weights": \[[0-9.e+]*, [0-9.e+]*, [0-9.e+]*\]' rows-auto/summary.json ||
    complain "rows-auto: $(grep balance rows-auto/summary.json)"
"$tutti" bench train mlp --batch 48 --shards 12 --threads 1 -n 2 --balance 2,1 --windows 1 --json >/dev/null || complain "bench with --balance"

# Accumulation: what K times as many ranks do; a run that goes on keeps its shards.
accumulated=(cnn --limit 200 --epochs 1 --batch 48)
train ranks "${accumulated[@]}" -n 4 --threads 1
train accumulated-4 "${accumulated[@]}" --threads 1 --accumulate 4
train accumulated-2x2 "${accumulated[@]}" -n 2 --threads 1 --accumulate 2
train accumulated-threads "${accumulated[@]}" --threads 2 --accumulate 2
same "accumulation" ranks accumulated-4 accumulated-2x2 accumulated-threads
normed=(resnet18 --width 4 --data fashion-mnist --limit 39 --batch 32 --epochs 1)
train normed-ranks "${normed[@]}" -n 4 --threads 1
train normed-accumulated "${normed[@]}" --threads 2 --accumulate 4 # batch norm has a shard a rank by default
same "accumulation with batch norm" normed-ranks normed-accumulated
train stopped "${accumulated[@]}" --threads 1 --accumulate 4 --steps 2
"$tutti" train --resume stopped --steps 5 -n 2 --strategy mirrored --quiet || complain "resume of accumulation"
same "accumulation that went on" ranks stopped
refused 2 'leave one out' "$tutti" train --resume stopped --steps 9 --accumulate 2
finish
