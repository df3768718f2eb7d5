#!/usr/bin/env bash
# learn.sh - what is learned on a GPU: accuracies and losses that runs must reach, how long that takes, and curves.
#
#   tests/gpu/learn.sh PROGRAM ROOT [NAME...]     NAME: resnet18 mobilenet_v2 shakespeare wikitext2; all if none is given
#
# Data sets are looked for where tutti looks (TUTTI_DATA); a run whose data is not here is left out and said so. With OUT set,
# metrics of all runs are copied there. Runs save at their end alone: a checkpoint of resnet18 takes half as long as an epoch.
names=("${@:3}")
. "$(dirname "$0")/../cli/lib.sh"
[ ${#names[@]} -gt 0 ] || names=(resnet18 mobilenet_v2 shakespeare wikitext2)
command -v python3 >/dev/null || skip "no python3"
"$tutti" devices | grep -q '^cuda *[0-9]' || skip "no device cuda: $("$tutti" devices | grep '^cuda')"

# Small images, crop and flip on the device; the usual recipe of one cycle, shortened. With 36 epochs, seeds are at 0.938 to 0.945.
resnet18=(resnet18 --data cifar10 --batch 128 --epochs 48 --optimizer sgd --momentum 0.9 --nesterov --lr 0.1 --schedule cosine
    --warmup 391 --weight-decay 0.0005 --label-smoothing 0.1 --crop 4 --flip)
# The study's optimizer and length: Adam, steps of the rate, ten epochs.
mobilenet_v2=(mobilenet_v2 --data cifar10 --batch 64 --epochs 10 --optimizer adam --lr 0.001 --schedule step --decay-every 6256
    --gamma 0.1 --crop 2 --flip)
shakespeare=(gpt --data shakespeare --tokenizer characters --layers 6 --heads 6 --width 384 --length 256 --dropout 0.2 --batch 64
    --optimizer adamw --lr 0.001 --beta2 0.99 --weight-decay 0.1 --clip 1 --schedule cosine --warmup 100 --final-lr 0.0001
    --epochs 20 --eval-every 2)
wikitext2=(gpt --data wikitext2 --tokenizer gpt2 --layers 6 --heads 6 --width 384 --length 256 --dropout 0.2 --batch 32
    --optimizer adamw --lr 0.001 --beta2 0.99 --weight-decay 0.1 --clip 1 --schedule cosine --warmup 200 --final-lr 0.0001
    --epochs 12)

# What must be reached: a key of metrics.jsonl, at least or at most so much.
declare -A goal=([resnet18]="val_accuracy >= 0.94" [mobilenet_v2]="val_accuracy >= 0.85" [shakespeare]="val_loss <= 1.5"
    [wikitext2]="perplexity <= 55")
declare -A needs=([resnet18]=cifar10 [mobilenet_v2]=cifar10 [shakespeare]=shakespeare [wikitext2]=wikitext2)

# told NAME: the curve, when the goal was first reached, what is reached at the end; fails if that is not the goal
told() {
    python3 - "$1" ${goal[$1]} <<'PY'
import json, sys
name, key, sign, wanted = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
rows = [json.loads(line) for line in open(name + "/metrics.jsonl")]
rows = [r for r in rows if r["kind"] == "eval" and key in r]
reached = lambda r: r[key] >= wanted if sign == ">=" else r[key] <= wanted
print("  " + "  ".join(f"{r['epoch']:g}: {r[key]:.4f}" for r in rows))
summary = json.load(open(name + "/summary.json"))
first = next((r for r in rows if reached(r)), None)
when = f"first at epoch {first['epoch']:g}, after {first['seconds']:.1f} s" if first else "never"
print(f"  {key} {rows[-1][key]:.4f} ({sign} {wanted:g} {when}); run {summary['seconds']:.1f} s, "
      f"last epoch {rows[-1]['samples_per_s']:.0f} samples/s, evaluation {rows[-1]['eval_seconds']:.2f} s, "
      f"weights {summary['weights_sha256'][:12]}")
sys.exit(not reached(rows[-1]))
PY
}

for name in "${names[@]}"; do
    declare -n args=$name
    [ -n "${goal[$name]:-}" ] || { complain "there is no run $name"; continue; }
    has_data "${needs[$name]}" || { leave_out "$name: data set ${needs[$name]} is not here"; continue; }
    echo "$name: tutti train ${args[*]} --device cuda ${LEARN_MORE:-}"
    if timeout "${LEARN_LIMIT:-240}" "$tutti" train "${args[@]}" --device cuda --seed 1 --checkpoint-every 100000000 --quiet --out "$name" ${LEARN_MORE:-} 2>"$name.err"; then
        told "$name" || complain "$name: not ${goal[$name]}"
    else
        complain "$name: exit $?: $(tail -3 "$name.err")"
    fi
    [ -z "${OUT:-}" ] || { mkdir -p "$OUT/learn"; cp "$name/metrics.jsonl" "$OUT/learn/$name.jsonl" 2>/dev/null; }
done
finish
