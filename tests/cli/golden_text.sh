#!/usr/bin/env bash
# golden_text.sh - classifiers of text and translation against PyTorch (tests/golden/README.md): losses of 20 steps with
# dense updates and with those of the rows that occur, gradients of the first step.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root/tests/golden" python3 - "$tutti" "$root/tests/golden/text.json" "$3/tests/golden_compare" <<'PY' || complain "results differ from PyTorch's"
import json, subprocess, sys
import corpus
tutti, path, compare = sys.argv[1:]
golden = json.load(open(path))
LOSS, GRADIENT = 1e-3, 1e-4
failures = 0
sys.stdout.reconfigure(line_buffering=True)
corpus.write_documents("documents")
corpus.write_pairs("pairs")

def train(run, steps, flags, out):
    options = ["--data", "./" + run["data"], "--no-shuffle", "--shards", 1, "--seed", golden["seed"], "--batch", golden["batch"],
               "--steps", steps, "--limit", golden["steps"] * golden["batch"], "--log-every", 1, "--optimizer", "sgd",
               "--lr", run["lr"], "--momentum", golden["momentum"], "--weight-decay", 0, "--init", "begin.safetensors"]
    subprocess.run([tutti, "train", *run["words"], *map(str, options), *flags, "--quiet", "--overwrite", "--out", out], check=True)
    lines = [json.loads(line) for line in open(out + "/metrics.jsonl")]
    return [line["train_loss"] for line in lines if line["kind"] == "train"]

def check(name, run, what, flags):
    global failures
    ours = train(run, golden["steps"], flags, "all")
    assert len(ours) == len(run[what]), (name, len(ours))
    error = max(abs(a - b) / abs(b) for a, b in zip(ours, run[what]))
    print(f"  {what}: largest relative difference {error:.1e}")
    train(run, 1, flags, "one")
    differ = subprocess.run([compare, path, name, "gradients", f"one/checkpoint/step-{1:012d}/optimizer.safetensors",
                             str(GRADIENT)]).returncode
    failures += (not error <= LOSS) + (differ != 0)

for name, run in golden["models"].items():
    print(name)
    subprocess.run([compare, path, name, "begin", "begin.safetensors"], check=True)
    check(name, run, "lazy_losses", [])
    check(name, run, "losses", ["--dense"])
sys.exit(failures > 0)
PY
finish
