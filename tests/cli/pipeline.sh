#!/usr/bin/env bash
# pipeline.sh - stages that hold different layers have the weights of one rank to the last bit: models with skip connections,
# tied tables, batch statistics, shards without samples; under every schedule, several pipelines at once, and
# from any layout to any other.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

pairs pairs 90
mkdir plain
sentences 10 120 >plain/input.txt
colours colours 40

train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train "$@" --seed 7 --threads 1 --quiet --out "$dir" || complain "train $*"
}
pipeline() { train "$@" --strategy pipeline; }
hybrid() { train "$@" --strategy hybrid; }

# The last step has 3 samples: one shard has none.
cnn=(cnn --limit 131 --batch 64 --epochs 1 --shards 4 --optimizer adam)
train cnn-1 "${cnn[@]}"
pipeline cnn-gpipe "${cnn[@]}" -n 3 --pipeline gpipe
pipeline cnn-chunks "${cnn[@]}" -n 2 --pipeline interleaved:2
pipeline cnn-cut "${cnn[@]}" -n 2 --cut fc1 --recompute
hybrid cnn-grid "${cnn[@]}" -n 4 --split pp=2,zero=2
hybrid cnn-parts "${cnn[@]}" -n 4 --split pp=2,zero=3 --flat
hybrid cnn-served "${cnn[@]}" -n 4 --meet ps:2
same "cnn" cnn-1 cnn-gpipe cnn-chunks cnn-cut cnn-grid cnn-parts cnn-served

# Skip connections and batch statistics.
resnet=(resnet18 --data ./colours --width 16 --limit 24 --batch 12 --steps 2 --shards 4)
train resnet-1 "${resnet[@]}"
pipeline resnet-2 "${resnet[@]}" -n 2 --pipeline interleaved:2
pipeline resnet-3 "${resnet[@]}" -n 3
hybrid resnet-grid "${resnet[@]}" -n 4 --pipeline gpipe
same "resnet18" resnet-1 resnet-2 resnet-3 resnet-grid

# A decoder reads what the encoder made; lengths change from step to step.
seq2seq=(seq2seq --data ./pairs --batch 30 --epochs 1 --hidden 12 --embedding 8 --attention bahdanau --shards 4)
train seq2seq-1 "${seq2seq[@]}" --batch 28
pipeline seq2seq-2 "${seq2seq[@]}" --batch 28 -n 2
pipeline seq2seq-4 "${seq2seq[@]}" --batch 28 -n 4 --pipeline gpipe
hybrid seq2seq-grid "${seq2seq[@]}" --batch 28 -n 4 --meet parallax --tables serve
hybrid seq2seq-served "${seq2seq[@]}" --batch 28 -n 4 --meet ps:1
same "seq2seq" seq2seq-served seq2seq-1 seq2seq-2 seq2seq-4 seq2seq-grid

# The table is the last layer's weight, too; the norm is that of all stages' gradients.
gpt=(gpt --data ./plain/input.txt --width 16 --layers 3 --heads 2 --length 12 --batch 24 --steps 4 --dropout 0.1 --shards 4 --clip 0.3)
train gpt-1 "${gpt[@]}"
pipeline gpt-2 "${gpt[@]}" -n 2 --pipeline interleaved:2
pipeline gpt-3 "${gpt[@]}" -n 3 --pipeline gpipe
pipeline gpt-4 "${gpt[@]}" -n 4 --flat
hybrid gpt-grid "${gpt[@]}" -n 4
hybrid gpt-parts "${gpt[@]}" -n 4 --split pp=2,zero=3 --pipeline interleaved:2 --flat
same "gpt" gpt-1 gpt-2 gpt-3 gpt-4 gpt-grid gpt-parts

# Losses and evaluations are those of one rank; how long stages waited is told.
losses() { grep -o '"\(train_loss\|val_loss\|val_accuracy\|val_top5_accuracy\)": [0-9.e-]*' "$1/summary.json"; }
for dir in cnn-gpipe cnn-grid cnn-parts cnn-served; do
    [ -n "$(losses $dir)" ] && [ "$(losses cnn-1)" = "$(losses $dir)" ] || complain "$dir has other losses: $(losses $dir)"
done
grep -q '"bubble_share"' gpt-3/metrics.jsonl || complain "metrics do not say how empty the pipeline was"
grep -q '"bubble_s"' gpt-3/summary.json || complain "the summary does not"
grep -q '"bubble_planned": 0.[0-9]*, "bubble_paced": [0-9.e-]*, "bubble_measured": 0' gpt-grid/summary.json || complain "no timeline"
grep -q "The last step, as measured" gpt-grid/report.html || complain "the report draws no timeline"
"$tutti" eval cnn-grid >/dev/null || complain "evaluation of a run with stages"

# Any layout loads any other's checkpoint.
layouts=("-n 1 --strategy single --split dp=1" "-n 3 --strategy pipeline --split pp=3" "-n 4 --strategy hybrid --split dp=2,pp=2,zero=3 --flat" "-n 2 --strategy zero --flat --split dp=2,zero=3")
mlp=(mlp --limit 128 --batch 32 --shards 4 --optimizer adam)
train mlp-1 "${mlp[@]}" --steps 2
for from in "${layouts[@]}"; do
    rm -rf first
    # shellcheck disable=SC2086
    train first "${mlp[@]}" --steps 1 $from
    for to in "${layouts[@]}"; do
        rm -rf moved
        cp -r first moved
        # shellcheck disable=SC2086
        "$tutti" train --resume moved --steps 2 $to --quiet || complain "$from to $to"
        same "from $from to $to" mlp-1 moved
    done
done

# Servers take them from files and put them there, with state.
train served "${mlp[@]}" --steps 1 -n 4 --strategy hybrid --meet ps:2 --checkpoint-every 1
cp -r served moved-served
"$tutti" train --resume served --steps 2 --quiet || complain "on with servers"
"$tutti" train --resume moved-served --steps 2 -n 1 --strategy single --meet none --split dp=1 --quiet || complain "on without servers"
"$tutti" train --resume first --steps 2 -n 4 --no-flat --strategy hybrid --split dp=2,pp=2 --meet ps:1 --quiet || complain "on to servers"
same "servers of stages" mlp-1 served moved-served first
grep -q '"rank": 5, "busy_s"' served/summary.json || complain "servers are not told about"

# Wrong input.
refused 2 "use --sync step" "$tutti" train cnn --split dp=2,pp=2 -n 4 --sync async --meet ps:1 --out no
refused 2 "leave zero out" "$tutti" train cnn --split dp=2,pp=2,zero=1 -n 4 --meet ps:1 --out no
refused 2 "backup and strategy hybrid" "$tutti" train cnn --split dp=2,pp=2 -n 4 --meet ps:1 --backup 1 --out no
refused 2 "replicas and strategy hybrid" "$tutti" train cnn --split dp=2,pp=2 -n 4 --meet ps:2 --replicas 2 --out no
refused 2 "more than the layers of mlp" "$tutti" train mlp --strategy pipeline -n 4 --out no
refused 2 "no layer fc11: did you mean fc1" "$tutti" train cnn --strategy pipeline -n 2 --cut fc11 --out no
refused 2 "first layers of all but the first: 2" "$tutti" train cnn --strategy pipeline -n 3 --cut fc1 --out no
refused 2 "must be gpipe, 1f1b or interleaved" "$tutti" train cnn --strategy pipeline -n 2 --pipeline zigzag --out no
refused 2 "no whole number of groups" "$tutti" train cnn --strategy pipeline -n 2 --pipeline interleaved:2 --shards 1 --out no
refused 2 "there is no pipeline" "$tutti" train cnn --pipeline gpipe --out no
refused 2 "there is no pipeline" "$tutti" train cnn --cut fc1 --out no
refused 2 "there are 3 ranks: use -n 4" "$tutti" train cnn --split dp=2,pp=2 -n 3 --out no
refused 2 "sync-batch-norm and strategy pipeline" "$tutti" train resnet18 --data ./colours --strategy pipeline -n 2 --sync-batch-norm --out no
refused 2 "works with split dp=n: use --strategy hybrid" "$tutti" train cnn --strategy mirrored --split dp=2,pp=2 -n 4 --out no
[ ! -e no ] || complain "a refused run left a folder"
finish
