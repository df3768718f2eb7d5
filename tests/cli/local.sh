#!/usr/bin/env bash
# local.sh - workers that average now and then, or meet a center: the same bits however they reach each other, and
# after a stop.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

mlp=(mlp --limit 600 --batch 60 --shards 4 --threads 1 --seed 7)
train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train --quiet "$@" --out "$dir" || complain "train $*"
}

# One worker is single; two have one result over shared memory and over messages.
train single "${mlp[@]}" --steps 20
train one "${mlp[@]}" --steps 20 --sync local:3
same "one worker" single one
for optimizer in sgd adam; do
    train shared-$optimizer "${mlp[@]}" --steps 20 -n 2 --optimizer $optimizer --sync local:5
    train flat-$optimizer "${mlp[@]}" --steps 20 -n 2 --optimizer $optimizer --sync local:5 --flat
    same "two workers, $optimizer" shared-$optimizer flat-$optimizer
done
[ "$(hash shared-sgd)" != "$(hash single)" ] || complain "two workers have the bits of one"

# Evaluations change nothing, and are those of the mean.
train looked "${mlp[@]}" --steps 20 -n 2 --optimizer adam --sync local:5 --eval-every 0 --log-every 3
same "evaluations and metrics" shared-adam looked
"$tutti" eval shared-adam --json >eval.json || complain eval
loss() { grep -o '"val_loss": [0-9.e-]*' "$1"; }
[ "$(loss shared-adam/summary.json)" = "$(loss eval.json)" ] ||
    complain "eval says $(loss eval.json), the run $(loss shared-adam/summary.json)"

# Each worker's state is in the checkpoint, and what the outer optimizer keeps.
for how in "--optimizer adam" "--outer-lr 0.7 --outer-momentum 0.9" "--local-after 7 --flat"; do
    rm -rf whole half
    train whole "${mlp[@]}" --steps 20 -n 2 $how --sync local:5
    train half "${mlp[@]}" --steps 10 -n 2 $how --sync local:5
    "$tutti" train --resume half --steps 20 --quiet || complain "resume with $how"
    same "10 steps and 10 with $how" whole half
done

# Losses are PyTorch's.
if command -v python3 >/dev/null; then
    python3 - "$tutti" "$root/tests/golden/local.json" <<'PY' || complain "losses differ from PyTorch's"
import json, subprocess, sys
tutti, path = sys.argv[1:]
golden = json.load(open(path))
worst = 0
for number, run in enumerate(golden["runs"]):
    flags = ["--no-shuffle", "--limit", "768", "--steps", str(golden["steps"]), "--batch", str(golden["batch"]),
             "--seed", str(golden["seed"]), "-n", str(golden["workers"]), "--threads", "1", "--log-every", "1",
             "--sync", f"local:{golden['interval']}", "--optimizer", run["optimizer"], "--lr", str(run["lr"]),
             "--outer-lr", str(run["outer_lr"]), "--outer-momentum", str(run["outer_momentum"])]
    if "momentum" in run:
        flags += ["--momentum", str(run["momentum"]), "--weight-decay", "0"]
    out = f"golden-{number}"
    subprocess.run([tutti, "train", "mlp", *flags, "--quiet", "--out", out], check=True)
    lines = [json.loads(line) for line in open(out + "/metrics.jsonl")]
    ours = [line["train_loss"] for line in lines if line["kind"] == "train"]
    assert len(ours) == len(run["losses"]), (out, len(ours))
    worst = max(worst, max(abs(a - b) / abs(b) for a, b in zip(ours, run["losses"])))
print(f"largest relative difference to PyTorch {worst:.1e}")
sys.exit(worst > 1e-4)
PY
else
    leave_out "losses as PyTorch has them: no python3"
fi

# Before --local-after it is mirrored.
train mirrored "${mlp[@]}" --steps 8 -n 2
train before "${mlp[@]}" --steps 8 -n 2 --sync local:4 --local-after 8
same "local after the end" mirrored before

# A worker and a center: the same bits however they reach each other; two workers end, and go on from the center.
elastic=("${mlp[@]}" --steps 20 --sync elastic:4)
train center "${elastic[@]}"
train center-flat "${elastic[@]}" --flat --meet ps:2
same "one worker and its center" center center-flat
train pulled "${elastic[@]}" -n 2
"$tutti" eval pulled --json >eval.json || complain eval
[ "$(loss pulled/summary.json)" = "$(loss eval.json)" ] ||
    complain "eval says $(loss eval.json), the center had $(loss pulled/summary.json)"
"$tutti" train --resume pulled --steps 30 --quiet || complain "resume with a center"
[ "$(hash pulled)" != "$(hash center)" ] || complain "two workers have the center of one"

# Stopped by a signal, at a meeting; the chosen interval is told and goes on.
TUTTI_LOG=info "$tutti" train "${mlp[@]}" --steps 100000 -n 2 --sync local:auto --quiet --out stopped 2>stopped.err &
pid=$!
for _ in $(seq 300); do
    grep -q sync_interval stopped/metrics.jsonl 2>/dev/null && break
    sleep 0.02
done
kill -INT $pid
wait $pid && complain "a stopped run exits 0"
grep -q 'continue with' stopped.err || complain "stop: $(cat stopped.err)"
grep -q 'sync_base' stopped/checkpoint/*/state.json || complain "the interval is not in the checkpoint"
# The progress line says what metrics do: samples of all workers a second.
python3 - "$tutti" <<'PY' || complain "progress and metrics have other rates"
import json, os, pty, re, sys
command = [sys.argv[1], *"train cnn --limit 3000 --batch 60 --threads 1 --epochs 6 -n 4 --strategy localsgd --log-every 20 --out shown".split()]
os.environ["TERM"] = "xterm" # where there is none, there is no bar
text = bytearray()
def read(fd):
    data = os.read(fd, 65536)
    text.extend(data)
    return b"" if not data else data
stdout = os.dup(1)
os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
status = pty.spawn(command, read)
os.dup2(stdout, 1)
if status:
    sys.exit(text.decode(errors="replace"))
rates = sorted(line["samples_per_s"] for line in map(json.loads, open("shown/metrics.jsonl")) if line["kind"] == "train")
shown = sorted(float(n) * (1000 if k else 1) for n, k in re.findall(rb"([\d.]+)(k?)/s", bytes(text)))
if not shown or not 0.6 * rates[0] < shown[len(shown) // 2] < 1.6 * rates[-1]:
    sys.exit(f"metrics {rates}, progress {shown}")
PY
step=$(grep -o '"steps": [0-9]*' stopped/summary.json | grep -o '[0-9]*$')
"$tutti" train --resume stopped --steps $((step + 20)) --quiet || complain "resume of a stopped run"
finish
