#!/usr/bin/env bash
# nccl.sh - ranks that share no memory (--flat) and have a GPU, here one, exchange sums and parameters by NCCL: the weights of one
# rank, to the last bit; one that dies is named. Made-up data. On one GPU ranks take turns, so steps are few.
. "$(dirname "$0")/../cli/lib.sh"
command -v python3 >/dev/null || skip "no python3"
"$tutti" devices | grep "^cuda" || skip "no device cuda"
"$tutti" devices | grep -q "^cuda *- *NCCL [0-9]" || skip "no NCCL"

python3 - <<'PY'
import os, random, struct
rng = random.Random(5)
os.makedirs("pictures")
for name, n in (("train", 2000), ("t10k", 200)):
    labels = bytes(rng.randrange(10) for _ in range(n))
    pixels = b"".join(bytes(min(255, rng.randrange(120) + 13 * label) for _ in range(784)) for label in labels)
    open(f"pictures/{name}-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, n, 28, 28) + pixels)
    open(f"pictures/{name}-labels-idx1-ubyte", "wb").write(struct.pack(">II", 0x801, n) + labels)
with open("play.txt", "w") as f:
    for i in range(3000):
        f.write(f"Romeo: {rng.choice(['yes', 'no', 'why'])}.\nJulia: {rng.choice(['good', 'bad', 'so'])}!\n")
os.makedirs("reviews")
for name, count in (("train", 1000), ("test", 100)):
    with open(f"reviews/{name}.tsv", "w") as f:
        for _ in range(count):
            label = rng.randrange(2)
            words = ["good" if label else "bad"] + [f"w{rng.randrange(800)}" for _ in range(rng.randrange(5, 40))]
            print(label, " ".join(words), sep="\t", file=f)
PY

# train DIR RANKS ARGUMENTS...
train() {
    timeout 100 "$tutti" train "${@:3}" -n "$2" --device cuda --seed 7 --quiet --out "$1" 2>"$1.err" ||
        complain "$1: exit $?: $(tail -3 "$1.err")"
}
# alike NAME RANKS ARGUMENTS...: one rank, and so many machines
alike() {
    local name=$1 n=$2 began
    [ -e "$name-1" ] || train "$name-1" 1 "${@:3}" --shards 4
    began=${EPOCHREALTIME/./}
    train "$name-$n" "$n" "${@:3}" --shards 4 --flat --strategy multiworker
    printf '%-10s %d ranks  %6d ms  %s\n' "$name" "$n" $(((${EPOCHREALTIME/./} - began) / 1000)) "$(hash "$name-$n")"
    same "$name" "$name-1" "$name-$n"
}

pictures=(--data ./pictures --batch 64 --threads 1)
alike mlp 2 mlp "${pictures[@]}" --steps 20 --optimizer adam
alike mlp 4 mlp "${pictures[@]}" --steps 20 --optimizer adam
alike groups 2 mlp "${pictures[@]}" --steps 20 --bucket-mib 0.05
alike cnn 2 cnn "${pictures[@]}" --steps 20 --optimizer adamw --clip 0.5
alike lamb 2 cnn "${pictures[@]}" --steps 20 --optimizer lamb
alike lars 2 mlp "${pictures[@]}" --steps 20 --optimizer lars
alike resnet18 2 resnet18 "${pictures[@]}" --steps 12 --width 16 --lr 0.01 --bucket-mib 0.1
alike nbow 2 nbow --data ./reviews --batch 64 --threads 1 --steps 20 --optimizer adam
alike gpt 2 gpt --data ./play.txt --tokenizer characters --layers 2 --heads 2 --width 64 --length 64 --batch 16 --optimizer adamw \
    --lr 0.003 --steps 16 --threads 1
alike f32 2 cnn "${pictures[@]}" --steps 12 --precision f32

# Without --strategy it is found; statistics of the whole step go by messages, too: twice the same.
for run in a b; do
    train sync-$run 2 resnet18 "${pictures[@]}" --steps 8 --width 8 --lr 0.01 --shards 2 --sync-batch-norm --flat
done
same "--sync-batch-norm" sync-a sync-b

# State that machines own is saved whole, and goes on with another number of ranks.
train half 2 mlp "${pictures[@]}" --shards 4 --optimizer adam --steps 10 --checkpoint-every 10 --flat
timeout 100 "$tutti" train --resume half -n 1 --steps 20 --quiet 2>half.err || complain "resume: $(tail -3 half.err)"
same "resumed" mlp-1 half

# A rank that dies in the middle.
# lost NAME RANKS WHICH SIGNAL PATTERN
lost() {
    local pid ranks began took code
    timeout 60 "$tutti" train mlp "${pictures[@]}" --shards 4 --epochs 100000 --log-every 2 -n "$2" --flat --device cuda --quiet --out "$1" \
        2>"$1.err" &
    pid=$!
    for _ in $(seq 1500); do
        [ -s "$1/metrics.jsonl" ] && break
        sleep 0.02
    done
    ranks=($(pgrep -P "$(pgrep -P $pid)"))
    [ ${#ranks[@]} = "$2" ] || complain "$1: ${#ranks[@]} ranks"
    kill -"$4" "${ranks[$3]}"
    began=${EPOCHREALTIME/./}
    wait $pid
    code=$?
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
    printf '%-10s exit %d after %d ms: %s\n' "$1" $code $took "$(head -1 "$1.err")"
    [ $code = 3 ] || complain "$1: exit $code"
    [ $took -lt 8000 ] || complain "$1: took $took ms"
    grep -q "$5" "$1.err" || complain "$1: no '$5' in: $(cat "$1.err")"
}
lost killed 2 1 KILL 'rank 1 .*signal 9'
lost stopped 2 1 STOP 'rank 1 .*stopped'
finish
