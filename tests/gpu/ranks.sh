#!/usr/bin/env bash
# ranks.sh - ranks that share a GPU have the weights of one, to the last bit; one that dies is named, and nobody hangs.
# Made-up data; $3 is the device, cuda if it is not given.
. "$(dirname "$0")/../cli/lib.sh"
device=${3:-cuda}
command -v python3 >/dev/null || skip "no python3"
"$tutti" devices | grep -q "^$device *[0-9]" || skip "no device $device: $("$tutti" devices | grep "^$device")"

python3 - <<'PY'
import os, random, struct
rng = random.Random(3)
def idx(folder, side, count):
    os.makedirs(folder)
    for name, n in (("train", count), ("t10k", 300)):
        labels = bytes(rng.randrange(10) for _ in range(n))
        pixels = b"".join(bytes(min(255, rng.randrange(120) + 13 * label) for _ in range(side * side)) for label in labels)
        open(f"{folder}/{name}-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, n, side, side) + pixels)
        open(f"{folder}/{name}-labels-idx1-ubyte", "wb").write(struct.pack(">II", 0x801, n) + labels)
idx("pictures", 28, 3000)
idx("squares", 32, 600)
with open("play.txt", "w") as f:
    for i in range(4000):
        f.write(f"Romeo: {rng.choice(['yes', 'no', 'why'])}.\nJulia: {rng.choice(['good', 'bad', 'so'])}!\n")
os.makedirs("reviews")
for name, count in (("train", 1500), ("test", 200)):
    with open(f"reviews/{name}.tsv", "w") as f:
        for _ in range(count):
            label = rng.randrange(2)
            words = ["good" if label else "bad"] + [f"w{rng.randrange(800)}" for _ in range(rng.randrange(5, 40))]
            print(label, " ".join(words), sep="\t", file=f)
PY

# train DIR RANKS ARGUMENTS...
train() {
    timeout 120 "$tutti" train "${@:3}" -n "$2" --device "$device" --seed 7 --quiet --out "$1" 2>"$1.err" ||
        complain "$1: exit $?: $(tail -3 "$1.err")"
}
# alike NAME ARGUMENTS...: on 1, 2 and 4 ranks
alike() {
    local name=$1 n began
    for n in 1 2 4; do
        began=${EPOCHREALTIME/./}
        train "$name-$n" $n "${@:2}" --shards 4
        printf '%-10s %d ranks  %6d ms  %s\n' "$name" $n $(((${EPOCHREALTIME/./} - began) / 1000)) "$(hash "$name-$n")"
    done
    same "$name" "$name-1" "$name-2" "$name-4"
}

pictures=(--data ./pictures --batch 64 --threads 1)
alike mlp mlp "${pictures[@]}" --epochs 1 --optimizer adam
alike groups mlp "${pictures[@]}" --epochs 1 --bucket-mib 0.05
alike cnn cnn "${pictures[@]}" --steps 40 --optimizer adamw --clip 0.5 --crop 4 --flip
alike lamb cnn "${pictures[@]}" --steps 30 --optimizer lamb
alike lars mlp "${pictures[@]}" --steps 30 --optimizer lars
alike resnet18 resnet18 "${pictures[@]}" --steps 24 --width 16 --lr 0.01 --bucket-mib 0.1
alike nbow nbow --data ./reviews --batch 64 --threads 1 --epochs 2 --optimizer adam
alike gpt gpt --data ./play.txt --tokenizer characters --layers 2 --heads 2 --width 64 --length 64 --batch 16 --optimizer adamw \
    --lr 0.003 --steps 40 --threads 1
[ "$device" = cpu ] || alike f32 cnn "${pictures[@]}" --steps 20 --precision f32

# State in parts is what ranks have anyway.
train zero-2 2 mlp "${pictures[@]}" --epochs 1 --optimizer adam --shards 4 --split dp=2,zero=1
same "zero=1" mlp-1 zero-2

# Gradients in a window, and parameters that come before they are read: several groups, one shard a rank.
for n in 2 4; do
    train single-$n 1 mlp "${pictures[@]}" --epochs 1 --optimizer adam --shards $n
    for zero in 2 3; do
        train zero$zero-$n $n mlp "${pictures[@]}" --epochs 1 --optimizer adam --shards $n --split dp=$n,zero=$zero --bucket-mib 0.05
        same "zero=$zero on $n ranks" single-$n zero$zero-$n
    done
done

# With several groups, whose sums stay until the norm of all gradients is known; in fp16 whether it is finite.
# sums NAME ARGUMENTS...
sums() {
    local parted=(mlp "${pictures[@]}" --steps 60 --shards 4 --bucket-mib 0.05 "${@:2}")
    train "$1" 1 "${parted[@]}"
    for zero in 1 2 3; do
        train "$1-$zero" 4 "${parted[@]}" --split dp=4,zero=$zero
        same "$1 with zero=$zero" "$1" "$1-$zero"
    done
}
sums sums-clip --optimizer adam --clip 0.1
[ "$device" = cpu ] || sums sums-fp16 --precision fp16
[ "$device" = cpu ] || sums sums-both --precision fp16 --clip 0.5

# Statistics of the whole step, one shard a rank: twice the same, and to rounding what one shard has.
loss() { sed -n 's/.*"train_loss": \([0-9.e-]*\).*/\1/p' "$1/summary.json" | head -1; }
normed=(resnet18 "${pictures[@]}" --steps 12 --width 8 --lr 0.01)
train whole-norm 1 "${normed[@]}" --shards 1
for n in 2 4; do
    for run in a b; do
        train sync-$n$run $n "${normed[@]}" --shards $n --sync-batch-norm
    done
    same "--sync-batch-norm on $n ranks" sync-${n}a sync-${n}b
    echo "sync       $n ranks  loss $(loss sync-${n}a), of one shard $(loss whole-norm)"
    python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 0.05 * b)' "$(loss sync-${n}a)" "$(loss whole-norm)" ||
        complain "--sync-batch-norm on $n ranks: another loss"
done

# Ranks that have other numbers of shards, and partial sums of several subtrees.
train uneven-1 1 mlp "${pictures[@]}" --steps 40 --shards 8 --optimizer adam
train uneven-3 3 mlp "${pictures[@]}" --steps 40 --shards 8 --optimizer adam
same "8 shards on 3 ranks" uneven-1 uneven-3

# State that ranks hold in parts is saved whole, and goes on with another number of ranks.
train half 4 mlp "${pictures[@]}" --shards 4 --optimizer adam --steps 30 --checkpoint-every 30
for n in 1 2; do
    cp -r half half-$n
    timeout 120 "$tutti" train --resume half-$n -n $n --steps 60 --quiet 2>half.err || complain "resume on $n: $(tail -3 half.err)"
done
train whole 1 mlp "${pictures[@]}" --shards 4 --optimizer adam --steps 60
same "resumed" whole half-1 half-2

# Stages of a pipeline have the weights of one rank: skips and batch norms, a table that is also the last layer's weight,
# rows of tables that do not occur, sequences of several lengths.
# staged NAME RUN ARGUMENTS...: of that run on one rank
staged() {
    local began=${EPOCHREALTIME/./} n=$3
    train "$1" "$n" "${@:4}"
    printf '%-10s %d ranks  %6d ms  %s\n' "$1" "$n" $(((${EPOCHREALTIME/./} - began) / 1000)) "$(hash "$1")"
    same "$1" "$2" "$1"
}
text=(gpt --data ./play.txt --tokenizer characters --layers 4 --heads 4 --width 64 --length 64 --batch 16 --optimizer adamw --lr 0.003
    --steps 30 --threads 1 --dropout 0.1 --shards 8)
train text 1 "${text[@]}"
staged pp-2 text 2 "${text[@]}" --strategy pipeline
staged pp-4 text 4 "${text[@]}" --strategy pipeline
staged gpipe text 4 "${text[@]}" --strategy pipeline --pipeline gpipe
staged chunks text 2 "${text[@]}" --strategy pipeline --pipeline interleaved:2
staged dp-pp text 4 "${text[@]}" --split dp=2,pp=2
train plain 1 "${text[@]}" --dropout 0 # biases' gradients are summed by layer norms then
staged plain-pp-2 plain 2 "${text[@]}" --dropout 0 --strategy pipeline
staged plain-pp-4 plain 4 "${text[@]}" --dropout 0 --strategy pipeline
residual=(resnet18 "${pictures[@]}" --steps 24 --width 16 --lr 0.01 --shards 4)
train residual 1 "${residual[@]}"
staged res-pp-2 residual 2 "${residual[@]}" --strategy pipeline
staged res-pp-4 residual 4 "${residual[@]}" --strategy pipeline
# Convolutions that sum for the norms behind them, which a cut may keep apart.
wide=(resnet18 --data ./squares --batch 128 --threads 1 --steps 8 --lr 0.01 --shards 4)
[ "$device" = cpu ] || alike wide "${wide[@]}"
[ "$device" = cpu ] || staged wide-pp-2 wide-1 2 "${wide[@]}" --strategy pipeline
[ "$device" = cpu ] || staged wide-pp-4 wide-1 4 "${wide[@]}" --strategy pipeline
bag=(nbow --data ./reviews --batch 64 --threads 1 --epochs 2 --optimizer adam --shards 4)
staged bag-pp nbow-1 2 "${bag[@]}" --strategy pipeline
[ "$device" = cpu ] || train text-f32 1 "${text[@]}" --precision f32
[ "$device" = cpu ] || staged pp-f32 text-f32 2 "${text[@]}" --precision f32 --strategy pipeline
# The norm is that of all stages' gradients, and in fp16 all skip the same steps.
train clip 1 "${text[@]}" --clip 0.3
[ "$(hash clip)" != "$(hash text)" ] || complain "--clip makes no difference"
staged clip-pp-2 clip 2 "${text[@]}" --clip 0.3 --strategy pipeline
staged clip-pp-4 clip 4 "${text[@]}" --clip 0.3 --strategy pipeline
staged clip-int clip 2 "${text[@]}" --clip 0.3 --strategy pipeline --pipeline interleaved:2
staged clip-dp-pp clip 4 "${text[@]}" --clip 0.3 --split dp=2,pp=2
staged clip-dp clip 4 "${text[@]}" --clip 0.3 --split dp=4
if [ "$device" != cpu ]; then
    train fp16 1 "${text[@]}" --precision fp16 --clip 0.3
    staged fp16-pp-4 fp16 4 "${text[@]}" --precision fp16 --clip 0.3 --strategy pipeline
    staged fp16-dp-pp fp16 4 "${text[@]}" --precision fp16 --clip 0.3 --split dp=2,pp=2
fi

# Ranks that share layers have the losses of one, and with as many slices the same weights, whatever else there is.
losses() { grep -o '"train_loss": [0-9.e-]*' "$1/metrics.jsonl"; }
close() { # TOLERANCE DIR DIR
    paste <(losses "$2") <(losses "$3") | awk -v most="$1" '
        { d = $2 - $4; if (d < 0) d = -d; if (d / $2 > worst) worst = d / $2; n++; if (NF != 4) worst = 1 }
        END { printf "%.2g of the loss at most, %d steps\n", worst, n; exit n == 0 || worst > most }' ||
        complain "$3: losses are not those of $2"
}
shared=(gpt --data ./play.txt --tokenizer characters --layers 2 --heads 4 --width 64 --length 64 --batch 16 --optimizer adamw --lr 0.001
    --steps 20 --log-every 1 --threads 1 --dropout 0.1 --shards 2)
for kind in f32 bf16 clip fp16; do
    precision=${kind/clip/f32}
    [ "$device" = cuda ] || [ $precision = f32 ] || continue
    most=1e-4
    [ $precision = f32 ] || most=2e-2
    limit=(--clip 0)
    [ $kind != clip ] && [ $kind != fp16 ] || limit=(--clip 0.3)
    for way in whole:1:dp=1 tp-2:2:tp=2 tp-4:4:tp=4 dp-tp:4:dp=2,tp=2 tp-pp:4:tp=2,pp=2 places:2:tp=2; do
        IFS=: read -r name n split <<<"$way"
        more=()
        [ $name != places ] || more=(--sequence-parallel)
        train $name-$kind $n "${shared[@]}" --precision $precision "${limit[@]}" --split $split ${more[@]+"${more[@]}"}
        printf '%-10s %s  ' $name $kind
        close $most whole-$kind $name-$kind
    done
    same "tp=2, $kind" tp-2-$kind dp-tp-$kind tp-pp-$kind
done
train slices-1 1 cnn "${pictures[@]}" --steps 20 --log-every 1 --lr 0.001 --shards 2
train slices-2 2 cnn "${pictures[@]}" --steps 20 --log-every 1 --lr 0.001 --shards 2 --strategy tensor
close 5e-2 slices-1 slices-2

# What ranks hold in slices and stages is saved whole.
train cut 4 "${text[@]}" --split dp=2,pp=2 --steps 10
cp -r cut cut-1
timeout 120 "$tutti" train --resume cut-1 -n 1 --strategy single --split dp=1 --steps 30 --quiet 2>cut.err || complain "resume of stages: $(tail -3 cut.err)"
same "resumed from stages" text cut-1

# A rank that dies or stops in the middle.
# lost NAME RANKS WHICH SIGNAL PATTERN ARGUMENTS...
lost() {
    local pid ranks began took code
    "$tutti" train mlp "${pictures[@]}" --shards 4 --epochs 100000 --log-every 20 -n "$2" --device "$device" --quiet --out "$1" "${@:6}" 2>"$1.err" &
    pid=$!
    for _ in $(seq 1000); do
        [ -s "$1/metrics.jsonl" ] && break
        sleep 0.02
    done
    ranks=($(pgrep -P $pid))
    [ ${#ranks[@]} = "$2" ] || complain "$1: ${#ranks[@]} ranks"
    kill -"$4" "${ranks[$3]}"
    began=${EPOCHREALTIME/./}
    wait $pid
    code=$?
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
    printf '%-10s exit %d after %d ms: %s\n' "$1" $code $took "$(head -1 "$1.err")"
    [ $code = 3 ] || complain "$1: exit $code"
    [ $took -lt 6000 ] || complain "$1: took $took ms"
    grep -q "$5" "$1.err" || complain "$1: no '$5' in: $(cat "$1.err")"
    for rank in "${ranks[@]}"; do
        ! grep -q '^State:.[^ZX]' "/proc/$rank/status" 2>/dev/null || complain "$1: process $rank is left"
    done
}
lost killed 2 1 KILL 'rank 1 .*signal 9'
lost killed-0 4 0 KILL 'rank 0 .*signal 9'
lost stopped 2 1 STOP 'rank 1 .*stopped'
lost killed-pp 2 1 KILL 'rank 1 .*signal 9' --strategy pipeline
lost killed-dp-pp 4 2 KILL 'rank 2 .*signal 9' --split dp=2,pp=2
lost killed-clip 4 2 KILL 'rank 2 .*signal 9' --split dp=2,pp=2 --clip 1
lost killed-tp 2 1 KILL 'rank 1 .*signal 9' --strategy tensor
lost killed-zero 4 3 KILL 'rank 3 .*signal 9' --split dp=4,zero=3
lost killed-dp-tp 4 0 KILL 'rank 0 .*signal 9' --split dp=2,tp=2
finish
