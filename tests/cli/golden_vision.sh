#!/usr/bin/env bash
# golden_vision.sh - the vision zoo against PyTorch (tests/golden/README.md): losses of 20 steps, gradients of the
# first, running averages after the last, outputs of weights from a file of torchvision's names.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
command -v python3 >/dev/null || skip "no python3"
has_data cifar-10

python3 - "$tutti" "$root/tests/golden/vision.json" "$3/tests/golden_compare" <<'PY' || complain "results differ from PyTorch's"
import filecmp, json, subprocess, sys
tutti, path, compare = sys.argv[1:]
golden = json.load(open(path))
LOSS, DIRECT, WINOGRAD, OUTPUTS = 1e-3, 1e-4, 1e-3, 1e-4
failures = 0
sys.stdout.reconfigure(line_buffering=True)

def fail(text):
    global failures
    failures += 1
    print("  " + text)

def train(name, run, steps, flags, out):
    options = ["--no-shuffle", "--shards", "1", "--seed", golden["seed"], "--batch", run["batch"], "--steps", steps,
               "--limit", steps * run["batch"], "--log-every", 1, "--optimizer", "sgd", "--lr", run["lr"],
               "--momentum", golden["momentum"], "--weight-decay", 0]
    subprocess.run([tutti, "train", name, *map(str, options), *flags, "--quiet", "--overwrite", "--out", out], check=True)
    lines = [json.loads(line) for line in open(out + "/metrics.jsonl")]
    return [line["train_loss"] for line in lines if line["kind"] == "train"]

def check_losses(what, ours, theirs):
    assert len(ours) == len(theirs), (what, len(ours))
    error = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    print(f"  {what}: largest relative difference {error:.1e}")
    if not error <= LOSS:
        fail(f"{what} differ by {error:.1e}, more than {LOSS:.0e}")

def check_tensors(name, what, file, limit):
    if subprocess.run([compare, path, name, what, file, str(limit)]).returncode:
        fail(f"{what} differ")

def optimizer_of(out):
    return f"{out}/checkpoint/step-{1:012d}/optimizer.safetensors"

def check_steps(name, run, flags, options):
    """Leaves the folder `all`, with the averages."""
    check_losses("losses", train(name, run, golden["steps"], options, "all"), run["losses"])
    subprocess.run([compare, path, name, "evaluation", "torch.safetensors"], check=True)
    subprocess.run([tutti, "eval", name, "--weights", "torch.safetensors", "--limit", str(run["evaluation"]["samples"]), *flags,
                    "--outputs", "outputs.safetensors", "--json"], check=True, stdout=subprocess.DEVNULL)
    check_tensors(name, "outputs", "outputs.safetensors", OUTPUTS)

def check(name, run, flags, limit):
    """Gradients first: if those of --exact have the bits of the usual kernels, they are the same kernels."""
    print(name, *flags)
    options = [] if name in ("lenet", "resnet18", "conv_autoencoder") else ["--dropout", "0"]
    if not flags:
        check_losses("loss of initial weights", train(name, run, 1, options, "one"), [run["initial_loss"]])
    if "begin" in run:
        options += ["--init", "begin.safetensors"]
        subprocess.run([compare, path, name, "begin", "begin.safetensors"], check=True)
    one = "exact" if flags else "one"
    if flags or "begin" in run:
        train(name, run, 1, flags + options, one)
    if flags and filecmp.cmp(optimizer_of("one"), optimizer_of("exact"), shallow=False):
        print("  the same bits as without")
    else:
        check_steps(name, run, flags, flags + options)
    check_tensors(name, "gradients", optimizer_of(one), limit)
    check_tensors(name, "averages", f"all/checkpoint/step-{golden['steps']:012d}/weights.safetensors", limit)

has_exact = "--exact" in subprocess.run([tutti, "train", "--help"], check=True, capture_output=True, text=True).stdout
ways = [([], WINOGRAD), (["--exact"], DIRECT)] if has_exact else [([], DIRECT)]
missing = set()
for name, run in golden["models"].items():
    if run["data"] in missing or subprocess.run([tutti, "data", "info", run["data"]], capture_output=True).returncode:
        missing.add(run["data"])
        continue
    for flags, limit in ways:
        check(name, run, flags, limit)
for data in sorted(missing):
    names = " ".join(name for name, run in golden["models"].items() if run["data"] == data)
    print(f"left out: {names}: data set {data} is not here")
sys.exit(failures > 0)
PY
finish
