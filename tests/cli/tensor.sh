#!/usr/bin/env bash
# tensor.sh - ranks that share layers train as one rank does, within rounding; and with the same slices the bits are the same, on
# several groups of ranks, with stages, over messages, from any layout to any other.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

awk 'BEGIN {
    seed = 7
    for (i = 0; i < 4000; i++) {
        seed = (seed * 16807) % 2147483647
        printf "%s%s", substr("etaoin shrdlu", 1 + seed % 13, 1), i % 60 == 59 ? "\n" : ""
    }
}' >input.txt

train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train "$@" --seed 7 --threads 1 --quiet --out "$dir" || complain "train $*"
}
# close TEXT DIR DIR...: losses that differ by no more than 1e-4 of them
losses() { grep -o '"\(train_loss\|val_loss\)": [0-9.e-]*' "$1/metrics.jsonl"; }
close() {
    local what=$1 first=$2 dir
    shift 2
    for dir in "$@"; do
        paste <(losses "$first") <(losses "$dir") | awk '
            { d = $2 - $4; if (d < 0) d = -d; n++; if (NF != 4 || d > 1e-4 * $2) bad = 1 }
            END { exit bad || n == 0 }' || complain "$what: losses of $dir are not those of $first: $(losses "$dir")"
    done
}

# Dropout; a vocabulary that two ranks cannot have equal parts of; a table that is the head.
gpt=(gpt --data ./input.txt --width 32 --layers 2 --heads 4 --length 24 --batch 8 --steps 20 --dropout 0.1 --shards 2 --log-every 4)
train gpt-1 "${gpt[@]}"
train gpt-2 "${gpt[@]}" --strategy tensor -n 2
train gpt-4 "${gpt[@]}" --strategy tensor -n 4
train gpt-flat "${gpt[@]}" --split tp=2 -n 2 --flat
train gpt-places "${gpt[@]}" --split tp=2 -n 2 --sequence-parallel
train gpt-grid "${gpt[@]}" --split dp=2,tp=2 -n 4
train gpt-stages "${gpt[@]}" --split tp=2,pp=2 -n 4
close gpt gpt-1 gpt-2 gpt-4 gpt-places gpt-grid gpt-stages
same "gpt with tp=2" gpt-2 gpt-flat gpt-grid gpt-stages

# The norm of all gradients is of all ranks' slices, and once of what all of them have.
clip=("${gpt[@]}" --clip 0.1 --steps 8)
train clip-1 "${clip[@]}"
train clip-2 "${clip[@]}" --strategy tensor -n 2
train clip-threads "${clip[@]}" --strategy tensor -n 2 --threads 2
train clip-grid "${clip[@]}" --split dp=2,tp=2 -n 4
close "gpt, clipped" clip-1 clip-2
same "gpt, clipped, with tp=2" clip-2 clip-threads clip-grid

mlp=(mlp --limit 128 --batch 32 --steps 20 --shards 2 --log-every 4 --optimizer adam)
train mlp-1 "${mlp[@]}"
train mlp-2 "${mlp[@]}" --strategy tensor -n 2
train mlp-grid "${mlp[@]}" --split dp=2,tp=2,zero=2 -n 4
train mlp-parts "${mlp[@]}" --split dp=2,tp=2,zero=3 -n 4 --flat
train mlp-served "${mlp[@]}" --split dp=2,tp=2 -n 4 --meet ps:1
train mlp-served3 "${mlp[@]}" --split dp=2,tp=2,pp=2 -n 8 --meet ps:2
close mlp mlp-1 mlp-2 mlp-grid
same "mlp with tp=2" mlp-2 mlp-grid mlp-parts mlp-served mlp-served3

# Statistics of a batch over all shards, of each rank's channels.
norm=(resnet18 --data fashion-mnist --limit 8 --batch 8 --steps 1 --shards 2 --sync-batch-norm)
"$tutti" train "${norm[@]}" --seed 7 --quiet --strategy tensor -n 2 --threads 2 --out norm-2 || complain "batch norm with tp=2"
train norm-grid "${norm[@]}" --split dp=2,tp=2 -n 4
same "batch norm over all shards" norm-2 norm-grid

# Every layout loads every other's checkpoint: weights that a step of rate 0 leaves alone are the same.
layouts=("-n 1 --strategy single --split dp=1" "-n 2 --strategy tensor --split tp=2"
    "-n 4 --strategy hybrid --split dp=2,tp=2,zero=3 --flat" "-n 2 --strategy pipeline --split pp=2")
cnn=(cnn --limit 64 --batch 32 --shards 2 --optimizer adam)
for from in "${layouts[@]}"; do
    rm -rf first
    # shellcheck disable=SC2086
    train first "${cnn[@]}" --steps 1 $from
    for to in "${layouts[@]}"; do
        rm -rf moved
        cp -r first moved
        # shellcheck disable=SC2086
        "$tutti" train --resume moved --steps 2 --lr 0 $to --quiet || complain "$from to $to"
        same "from $from to $to" first moved
    done
done
# State goes with them.
train half "${mlp[@]}" --steps 10 --strategy tensor -n 2
cp -r half half-grid
"$tutti" train --resume half --steps 20 --quiet || complain "resume with tp=2"
"$tutti" train --resume half-grid --steps 20 --split dp=2,tp=2 -n 4 --strategy hybrid --quiet || complain "resume with dp=2,tp=2"
same "resumed with tp=2" mlp-2 half half-grid
"$tutti" eval half >/dev/null || complain "evaluation of a run with slices"

# Wrong input.
refused 2 "has 3 heads, which 2 ranks cannot share" "$tutti" train gpt --data ./input.txt --width 24 --heads 3 --strategy tensor -n 2 --out no
refused 2 "no layers are shared" "$tutti" train mlp --sequence-parallel --out no
refused 2 "lamb and strategy tensor" "$tutti" train mlp --strategy tensor -n 2 --optimizer lamb --out no
[ ! -e no ] || complain "a refused run left a folder"
finish
