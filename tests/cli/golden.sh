#!/usr/bin/env bash
# golden.sh - losses of 50 steps agree with PyTorch's to 1e-4 (tests/golden/README.md).
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
command -v python3 >/dev/null || skip "no python3"

python3 - "$tutti" "$root/tests/golden/losses.json" <<'PY' || complain "losses differ from PyTorch's"
import json, subprocess, sys
tutti, path = sys.argv[1:]
golden = json.load(open(path))
worst = 0
for run in golden["runs"]:
    name = run["model"] + "-" + run["optimizer"]
    flags = ["--no-shuffle", "--steps", str(golden["steps"]), "--batch", str(golden["batch"]), "--seed", str(golden["seed"]),
             "--log-every", "1", "--optimizer", run["optimizer"], "--lr", str(run["lr"]), "--weight-decay", str(run["weight_decay"])]
    if "momentum" in run:
        flags += ["--momentum", str(run["momentum"])]
    if "trust" in run:
        flags += ["--trust", str(run["trust"])]
    if run["model"] == "cnn":
        flags += ["--dropout", "0"]
    subprocess.run([tutti, "train", run["model"], *flags, "--quiet", "--out", name], check=True)
    lines = [json.loads(line) for line in open(name + "/metrics.jsonl")]
    ours = [line["train_loss"] for line in lines if line["kind"] == "train"]
    assert len(ours) == len(run["losses"]) == golden["steps"], (name, len(ours))
    error = max(abs(a - b) / abs(b) for a, b in zip(ours, run["losses"]))
    worst = max(worst, error)
    print(f"{name}: largest relative difference {error:.1e}")
sys.exit(worst > 1e-4)
PY
finish
