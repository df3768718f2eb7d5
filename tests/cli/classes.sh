#!/usr/bin/env bash
# classes.sh - data of very many classes: training, evaluation, the report and what reads a run.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

works() { "$@" >out.txt 2>err.txt || complain "$*: $(cat err.txt)"; }
says() { grep -q -- "$1" out.txt || complain "no '$1' in: $(head -c 600 out.txt)"; }

cat >make.py <<'PY'
import os, random, struct, sys

def npy(path, descr, shape, data):
    shape = "(" + "".join(f"{n}, " for n in shape) + ")"
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * ((64 - (11 + len(head)) % 64) % 64) + "\n"
    open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)

folder, classes, train, test = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
os.makedirs(folder)
for split, n in (("train", train), ("test", test)):
    labels = [classes - 1 - i * 7919 % classes for i in range(n)]
    pixels = b"".join(bytes(200 * (c >> k & 1) for k in range(16)) for c in labels)
    npy(f"{folder}/x_{split}.npy", "|u1", (n, 4, 4), pixels)
    npy(f"{folder}/y_{split}.npy", "<i4", (n,), struct.pack(f"<{n}i", *labels))
PY
cat >check.py <<'PY'
import json, sys
folder, classes, samples = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
summary, told = json.load(open(f"{folder}/summary.json")), json.load(open("told.json"))
assert summary["status"] == "done"
for e in (summary, told):
    assert len(e["class_names"]) == len(e["class_accuracy"]) == len(e["class_samples"]) == classes
    assert "confusion" not in e and "confusion_left_out" not in e
    cells = e["confusion_cells"]
    assert cells == sorted(cells) and len({(t, a) for t, a, n in cells}) == len(cells)
    assert all(0 <= t < classes and 0 <= a < classes and n > 0 for t, a, n in cells)
    assert sum(n for t, a, n in cells) == sum(e["class_samples"]) == samples
    right, total = {t: n for t, a, n in cells if t == a}, e["class_samples"]
    assert abs(sum(right.values()) / samples - e["val_accuracy"]) < 1e-12
    for c in range(classes):
        assert e["class_accuracy"][c] == (right.get(c, 0) / total[c] if total[c] else None)
for key in ("confusion_cells", "class_samples", "class_accuracy", "val_loss"):
    assert summary[key] == told[key], key
page = open(f"{folder}/report.html").read()
for part in ("Classes by accuracy", "The classes with the lowest accuracy", "The most frequent mistakes"):
    assert part in page, part
assert "could not be read" not in page and len(page) < 4 << 20, len(page)
PY

# try_classes CLASSES TRAINING TEST STEPS
try_classes() {
    python3 make.py "data$1" "$1" "$2" "$3" || complain "no data"
    works "$tutti" train mlp --data "./data$1" --batch 64 --steps "$4" --threads 2 --shards 2 --quiet --out "run$1"
    works "$tutti" eval "run$1" --json
    cp out.txt told.json
    python3 check.py "run$1" "$1" "$3" || complain "$1 classes: the counts"
    works "$tutti" eval "run$1"
    says 'worst of'
    works "$tutti" report "run$1"
}

try_classes 10000 10000 2000 20
works "$tutti" train mlp --data ./data10000 --batch 64 --steps 20 --threads 1 -n 2 --shards 2 --strategy mirrored --quiet --out two
same "10,000 classes on two ranks" run10000 two
works "$tutti" compare run10000 two
works "$tutti" eval run10000 --outputs outputs.safetensors
[ "$(stat -c %s outputs.safetensors)" -gt $((2000 * 10000 * 4)) ] || complain "outputs of 10,000 classes are too few"
ls | grep -q scratch && complain "the outputs' scratch file is still there"

try_classes 65536 3000 1500 4
finish
