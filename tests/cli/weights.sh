#!/usr/bin/env bash
# weights.sh - weights from files of others: evaluated, trained from, refused; outputs written.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
command -v python3 >/dev/null || skip "no python3"

works() { "$@" >out.txt 2>err.txt || complain "$*: $(cat err.txt)"; }

# Small, with batch norm and shortcuts; any data will do.
model="resnet18 --width 2 --data fashion-mnist --limit 300"
works "$tutti" train $model --epochs 1 --batch 50 --shards 1 --threads 1 --quiet --out run
works "$tutti" eval run --json --outputs run.safetensors && cp out.txt run.json

# Files as PyTorch writes them, and wrong ones. The header's length is odd, so that data are not aligned.
cat >tensors.py <<'PY'
import glob, json, math, struct

def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]]) for k, v in header.items()}

def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (1 - len(text) % 2)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)

def floats(tensor):
    return struct.unpack(f"<{math.prod(tensor[1])}f", tensor[2])
PY
python3 - <<'PY' || complain "files could not be made"
import glob
from tensors import *
good = read(glob.glob("run/checkpoint/*/weights.safetensors")[0])
counts = {k.replace("running_mean", "num_batches_tracked"): ("I64", [], struct.pack("<q", 6)) for k in good if k.endswith("running_mean")}
assert len(counts) == 20
write("torch.safetensors", {**counts, **dict(sorted(good.items()))})
write("missing.safetensors", {k: v for k, v in good.items() if k != "layer2.0.downsample.1.running_var"})
write("more.safetensors", {**good, "layer1.2.conv1.weight": good["layer1.1.conv1.weight"]})
dtype, shape, data = good["fc.weight"]
write("shape.safetensors", {**good, "fc.weight": (dtype, shape[::-1], data)})
import struct
def spoiled(name, number):
    kind, form, bytes_of = good[name]
    return {**good, name: (kind, form, bytes_of[:8] + struct.pack("<f", number) + bytes_of[12:])}
write("nan.safetensors", spoiled("fc.weight", float("nan")))
write("large.safetensors", {**good, "fc.weight": (*good["fc.weight"][:2], struct.pack("<f", 3e38) * 160)})
write("inf.safetensors", spoiled("fc.bias", float("-inf")))
write("half.safetensors", {**good, "fc.weight": ("F16", shape, data[:len(data) // 2])})
PY

works "$tutti" eval $model --weights torch.safetensors --threads 1 --json --outputs file.safetensors && cp out.txt file.json
works "$tutti" eval run --weights torch.safetensors --threads 2 --json && cp out.txt both.json
works "$tutti" eval $model --weights torch.safetensors
grep -q 'with torch.safetensors on test of fashion-mnist' out.txt || complain "no file in: $(cat out.txt)"
python3 - <<'PY' || complain "evaluation of a file, or the outputs"
from tensors import *
run, file, both = (json.load(open(n + ".json")) for n in ("run", "file", "both"))
for key in ("weights_sha256", "val_loss", "val_accuracy", "confusion"):
    assert run[key] == file[key] == both[key], key
assert run["step"] == 6 and "step" not in file
assert read("run.safetensors") == read("file.safetensors")
tensors = read("file.safetensors")
assert tensors["outputs"][:2] == ("F32", [300, 10]) and tensors["labels"][:2] == ("I32", [300])
logits, labels = floats(tensors["outputs"]), struct.unpack("<300i", tensors["labels"][2])
loss, confusion = 0, [[0] * 10 for _ in range(10)]
for i, label in enumerate(labels):
    row = logits[10 * i:10 * i + 10]
    loss += math.log(sum(math.exp(v - row[label]) for v in row))
    confusion[label][row.index(max(row))] += 1
assert abs(loss / 300 - file["val_loss"]) < 1e-6 * loss / 300, (loss / 300, file["val_loss"])
assert confusion == file["confusion"]
PY

# Outputs that are images come channel by channel.
works "$tutti" train conv_autoencoder --steps 2 --limit 200 --batch 50 --quiet --out images
works "$tutti" eval images --outputs images.safetensors --json
python3 - <<'PY' || complain "the outputs of a model without classes"
from tensors import *
tensors = read("images.safetensors")
assert tensors["outputs"][1] == [200, 1, 28, 28]
assert all(0 < v < 1 for v in floats(tensors["outputs"]))
PY

# Training goes on from a file exactly as from the weights themselves: the loss of the first batch is that of
# weights which a run's own file holds.
works "$tutti" train $model --init torch.safetensors --steps 2 --batch 50 --shards 1 --threads 1 --no-shuffle --quiet --out from-torch
works "$tutti" train $model --init "$(echo run/checkpoint/*/weights.safetensors)" --steps 2 --batch 50 --shards 1 --threads 1 --no-shuffle --quiet --out from-run
same "the same weights in two files" from-torch from-run

# Weights of another model are refused, with the file, the tensor and what is wrong with it.
for command in "eval $model --weights" "train $model --steps 2 --out bad --init"; do
    refused 1 'missing.safetensors: tensor layer2.0.downsample.1.running_var is missing' "$tutti" $command missing.safetensors
    refused 1 'more.safetensors: tensor layer1.2.conv1.weight is of another model' "$tutti" $command more.safetensors
    refused 1 'shape.safetensors: tensor fc.weight is f32 16x10, the model needs f32 10x16' "$tutti" $command shape.safetensors
    refused 1 'half.safetensors: tensor fc.weight is f16 10x16, the model needs f32 10x16' "$tutti" $command half.safetensors
    refused 1 'nan.safetensors: tensor fc.weight has -*nan at element 2 of 160: use weights that are finite' "$tutti" $command nan.safetensors
    refused 1 'inf.safetensors: tensor fc.bias has -inf at element 2 of 10' "$tutti" $command inf.safetensors
    refused 1 'run.safetensors: tensor conv1.weight is missing' "$tutti" $command run.safetensors
    refused 1 'nothing.safetensors' "$tutti" $command nothing.safetensors
done
# A learning rate has no part in the loss of the first step.
refused 1 'the loss of the first step is not a finite number.* in the data and in .*large.safetensors' "$tutti" train $model --steps 2 --quiet --out large --init large.safetensors
refused 1 'torch.safetensors: tensor conv1.weight is f32 2x1x3x3, the model needs f32 6x1x5x5' "$tutti" eval lenet --weights torch.safetensors --outputs bad
refused 1 'torch.safetensors: tensor conv1.weight is f32 2x1x3x3' "$tutti" eval resnet18 --width 4 --data fashion-mnist --weights torch.safetensors --outputs bad
refused 2 'no folder' "$tutti" eval resnet18
refused 2 'did you mean resnet18' "$tutti" eval resnet8 --weights torch.safetensors
refused 1 'no/such' "$tutti" eval $model --weights torch.safetensors --outputs no/such/file
[ ! -e bad ] || complain "something refused left a file"
finish
