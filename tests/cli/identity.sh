#!/usr/bin/env bash
# identity.sh - what a data set is comes from the run or from a file beside the data, never from a
# folder's name: normalization, classes by name, outputs with ids and names in the order of files.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
export TUTTI_DATA=$work/sets

works() { "$@" >out.txt 2>err.txt || complain "$*: $(cat err.txt)"; }
says() { grep -q -- "$1" out.txt || complain "no '$1' in: $(head -c 600 out.txt)"; }
# field KEY FILE: a member of a JSON object, as Python prints it
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' "$@"; }
# loss RUN FLAGS...: likewise
loss() {
    works "$tutti" eval "$@" --json
    field val_loss out.txt
}
# accuracy RUN FLAGS...: of an evaluation
accuracy() {
    works "$tutti" eval "$@" --json
    field val_accuracy out.txt
}

cat >make.py <<'PY'
import os, random, struct, sys, zlib

def npy(path, kind, shape, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape)
    head += " " * (63 - (len(head) + 10) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)

def image(rng, label, side=28):  # a bright bar in one of ten rows
    return bytes(min(255, rng.randrange(90) + (110 if (y * 10) // side == label else 0))
                 for y in range(side) for x in range(side))

def idx(folder, count, classes):
    rng = random.Random(4)
    os.makedirs(folder, exist_ok=True)
    for split, n in (("train", count), ("t10k", count // 2)):
        labels = [i % classes for i in range(n)]
        open(f"{folder}/{split}-images-idx3-ubyte", "wb").write(
            struct.pack(">IIII", 0x803, n, 28, 28) + b"".join(image(rng, y) for y in labels))
        open(f"{folder}/{split}-labels-idx1-ubyte", "wb").write(
            struct.pack(">II", 0x801, n) + bytes(labels))

def arrays(folder, count, classes, names=None):
    rng = random.Random(4)
    os.makedirs(folder, exist_ok=True)
    for split, n in (("train", count), ("test", count // 2)):
        labels = [i % classes for i in range(n)]
        npy(f"{folder}/x_{split}.npy", "|u1", (n, 28, 28), b"".join(image(rng, y) for y in labels))
        npy(f"{folder}/y_{split}.npy", "|u1", (n,), bytes(labels))
    if names:
        open(f"{folder}/classes.txt", "w").write("\n".join(names) + "\n")

def png(path, side, channels, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[y * side * channels:(y + 1) * side * channels] for y in range(side))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" +
        chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2 if channels == 3 else 0, 0, 0, 0)) +
        chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

def pictures(folder, names, count=24, side=12, channels=1):  # class k has the bar of its number
    rng = random.Random(5)
    for name, label in names:
        for split, n in (("train", count), ("test", count // 2)):
            for i in range(n):
                grey = image(rng, 3 * label, side)
                png(f"{folder}/{split}/{name}/{i:03}.png", side, channels,
                    bytes(v for p in grey for v in [p] * channels))

def lines(path, documents):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write("".join(f"{label}\t{text}\n" for label, text in documents))

def reviews(folder, words, count=120):
    rng = random.Random(6)
    stock = {"pos": "fine good lovely", "neg": "bad dull poor", "so": "plain usual fair"}
    for split, n in (("train", count), ("test", count // 2)):
        lines(f"{folder}/{split}.tsv",
              [(name, " ".join(rng.choice(stock[of].split()) for _ in range(3 + i % 4)))
               for i in range(n) for name, of in [words[rng.randrange(len(words))]]])
PY
make() { python3 -c "from make import *; $1" || complain "data were not made: $1"; }

# ---- Normalization ----
make "arrays('foo', 400, 10); arrays('mnist', 400, 10)"
for run in "mlp foo" "mlp mnist"; do
    set -- $run
    works "$tutti" train "$1" --data ./"$2" --epochs 2 --shards 1 --threads 2 --quiet --out "run-$2"
done
same "the folder's name does not count" run-foo run-mnist
[ "$(field normalize run-foo/config.json)" = mean:0.5/std:0.5 ] || complain "config.json has no normalization"
[ "$(grep -o '"data": "[0-9a-f]*"' run-foo/config.json)" = "$(grep -o '"data": "[0-9a-f]*"' run-mnist/config.json)" ] ||
    complain "the fingerprint holds the folder's name"
a=$(loss run-foo --data ./foo) b=$(loss run-foo --data ./mnist)
[ "$a" = "$b" ] || complain "loss $a in one folder, $b in the other"

# A name that tutti knows is that data set, in the usual places.
make "idx('sets/mnist', 400, 10)"
works "$tutti" train mlp --data mnist --epochs 1 --shards 1 --threads 2 --quiet --out named
[ "$(field normalize named/config.json)" = mean:0.1307/std:0.3081 ] || complain "mnist has another normalization"
works "$tutti" data info mnist && says 'normalize    mean:0.1307/std:0.3081' && says 'class 3 '
works "$tutti" data info mnist --json && [ "$(field normalize out.txt)" = mean:0.1307/std:0.3081 ] ||
    complain "no normalization in $(cat out.txt)"
# The same files by their path are a folder like any other, and the run has its own numbers.
works "$tutti" data info ./sets/mnist && says 'normalize    mean:0.5/std:0.5'
[ "$(loss named)" = "$(loss named --data ./sets/mnist)" ] || complain "the run's normalization is not used"
[ "$(loss named)" = "$(loss named --data ./mnist)" ] || complain "arrays and IDX files differ"

# What import wrote beside the data holds for a path, too.
works env TUTTI_DATA="$work/other" "$tutti" data import ./sets/mnist mnist
works "$tutti" data info "$work/other/mnist" && says 'normalize    mean:0.1307/std:0.3081'
mv other/mnist other/digits
works "$tutti" data info "$work/other/digits" && says 'normalize    mean:0.1307/std:0.3081' && says 'MNIST'
works env TUTTI_DATA="$work/third" "$tutti" data import ./other/digits mine
works env TUTTI_DATA="$work/third" "$tutti" data info mine && says 'normalize    mean:0.1307/std:0.3081'
echo '{"normalize": "mean:0.25/std:2"}' >mnist/dataset.json
works "$tutti" data info ./mnist && says 'normalize    mean:0.25/std:2'
echo '{"normalize": "twice"}' >mnist/dataset.json
refused 1 './mnist/dataset.json: normalize: "twice" is none of' "$tutti" data info ./mnist
echo '{"format": "tutti data set", "version": 9}' >mnist/dataset.json
refused 1 './mnist/dataset.json: version 9' "$tutti" data info ./mnist
rm mnist/dataset.json

# --normalize, by word or number; what it makes is recorded, and an evaluation has it.
for how in none:mean:0/std:0.003921569 scale:mean:0/std:1 mnist:mean:0.1307/std:0.3081 \
    mean:0.2/std:0.3:mean:0.2/std:0.3; do
    case $how in mean*) word=mean:0.2/std:0.3 ;; *) word=${how%%:*} ;; esac
    works "$tutti" train mlp --data ./foo --normalize $word --epochs 1 --steps 2 --quiet --overwrite --out word
    [ "$(field normalize word/config.json)" = "${how#"$word":}" ] ||
        complain "--normalize $word is $(field normalize word/config.json)"
done
works "$tutti" train mlp --data ./foo --normalize dataset --epochs 2 --shards 1 --threads 2 --quiet --out own
python3 - "$(field normalize own/config.json)" <<'PY' || complain "the measured normalization"
import re, sys
data = open("foo/x_train.npy", "rb").read()[-400 * 784:]
mean = sum(data) / len(data) / 255
deviation = (sum((p / 255 - mean) ** 2 for p in data) / len(data)) ** 0.5
got = re.fullmatch(r"mean:([0-9.]+)/std:([0-9.]+)", sys.argv[1])
assert abs(float(got[1]) - mean) < 1e-6 and abs(float(got[2]) - deviation) < 1e-6, (sys.argv[1], mean, deviation)
PY
a=$(loss own) b=$(loss own --data ./mnist)
[ "$a" = "$b" ] || complain "the run's measured normalization: $a, then $b"
a=$(loss own --normalize none)
[ "$a" != "$b" ] || complain "eval --normalize does nothing"
grep -q 'mean:0.5/std:0.5' run-foo/report.html || complain "the report does not show the normalization"
refused 2 '\-\-normalize twice: ' "$tutti" train mlp --data ./foo --normalize twice --out never
refused 2 '3 channels' "$tutti" train mlp --data ./foo --normalize imagenet --out never
refused 2 '\-\-normalize mean:1,2/std:1' "$tutti" train mlp --data ./foo --normalize mean:1,2/std:1 --out never
refused 2 'greater than 0' "$tutti" train mlp --data ./foo --normalize mean:0/std:0 --out never
refused 2 'divide' "$tutti" train mlp --data ./foo --normalize mean:123.7/std:58.4 --out never
refused 2 'images' "$tutti" train logistic --data ./foo.csv --normalize scale --out never
refused 2 'goes on with what it began with' "$tutti" train --resume run-foo --epochs 3 --normalize scale
works "$tutti" train --resume run-foo --epochs 3 --quiet

# Runs of older versions had it by the name of their data's folder, and have it still.
for run in named run-mnist; do
    cp -r $run old-$run && rm -f old-$run/classes.txt
    sed -i -e '/"normalize":/d' -e '/"sample":/d' old-$run/config.json
done
[ "$(loss named)" = "$(loss old-named)" ] || complain "an older run of mnist has lost its normalization"
[ "$(loss named --data ./foo)" = "$(loss old-named --data ./foo)" ] || complain "an older run takes it from other data"
[ "$(loss run-mnist --normalize mnist)" = "$(loss old-run-mnist)" ] || complain "an older run in a folder of that name"
[ "$(loss run-mnist --normalize mnist)" = "$(loss old-run-mnist --data ./foo)" ] || complain "or on other data"

# ---- Classes by name ----
make "pictures('pets', [('cat', 0), ('dog', 1), ('owl', 2)])"
make "pictures('turned', [('dog', 1), ('cat', 0), ('owl', 2)]); pictures('few', [('owl', 2), ('dog', 1)])"
make "pictures('one', [('owl', 2)]); pictures('renamed', [('cat', 0), ('wolf', 1), ('owl', 2)])"
make "pictures('colour', [('cat', 0), ('dog', 1), ('owl', 2)], 4, 12, 3)"
make "arrays('letters', 60, 3, ['owl', 'cat', 'dog']); arrays('numbers', 60, 3)"
works "$tutti" train mlp --data ./pets --epochs 15 --batch 12 --lr 0.1 --quiet --out pets-run
[ "$(cat pets-run/classes.txt)" = "$(printf 'cat\ndog\nowl')" ] || complain "classes.txt: $(cat pets-run/classes.txt)"
for other in pets turned few one; do
    [ "$(accuracy pets-run --data ./$other)" = 1 ] || complain "$other: $(cat out.txt)"
done
works "$tutti" eval pets-run --data ./one --json
[ "$(field confusion out.txt)" = '[[0, 0, 0], [0, 0, 0], [0, 0, 12]]' ] || complain "one class: $(cat out.txt)"
refused 1 './renamed: class wolf is none of the run.s: cat, dog, owl' "$tutti" eval pets-run --data ./renamed
refused 1 'have 3 channels, the run.s had 1' "$tutti" eval pets-run --data ./colour
make "pictures('larger', [('cat', 0), ('dog', 1), ('owl', 2)], 4, 16)"
refused 1 './larger: images are 16 x 16, the run.s were 12 x 12, and mlp takes that size alone' "$tutti" eval pets-run --data ./larger
works "$tutti" train resnet18 --width 2 --data ./pets --steps 1 --batch 8 --quiet --out any-size
works "$tutti" eval any-size --data ./larger
grep -q './larger: images are 16 x 16' err.txt || complain "another size is not told: $(cat err.txt)"
# Stages of a pipeline have no answers, and their run has the names all the same.
works "$tutti" train mlp --data ./pets --steps 1 --batch 8 --strategy pipeline -n 2 --quiet --out stages
[ "$(cat stages/classes.txt)" = "$(cat pets-run/classes.txt)" ] || complain "a pipeline's run has no classes"
# Labels that are numbers without names are positions; with names they go by these.
works "$tutti" train cnn --data ./letters --epochs 1 --quiet --out letters-run
works "$tutti" eval letters-run --data ./numbers --json
[ "$(wc -l <err.txt)" = 1 ] &&
    grep -q './numbers: its classes are numbers without names and are taken in the order of the run.s: 0 is owl, 1 is cat, 2 is dog$' err.txt ||
    complain "classes by position are not told once: $(cat err.txt)"
[ "$(field class_names out.txt)" = "['owl', 'cat', 'dog']" ] || complain "positions: $(cat out.txt)"
make "arrays('turned-letters', 60, 3, ['cat', 'dog', 'owl'])"
works "$tutti" eval letters-run --data ./turned-letters --json
python3 - <<'PY' || complain "labels with names go by their positions"
import json
a, b = json.load(open("out.txt")), None
assert a["class_names"] == ["owl", "cat", "dog"] and [sum(r) for r in a["confusion"]] == [10, 10, 10]
PY
refused 1 './foo: labels go up to 9, the run has 3 classes: owl, cat, dog' "$tutti" eval letters-run --data ./foo
works "$tutti" train cnn --data ./numbers --epochs 1 --quiet --out numbers-run
works "$tutti" eval numbers-run --data ./letters
[ ! -s err.txt ] || complain "the run's classes are numbers: $(cat err.txt)"
works "$tutti" eval letters-run --data ./letters
[ ! -s err.txt ] || complain "classes of one name: $(cat err.txt)"
make "pictures('strangers', [('cat', 0), ('dog', 1)], 4, 28)"
refused 1 './strangers: class cat is none of the run.s: 0, 1, 2' "$tutti" eval numbers-run --data ./strangers
works "$tutti" train --resume letters-run --epochs 2 --data ./turned-letters --quiet
[ "$(cat letters-run/classes.txt)" = "$(printf 'owl\ncat\ndog')" ] || complain "a resumed run has other classes"

# A graph file has the classes and the normalization of the data that it was written for.
works "$tutti" graph mlp --data ./pets --normalize mean:0.4/std:0.3 --format json
cp out.txt pets.json
works "$tutti" train pets.json --data ./few --steps 2 --batch 8 --quiet --out few-run
[ "$(cat few-run/classes.txt)" = "$(cat pets-run/classes.txt)" ] || complain "a graph file: classes $(cat few-run/classes.txt)"
[ "$(field normalize few-run/config.json)" = mean:0.4/std:0.3 ] || complain "a graph file: $(field normalize few-run/config.json)"
works "$tutti" train pets.json --data ./few --normalize scale --steps 2 --batch 8 --quiet --out scaled-run
[ "$(field normalize scaled-run/config.json)" = mean:0/std:1 ] || complain "a graph file goes before --normalize"
refused 1 './renamed: class wolf is none of the run.s: cat, dog, owl' "$tutti" train pets.json --data ./renamed --out never
weights=$(ls -d pets-run/checkpoint/step-* | tail -1)/weights.safetensors
[ "$(accuracy pets.json --weights "$weights" --normalize mean:0.5/std:0.5 --data ./few)" = 1 ] ||
    complain "weights with a graph file: $(cat out.txt)"
sed 's/"owl"\]/"owl", "ox"]/' pets.json >wrong.json
refused 1 'class_names is no list of a name for each class' "$tutti" train wrong.json --data ./pets --out never
sed 's/"owl"\]/"o\\nwl"]/' pets.json >wrong.json
refused 1 'class_names: a name has several lines' "$tutti" train wrong.json --data ./pets --out never

# Text likewise.
make "reviews('words', [('neg', 'neg'), ('pos', 'pos')]); reviews('praise', [('pos', 'pos')])"
make "reviews('three', [('neg', 'neg'), ('pos', 'pos'), ('so', 'so')]); reviews('shifted', [('a', 'neg'), ('pos', 'pos')])"
works "$tutti" train nbow --data ./words --epochs 30 --lr 0.5 --batch 16 --quiet --out words-run
works "$tutti" train nbow --data ./three --epochs 30 --lr 0.5 --batch 16 --quiet --out three-run
[ "$(field class_names words-run/summary.json)" = "['neg', 'pos']" ] || complain "classes of text: $(field class_names words-run/summary.json)"
works "$tutti" eval words-run && says '^  pos '
[ "$(accuracy words-run)" = 1 ] || complain "reviews are not learned"
[ "$(accuracy words-run --data ./praise)" = 1 ] || complain "one class of two: $(cat out.txt)"
[ "$(accuracy three-run --data ./words)" = 1 ] || complain "two classes of three: $(cat out.txt)"
make "reviews('bits', [('0', 'neg'), ('1', 'pos')])"
[ "$(accuracy words-run --data ./bits)" = 1 ] && [ "$(grep -c './bits: its classes are numbers.* 0 is neg, 1 is pos$' err.txt)" = 1 ] ||
    complain "texts with numbers for labels: $(cat err.txt)"
refused 1 './shifted: class a is none of the run.s: neg, pos' "$tutti" eval words-run --data ./shifted
refused 1 'all labels are the same' "$tutti" train nbow --data ./praise --out never

# ---- Outputs: in the order of the files, with ids, and with the names of classes ----
cat >outputs.py <<'PY'
import csv, json, math, struct

def tensors(path):
    raw = open(path, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    notes = header.pop("__metadata__")
    kinds = {"F32": "f", "I32": "i"}
    got = {k: struct.unpack(f"<{math.prod(v['shape'])}{kinds[v['dtype']]}", data[slice(*v["data_offsets"])])
           for k, v in header.items()}
    return got, {k: json.loads(v) for k, v in notes.items()}

def check(name, classes, ids, labels):
    got, notes = tensors(name + ".safetensors")
    assert notes["classes"] == classes, notes
    assert notes["ids"] == ids, (notes["ids"][:5], ids[:5])
    assert [classes[y] for y in got["labels"]] == labels
    rows = list(csv.reader(open(name + ".csv")))
    assert rows[0] == ["id", "label", "answer"] + classes, rows[0]
    assert [r[0] for r in rows[1:]] == ids and [r[1] for r in rows[1:]] == labels
    n = len(classes)
    for i, row in enumerate(rows[1:]):
        own = got["outputs"][n * i:n * i + n]
        assert all(abs(float(a) - b) <= 1e-6 * abs(b) for a, b in zip(row[3:], own)), (row, own)
        assert row[2] == classes[max(range(n), key=lambda c: own[c])]
    return rows
PY
outputs() {
    local name=$1
    shift
    works "$tutti" eval "$@" --outputs $name.safetensors
    works "$tutti" eval "$@" --outputs $name.csv
}
outputs words words-run
outputs turned pets-run --data ./turned
outputs numbers letters-run --data ./numbers
python3 - <<'PY' || complain "outputs, their ids, labels or order"
from outputs import check
lines = [l.rstrip("\n").split("\t") for l in open("words/test.tsv")]
check("words", ["neg", "pos"], [str(i + 1) for i in range(len(lines))], [l[0] for l in lines])
check("turned", ["cat", "dog", "owl"], [f"test/{c}/{i:03}.png" for c in ("cat", "dog", "owl") for i in range(12)],
      [c for c in ("cat", "dog", "owl") for i in range(12)])
check("numbers", ["owl", "cat", "dog"], [str(i) for i in range(30)], [["owl", "cat", "dog"][i % 3] for i in range(30)])
PY
# A table: what its column id has, else the number of the line; of one file some lines are for testing.
python3 - <<'PY'
import random
rng = random.Random(7)
def write(path, count, names, ids):
    with open(path, "w") as out:
        out.write(("Id," if ids else "") + "a,b,sort\n")
        for i in range(count):
            k = rng.randrange(len(names))
            out.write((f'"p {count - i}",' if ids else "") + f"{(names[k] == 'ill') + rng.random() / 3:.3f},{rng.random():.3f},{names[k]}\n")
import os
os.makedirs("patients", exist_ok=True)
write("patients/train.csv", 200, ["well", "ill"], True)
write("patients/test.csv", 50, ["ill", "well"], True)
write("rows.csv", 100, ["well", "ill"], False)
PY
works "$tutti" train logistic --data ./patients --skip-columns Id --epochs 30 --quiet --out patients-run
works "$tutti" train logistic --data ./rows.csv --epochs 3 --quiet --out rows-run
outputs patients patients-run
outputs lines rows-run
python3 - <<'PY' || complain "outputs of tables"
import csv
from outputs import check, tensors
rows = list(csv.reader(open("patients/test.csv")))[1:]
classes = tensors("patients.safetensors")[1]["classes"]
assert sorted(classes) == ["ill", "well"], classes
got = check("patients", classes, [r[0] for r in rows], [r[-1] for r in rows])
assert sum(r[1] == r[2] for r in got[1:]) > 40
rows = [l.strip().split(",") for l in open("rows.csv")]
ids = tensors("lines.safetensors")[1]["ids"]
assert 15 < len(ids) < 25 and ids == sorted(ids, key=int)
check("lines", tensors("lines.safetensors")[1]["classes"], ids, [rows[int(i) - 1][-1] for i in ids])
PY
finish
