#!/usr/bin/env bash
# evaluate.sh - what an evaluation counts, against a plain count; models without classes.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
command -v python3 >/dev/null || skip "no python3"

works() { "$@" >out.txt 2>err.txt || complain "$*: $(cat err.txt)"; }
says() { grep -q -- "$1" out.txt || complain "no '$1' in: $(head -c 600 out.txt)"; }

works "$tutti" train mlp --epochs 1 --limit 3000 --shards 2 --threads 2 --quiet --out one
works "$tutti" train mlp --epochs 1 --limit 3000 --shards 2 --threads 1 -n 2 --strategy mirrored --quiet --out two
works "$tutti" eval one && says 'top-5' && says 'Ankle boot' && says 'most often taken for'
works "$tutti" eval one --limit 60 --json && cp out.txt few.json
works "$tutti" eval one --json && cp out.txt all.json

python3 - "$("$tutti" data list | grep -o '/.*fashion-mnist$')" <<'PY' || complain "the counts are not those of a plain count"
import gzip, json, math, os, struct, sys
one, two, few, every = json.load(open("one/summary.json")), json.load(open("two/summary.json")), json.load(open("few.json")), json.load(open("all.json"))
keys = ["val_loss", "val_accuracy", "val_top5_accuracy", "class_names", "class_accuracy", "confusion"]
for key in keys:
    assert one[key] == two[key] == every[key], (key, one[key], two[key], every[key])
for e in (one, few):  # what follows from the matrix
    c, n = e["confusion"], len(e["class_names"])
    assert n == 10 and [len(row) for row in c] == [n] * n
    total = sum(map(sum, c))
    assert total == (3000 if e is one else 60)
    assert abs(e["val_accuracy"] - sum(c[i][i] for i in range(n)) / total) < 1e-12
    for i in range(n):
        assert abs(e["class_accuracy"][i] - c[i][i] / sum(c[i])) < 1e-12 if sum(c[i]) else e["class_accuracy"][i] is None
    assert e["val_accuracy"] <= e["val_top5_accuracy"] <= 1

def read(folder, name):  # the 60 samples and the weights, computed by hand
    path = os.path.join(folder, name)
    return open(path, "rb").read() if os.path.exists(path) else gzip.open(path + ".gz").read()
pixels, labels = read(sys.argv[1], "t10k-images-idx3-ubyte")[16:], read(sys.argv[1], "t10k-labels-idx1-ubyte")[8:]
folder = sorted(os.listdir("one/checkpoint"))[-1]
data = open(f"one/checkpoint/{folder}/weights.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
w = {k: (v["shape"], struct.unpack(f"<{math.prod(v['shape'])}f", data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]]))
     for k, v in header.items() if k != "__metadata__"}
def linear(x, name):
    (rows, columns), weight = w[name + ".weight"]
    return [sum(a * b for a, b in zip(weight[r * columns:(r + 1) * columns], x)) + w[name + ".bias"][1][r] for r in range(rows)]
confusion, top5 = [[0] * 10 for _ in range(10)], 0
for i in range(60):
    x = [(p / 255 - 0.2860) / 0.3530 for p in pixels[784 * i:784 * i + 784]]
    x = [max(v, 0) for v in linear([max(v, 0) for v in linear(x, "fc1")], "fc2")]
    order = sorted(range(10), key=lambda j, y=linear(x, "fc3"): -y[j])
    confusion[labels[i]][order[0]] += 1
    top5 += labels[i] in order[:5]
assert confusion == few["confusion"], (confusion, few["confusion"])
assert abs(top5 / 60 - few["val_top5_accuracy"]) < 1e-12
assert any('"val_top5_accuracy"' in line for line in open("one/metrics.jsonl"))
page = open("one/report.html").read()
for part in ("What was taken for what", "Accuracy of each class", "Top-5 accuracy", "Ankle boot"):
    assert part in page, part
PY

# A model without classes: a loss, and no word of accuracy.
model=$root/examples/my_autoencoder.c
works "$tutti" train "$model" --data fashion-mnist --optimizer adam --steps 150 --limit 4000 --shards 2 --threads 1 --out whole
grep -q ccuracy out.txt err.txt whole/*.json whole/metrics.jsonl whole/report.html && complain "a model without classes has an accuracy"
says 'validation loss 0'
works "$tutti" train "$model" --data fashion-mnist --optimizer adam --steps 60 --limit 4000 --shards 2 --threads 2 --quiet --out parts
works "$tutti" train --resume parts --steps 150 -n 2 --strategy mirrored --threads 1 --quiet
same "a model without classes, resumed" whole parts
works "$tutti" eval whole && says 'loss 0'
grep -q ccuracy out.txt && complain "eval of a model without classes has an accuracy"
works "$tutti" eval whole --json && says '"val_loss"'
works "$tutti" bench train "$model" --batch 32 --threads 1 --windows 1
works "$tutti" graph "$model" --batch 32 && says mse_grad
python3 - <<'PY' || complain "the picture of reconstructions"
import base64, json, re, struct, zlib
assert "val_accuracy" not in json.load(open("whole/summary.json")) and "confusion" not in json.load(open("whole/summary.json"))
png = open("whole/reconstructions.png", "rb").read()
assert re.search('src="data:image/png;base64,([^"]*)"', open("whole/report.html").read()).group(1) == base64.b64encode(png).decode()
assert png[:8] == b"\x89PNG\r\n\x1a\n"
at, chunks = 8, {}
while at < len(png):
    length, kind = struct.unpack(">I4s", png[at:at + 8])
    chunks[kind] = png[at + 8:at + 8 + length]
    assert struct.unpack(">I", png[at + 8 + length:at + 12 + length])[0] == zlib.crc32(png[at + 4:at + 8 + length])
    at += 12 + length
width, height, bits, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
rows = zlib.decompress(chunks[b"IDAT"])
assert (bits, colour) == (8, 4) and len(rows) == height * (1 + 2 * width)
zoom = height // (2 * 28 + 1)
assert width == zoom * (8 * 29 - 1) and height == zoom * 57
PY
finish
