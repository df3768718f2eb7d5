#!/usr/bin/env bash
# train.sh - --data-on changes no bits; metrics are those of the CPU; every --precision trains, is the same on one rank and two, and goes on where it stopped; what a
# GPU cannot do is said in one line. Made-up data.
. "$(dirname "$0")/../cli/lib.sh"
command -v python3 >/dev/null || skip "no python3"
"$tutti" devices | grep -q '^cuda *[0-9]' || skip "no device cuda: $("$tutti" devices | grep '^cuda')"

python3 - <<'PY'
import os, random, struct
rng = random.Random(3)
os.makedirs("pictures")
for name, n in (("train", 3000), ("t10k", 300)):
    labels = bytes(rng.randrange(10) for _ in range(n))
    pixels = b"".join(bytes(min(255, rng.randrange(120) + 13 * label) for _ in range(784)) for label in labels)
    open(f"pictures/{name}-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, n, 28, 28) + pixels)
    open(f"pictures/{name}-labels-idx1-ubyte", "wb").write(struct.pack(">II", 0x801, n) + labels)
PY
# train DIR ARGUMENTS...
train() {
    timeout 120 "$tutti" train "${@:2}" --data ./pictures --device cuda --seed 7 --quiet --out "$1" 2>"$1.err" ||
        complain "$1: exit $?: $(tail -3 "$1.err")"
}
# loss DIR: the mean of all steps
loss() { sed -n 's/.*"kind": "train".*"train_loss": \([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl" | tail -1; }
# value DIR KEY: the last of metrics.jsonl
value() { sed -n "s/.*\"$2\": \([0-9.e+-]*\).*/\1/p" "$1/metrics.jsonl" | tail -1; }

# Data on the device or not, on one rank and two, a last batch that is smaller; evaluations agree, too.
cnn=(cnn --batch 64 --shards 2 --epochs 2 --crop 3 --flip --cutout 6)
for n in 1 2; do
    for where in host device auto; do
        train $where-$n "${cnn[@]}" -n $n --data-on $where
        [ "$(value $where-$n val_loss)" = "$(value host-1 val_loss)" ] || complain "$where-$n: another val_loss"
    done
done
same "--data-on" host-1 device-1 auto-1 host-2 device-2 auto-2

# Steps are told of when their results are known, some steps later: of the same steps, samples and rates as on the CPU.
told=(mlp --batch 64 --epochs 2 --log-every 7 --schedule cosine --precision f32)
train told "${told[@]}"
timeout 120 "$tutti" train "${told[@]}" --data ./pictures --seed 7 --quiet --out told-cpu 2>told.err || complain "told-cpu: $(tail -3 told.err)"
python3 - told told-cpu <<'PY' || complain "metrics.jsonl: other intervals than on the cpu"
import json, sys
rows = [[json.loads(line) for line in open(name + "/metrics.jsonl")] for name in sys.argv[1:]]
rows = [[r for r in one if r["kind"] == "train"] for one in rows]
same = [[[r[key] for key in ("step", "epoch", "samples", "lr")] for r in one] for one in rows]
close = all(abs(a["train_loss"] - b["train_loss"]) < 0.01 * b["train_loss"] for a, b in zip(*rows))
sys.exit(not (len(rows[0]) == 14 and same[0] == same[1] and close))
PY

# Precisions: losses are close to f32's, at a rate so low that what is rounded does not grow.
for precision in f32 tf32 bf16 fp16; do
    for n in 1 2; do
        train $precision-$n cnn --batch 64 --shards 2 --steps 40 --log-every 40 --lr 0.002 -n $n --precision $precision
    done
    same "--precision $precision" $precision-1 $precision-2
    printf '%-5s train_loss %s %s\n' $precision "$(loss $precision-1)" "$(hash $precision-1 | cut -c1-12)"
    python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 0.01 * b)' "$(loss $precision-1)" "$(loss f32-1)" ||
        complain "--precision $precision: another loss"
done

# The scale of losses is saved: a run that stopped and went on has the weights of one that did not.
half=(cnn --batch 64 --precision fp16 --optimizer adam)
train whole "${half[@]}" --steps 60 --checkpoint-every 30
train parts "${half[@]}" --steps 30 --checkpoint-every 30
timeout 120 "$tutti" train --resume parts --steps 60 --quiet 2>parts.err || complain "resume: $(tail -3 parts.err)"
same "resumed in fp16" whole parts
[ -n "$(value whole loss_scale)" ] && [ -n "$(value whole skipped_steps)" ] || complain "no loss_scale in metrics.jsonl"
echo "fp16 after 60 steps: loss_scale $(value whole loss_scale), skipped $(value whole skipped_steps)"

# Weights in bf16 alone, rounded by chance: the same on any number of ranks, wherever it stopped, and close to f32's.
drawn=(cnn --batch 64 --shards 4 --rounding stochastic)
for n in 1 2 4; do
    train drawn-$n "${drawn[@]}" --steps 40 --log-every 40 --lr 0.002 -n $n
done
same "--rounding stochastic" drawn-1 drawn-2 drawn-4
train near cnn --batch 64 --shards 4 --steps 40 --log-every 40 --lr 0.002
[ "$(hash drawn-1)" != "$(hash near)" ] || complain "--rounding stochastic: the weights of nearest"
python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 0.01 * b)' "$(loss drawn-1)" "$(loss f32-1)" ||
    complain "--rounding stochastic: another loss"
train drawn-whole "${drawn[@]}" --optimizer adam --steps 60 --checkpoint-every 30
train drawn-parts "${drawn[@]}" --optimizer adam --steps 30 --checkpoint-every 30
timeout 120 "$tutti" train --resume drawn-parts --steps 60 --quiet 2>drawn.err || complain "resume: $(tail -3 drawn.err)"
same "resumed with drawn weights" drawn-whole drawn-parts

# Memory: how much is wanted, how much there is, what to do.
refused 1 'MiB were asked for, .* of .* MiB are free: use a smaller --batch' timeout 120 "$tutti" bench train resnet18 --batch 200000 \
    --device cuda
# No GPU, though there is a driver.
CUDA_VISIBLE_DEVICES=-1 refused 1 'there is a driver but no GPU' "$tutti" train mlp --data ./pictures --device cuda --steps 1 --out none
[ ! -e none ] || complain "a folder was made for a run that cannot be"
refused 2 'no images of bytes' "$tutti" train gpt --data "$root/README.md" --tokenizer characters --device cuda --data-on device --steps 1
finish
