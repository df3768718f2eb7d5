#!/usr/bin/env bash
# gossip.sh - workers that average with their neighbors: ten steps are those of a simulation; the same bits in shared
# memory and by messages, and after a stop; a worker that dies or hangs is named.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

cat >line.c <<'C'
#include <tutti.h>
static struct tutti_value *line(struct tutti_graph *g, struct tutti_value *x, int classes)
{
    return tutti_linear(g, "fc", tutti_flatten(g, "flat", x), classes);
}
TUTTI_MODEL(line)
C
# A linear classifier of 12 pixels, simulated in double precision: each worker's step, then the mean of neighbors.
cat >simulate.py <<'PY'
import json, math, random, struct, sys
DIM, CLASSES, SAMPLES, BATCH, STEPS, LR = 12, 3, 96, 16, 10, 0.5
def array(path, shape, descr, data):
    head = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n" % (descr, "".join(f"{d}, " for d in shape))).encode()
    open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
def floats(tensors):  # name: (shape, numbers), as a safetensors file
    head, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        raw = struct.pack(f"<{len(numbers)}f", *numbers)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data
def read(path):
    raw = open(path, "rb").read()
    (n,) = struct.unpack("<Q", raw[:8])
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            out[name] = struct.unpack(f"<{(end - begin) // 4}f", raw[8 + n + begin:8 + n + end])
    return out
random.seed(5)
pixels = [[random.randrange(256) for _ in range(DIM)] for _ in range(SAMPLES)]
labels = [random.randrange(CLASSES) for _ in range(SAMPLES)]
first = [random.gauss(0, 0.3) for _ in range(CLASSES * DIM)] + [0.1, -0.2, 0.3]
first = list(struct.unpack(f"<{len(first)}f", struct.pack(f"<{len(first)}f", *first)))
if sys.argv[1] == "make":
    import os
    os.mkdir("dots")
    for split in ("train", "test"):
        array(f"dots/x_{split}.npy", (SAMPLES, 3, 4), "|u1", bytes(p for row in pixels for p in row))
        array(f"dots/y_{split}.npy", (SAMPLES,), "<i8", b"".join(struct.pack("<q", l) for l in labels))
    open("first.safetensors", "wb").write(floats({"fc.weight": ([CLASSES, DIM], first[:CLASSES * DIM]), "fc.bias": ([CLASSES], first[CLASSES * DIM:])}))
    sys.exit()
kind, workers, run = sys.argv[1], int(sys.argv[2]), sys.argv[3]
offsets = {1, workers - 1} if kind == "ring" else {2 ** k for k in range(16) if 2 ** k < workers}
x = [list(first) for _ in range(workers)]
for step in range(STEPS):
    for w in range(workers):
        own = BATCH // workers
        gradient = [0.0] * len(first)
        for i in range(own):
            s = (step * BATCH + w * own + i) % SAMPLES
            p = [v / 255 for v in pixels[s]]
            z = [sum(x[w][c * DIM + d] * p[d] for d in range(DIM)) + x[w][CLASSES * DIM + c] for c in range(CLASSES)]
            total = sum(math.exp(v) for v in z)
            for c in range(CLASSES):
                e = (math.exp(z[c]) / total - (labels[s] == c)) / own
                for d in range(DIM):
                    gradient[c * DIM + d] += e * p[d]
                gradient[CLASSES * DIM + c] += e
        x[w] = [v - LR * g for v, g in zip(x[w], gradient)]
    x = [[sum(x[(w + o) % workers][i] for o in {0} | offsets) / (1 + len(offsets)) for i in range(len(first))] for w in range(workers)]
folder = f"{run}/checkpoint/step-{STEPS:012d}"
weights, own = read(folder + "/weights.safetensors"), read(folder + "/optimizer.safetensors")
mean = [sum(x[w][i] for w in range(workers)) / workers for i in range(len(first))]
worst = max(abs(a - b) for a, b in zip(mean, weights["fc.weight"] + weights["fc.bias"]))
for w in range(workers):
    suffix = f".own.worker{w}" if w else ".own"
    worst = max(worst, max(abs(a - b) for a, b in zip(x[w], own["fc.weight" + suffix] + own["fc.bias" + suffix])))
apart = max(abs(a - b) for a, b in zip(x[0], x[workers // 2]))
print(f"{kind}, {workers} workers: at most {worst:.1e} from the simulation, workers are {apart:.1e} apart")
sys.exit(worst > 1e-6 or apart < 1e-4)
PY
python3 simulate.py make || complain "no data"
line=(line.c --data ./dots --normalize scale --init first.safetensors --no-shuffle --batch 16 --steps 10 --optimizer sgd
    --momentum 0 --weight-decay 0 --lr 0.5 --schedule constant --threads 1 --quiet)
for workers in 4 8; do
    for kind in ring exponential; do
        for flat in "" --flat; do
            run=line-$kind-$workers$flat
            # shellcheck disable=SC2086 # a flag or none
            "$tutti" train "${line[@]}" -n $workers --shards $workers --sync gossip:$kind $flat --out "$run" || complain "train $run"
            python3 simulate.py $kind $workers "$run" || complain "$run is not the simulation"
        done
        same "$workers workers, $kind" line-$kind-$workers line-$kind-$workers--flat
    done
done
[ "$(hash line-ring-4)" != "$(hash line-exponential-4)" ] || complain "ring and exponential are the same"

# Five workers with unequal shards; Adam's state; one worker is single.
small=(line.c --data ./dots --batch 24 --threads 1 --seed 3 --optimizer adam --quiet)
train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train "${small[@]}" "$@" --out "$dir" || complain "train $*"
}
train single --steps 9
train one --steps 9 --strategy gossip
same "one worker" single one
train five --steps 12 -n 5 --shards 6 --sync gossip:exponential
train five-flat --steps 12 -n 5 --shards 6 --sync gossip:exponential --flat
same "five workers" five five-flat
[ "$(hash five)" != "$(hash single)" ] || complain "five workers have the bits of one"

# Interrupted, evaluated, and asked often: the same bits.
train looked --steps 12 -n 5 --shards 6 --sync gossip:exponential --log-every 1 --checkpoint-every 5
same "metrics and checkpoints" five looked
train half --steps 5 -n 5 --shards 6 --sync gossip:exponential
"$tutti" train --resume half --steps 12 --quiet || complain resume
same "5 steps and 7" five half
loss() { grep -o '"val_loss": [0-9.e-]*' "$1"; }
"$tutti" eval five --json >eval.json || complain eval
[ "$(loss five/summary.json)" = "$(loss eval.json)" ] || complain "eval says $(loss eval.json), the run $(loss five/summary.json)"
grep -q '"param_variance": [0-9.e-]*[1-9]' looked/metrics.jsonl || complain "no variance among workers"
# Another strategy goes on from the mean.
"$tutti" train --resume half --steps 14 --strategy mirrored --sync step --meet allreduce --quiet || complain "mirrored after gossip"

# Stopped by a signal between two steps, and gone on with.
"$tutti" train "${small[@]}" --steps 1000000 -n 4 --shards 4 --strategy gossip --log-every 10 --out stopped 2>err.txt &
pid=$!
until [ -s stopped/metrics.jsonl ] || ! kill -0 $pid; do :; done
kill -TERM $pid
wait $pid
[ $? = 3 ] && grep -q 'continue with tutti train --resume stopped' err.txt || complain "stop: $(cat err.txt)"
step=$(grep -o '"steps": [0-9]*' stopped/summary.json | grep -o '[0-9]*$')
"$tutti" train --resume stopped --steps $((step + 7)) --quiet || complain "resume of a stopped run"

# A worker that dies, and one that hangs, are named.
for signal in KILL STOP; do
    for flat in "" --flat; do
        # shellcheck disable=SC2086
        "$tutti" train "${small[@]}" --steps 1000000 -n 4 --shards 4 --strategy gossip --log-every 10 $flat --out lost-$signal$flat 2>err.txt &
        pid=$!
        until [ -s lost-$signal$flat/metrics.jsonl ] || ! kill -0 $pid; do :; done
        kill -$signal "$(pgrep -P $pid | sed -n 2p)"
        wait $pid
        [ $? = 3 ] && grep -q "rank 1 " err.txt || complain "$signal $flat: $(cat err.txt)"
    done
done

# Eight workers have two neighbors in a ring, and three at 1, 2 and 4: their programs say so in bytes.
for kind in ring exponential; do
    "$tutti" graph mlp -n 8 --sync gossip:$kind --after lower --rank 3 --format json >program-$kind.json || complain "graph $kind"
done
python3 - <<'PY' || complain "bytes of programs"
import json, sys
ring, exponential = ([t for t in json.load(open(f"program-{kind}.json"))["tasks"] if t["between"]] for kind in ("ring", "exponential"))
ok = "with workers 4, 2" in ring[0]["name"] and "with workers 4, 5, 7" in exponential[0]["name"]
sys.exit(not (ok and len(ring) == len(exponential) > 1 and all(3 * a["bytes"] == 2 * b["bytes"] > 0 for a, b in zip(ring, exponential))))
PY

refused 2 'gossip:ring or gossip:exponential' "$tutti" train mlp --sync gossip:star --out never
refused 2 'gossip:ring or gossip:exponential' "$tutti" train mlp --sync gossip --out never
refused 2 'strategy gossip works with meet none' "$tutti" train mlp -n 2 --strategy gossip --meet allreduce --out never
refused 2 'sync-batch-norm' "$tutti" train resnet18 -n 2 --strategy gossip --sync-batch-norm --out never
[ ! -e never ] || complain "a refused run left a folder"
finish
