#!/usr/bin/env bash
# workers.sh - ranks with parameters of their own, on a GPU: servers give the weights of one rank, to the last bit; workers that average
# or have a center train as they do on the CPU, go on where they stopped, and are missed when they die. Made-up data, little of it:
# tests/cuda_on_cpu runs this, too.
. "$(dirname "$0")/../cli/lib.sh"
command -v python3 >/dev/null || skip "no python3"
"$tutti" devices | grep -q '^cuda *[0-9]' || skip "no device cuda: $("$tutti" devices | grep '^cuda')"

python3 - <<'PY'
import os, random, struct
rng = random.Random(3)
os.makedirs("pictures")
for name, n in (("train", 210), ("t10k", 60)):
    labels = bytes(rng.randrange(10) for _ in range(n))
    pixels = b"".join(bytes(min(255, rng.randrange(120) + 13 * label) for _ in range(144)) for label in labels)
    open(f"pictures/{name}-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, n, 12, 12) + pixels)
    open(f"pictures/{name}-labels-idx1-ubyte", "wb").write(struct.pack(">II", 0x801, n) + labels)
os.makedirs("reviews")
for name, count in (("train", 96), ("test", 40)):
    with open(f"reviews/{name}.tsv", "w") as f:
        for _ in range(count):
            label = rng.randrange(2)
            words = ["good" if label else "bad"] + [f"w{rng.randrange(100)}" for _ in range(rng.randrange(5, 20))]
            print(label, " ".join(words), sep="\t", file=f)
PY
pictures=(mlp --data ./pictures --batch 16 --shards 4 --threads 1 --seed 7 --quiet)
reviews=(nbow --data ./reviews --batch 16 --shards 4 --threads 1 --optimizer adam --epochs 2 --seed 7 --quiet)
# train DIR ARGUMENTS...
train() { timeout 300 "$tutti" train "${@:2}" --out "$1" 2>"$1.err" || complain "$1: exit $?: $(tail -3 "$1.err")"; }
# value DIR KEY: the last of metrics.jsonl
value() { sed -n "s/.*\"$2\": \([0-9.e+-]*\).*/\1/p" "$1/metrics.jsonl" | tail -1; }
# near DIR DIR: the same of workers with a center. The exchange is asynchronous: how many steps a
# line of metrics has heard of, and the loss in its last digits, differ from run to run.
near() {
    python3 - "$@" <<'PY' || complain "$1 and $2: other metrics"
import json, sys
rows = [[json.loads(line) for line in open(name + "/metrics.jsonl")] for name in sys.argv[1:]]
same = [[[r["kind"], r["step"]] for r in one] for one in rows]
ends = [[r["samples"] for r in one][-1] for one in rows]
pairs = [(a["train_loss"], b["train_loss"]) for a, b in zip(*rows)]
close = all(a == b or (a and b and abs(a - b) < 0.05 * b) for a, b in pairs)
sys.exit(not (len(rows[0]) > 4 and same[0] == same[1] and ends[0] == ends[1] and close))
PY
}
# told DIR DIR: of the same steps and samples, with losses that are close
told() {
    python3 - "$@" <<'PY' || complain "$1 and $2: other metrics"
import json, sys
rows = [[json.loads(line) for line in open(name + "/metrics.jsonl")] for name in sys.argv[1:]]
same = [[[r["kind"], r["step"], r["samples"]] for r in one] for one in rows]
pairs = [(a["train_loss"], b["train_loss"]) for a, b in zip(*rows)]
close = all(a == b or (a and b and abs(a - b) < 1e-3 * b) for a, b in pairs)
sys.exit(not (len(rows[0]) > 4 and same[0] == same[1] and close))
PY
}

# Servers, with gradients that are dense and gradients of rows, clipped, a last batch that is smaller. Images lie on the device.
train one "${pictures[@]}" --epochs 1 --crop 2 --device cuda --clip 0.5
train served-2 "${pictures[@]}" --epochs 1 --crop 2 --device cuda --clip 0.5 -n 2 --strategy ps
train served-3 "${pictures[@]}" --epochs 1 --crop 2 --device cuda --clip 0.5 -n 3 --strategy ps --meet ps:2 --data-on host
same "servers" one served-2 served-3
[ "$(value one val_loss)" = "$(value served-2 val_loss)" ] || complain "served-2: another val_loss"
train rows "${reviews[@]}" --device cuda
train rows-served "${reviews[@]}" --device cuda -n 2 --strategy ps
same "servers of tables" rows rows-served
train bounded "${reviews[@]}" --epochs 4 --device cuda -n 2 --strategy ssp
python3 -c 'import sys; sys.exit(float(sys.argv[1]) > 0.69)' "$(value bounded val_loss)" || complain "ssp has learnt nothing"

# Averages, in f32, as on the CPU; of the last small batch some workers have nothing. Alone at once or later; one worker is one rank.
for device in cpu cuda; do
    train local-$device "${pictures[@]}" --batch 8 --epochs 2 --log-every 5 -n 4 --strategy localsgd --sync local:4 --device $device --precision f32
    train parted-$device "${pictures[@]}" --steps 20 --log-every 5 -n 2 --sync local:3 --local-after 6 --device $device --precision f32
    train gossip-$device "${pictures[@]}" --batch 8 --epochs 2 --log-every 5 -n 4 --strategy gossip --device $device --precision f32
    train center-$device "${pictures[@]}" --steps 20 --log-every 5 -n 1 --strategy easgd --sync elastic:1 --device $device --precision f32
done
told local-cpu local-cuda
told parted-cpu parted-cuda
told gossip-cpu gossip-cuda
near center-cpu center-cuda
train lone "${pictures[@]}" --epochs 1 --crop 2 --device cuda --clip 0.5 -n 1 --strategy localsgd
same "one worker" one lone

# Stopped and gone on.
local=("${pictures[@]}" --optimizer adam --device cuda -n 2 --strategy localsgd --sync local:4 --checkpoint-every 8)
train whole "${local[@]}" --steps 16
train halves "${local[@]}" --steps 8
timeout 300 "$tutti" train --resume halves --steps 16 --quiet 2>halves.err || complain "halves: $(cat halves.err)"
same "resumed averages" whole halves

# A worker that dies is named; with servers and a spare the others go on.
# lose DIR ARGUMENTS...: worker 1 of a run is killed; sets code
lose() {
    "$tutti" train "${@:2}" --log-every 1 --out "$1" 2>"$1.err" &
    local pid=$!
    for _ in $(seq 1500); do
        [ -s "$1/metrics.jsonl" ] && break
        sleep 0.02
    done
    kill -KILL "$(pgrep -P $pid | sed -n 2p)"
    wait $pid
    code=$?
    grep -q 'rank 1 .*kill' "$1.err" || complain "$1: a killed worker is not named: $(cat "$1.err")"
}
lose lost "${pictures[@]}" --steps 1000000 --device cuda -n 2 --strategy localsgd
[ $code = 3 ] || complain "a killed worker that averages: exit $code"
lose replaced "${pictures[@]}" --steps 40 --device cuda -n 2 --strategy asgd --spares 1
[ $code = 0 ] || complain "a worker that has a spare: exit $code: $(cat replaced.err)"

for wrong in "--strategy localsgd --precision fp16" "--strategy ps --rounding stochastic" "--strategy central" "--strategy parallax"; do
    # shellcheck disable=SC2086 # words
    refused 2 '--device cuda and' "$tutti" train "${pictures[@]}" --device cuda -n 2 $wrong --out never
done
[ ! -e never ] || complain "a refused run has left a folder"
finish
