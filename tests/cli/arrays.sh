#!/usr/bin/env bash
# arrays.sh - image data as arrays: where channels are is said or asked for, and one class is nothing to learn.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

python3 - <<'PY'
import os, random, struct
random.seed(3)
def array(path, shape, descr, data):
    head = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n" % (descr, "".join(f"{d}, " for d in shape))).encode()
    open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
def arrays(name, shape, labels, tested=None, top=256):
    os.mkdir(name)
    for split, label in (("train", labels), ("test", tested or labels)):
        size = len(label)
        for d in shape:
            size *= d
        array(f"{name}/x_{split}.npy", (len(label), *shape), "|u1", bytes(random.randrange(top) for _ in range(size)))
        array(f"{name}/y_{split}.npy", (len(label),), "<i8", b"".join(struct.pack("<q", l) for l in label))
def idx(name, size, labels):
    os.mkdir(name)
    for split in ("train", "t10k"):
        open(f"{name}/{split}-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, len(labels), size, size) + bytes(random.randrange(256) for _ in range(len(labels) * size * size)))
        open(f"{name}/{split}-labels-idx1-ubyte", "wb").write(struct.pack(">II", 0x801, len(labels)) + bytes(labels))
two = [i % 2 for i in range(32)]
arrays("open", (1, 13, 3), two)
arrays("last", (5, 4, 3), two)
arrays("grey", (28, 28), two)
arrays("from1", (8, 8), [1 + l for l in two])
arrays("unseen", (8, 8), two, [0, 1, 2, 2])
arrays("one", (28, 28), [3] * 32)
arrays("dark", (8, 8), two, top=2)
idx("idx", 28, two)
idx("idx-one", 28, [0] * 32)
open("one.tsv", "w").write("good\tsome words\n" * 8)
PY
short="--epochs 1 --batch 8 --threads 1 --quiet"

# A shape that leaves open where channels are.
warns() { # PATTERN COMMAND...: one warning
    local pattern=$1
    shift
    "$@" 2>err.txt >out.txt || complain "$*: $(cat err.txt)"
    [ "$(wc -l <err.txt)" = 1 ] && grep -q "^warning: .*$pattern" err.txt || complain "no '$pattern' alone: $*: $(cat err.txt)"
}
silent() {
    "$@" 2>err.txt >out.txt || complain "$*: $(cat err.txt)"
    [ ! -s err.txt ] || complain "$*: $(cat err.txt)"
}
# shellcheck disable=SC2086 # words
{
    warns 'x_train.npy: has shape 32x1x13x3.*read as nchw, images of 1x13x3.*--layout' "$tutti" train mlp --data ./open $short --out found
    silent "$tutti" train mlp --data ./open --layout nchw $short --out nchw
    silent "$tutti" train mlp --data ./open --layout nhwc $short --out nhwc
    silent "$tutti" train mlp --data ./last $short --out last
    silent "$tutti" train mlp --data ./last --layout nhwc $short --out last-nhwc
}
same "the layout that is assumed" found nchw
same "the layout that a shape says" last last-nhwc
grep -q '"layout": "nhwc"' nhwc/config.json || complain "the layout is not in config.json"
silent "$tutti" eval nhwc
silent "$tutti" train --resume nhwc --epochs 2 --quiet
refused 1 'images are 5 x 4, the run.s were 1 x 13' "$tutti" eval nhwc --data ./last
warns 'read as nchw' "$tutti" data info ./open
silent "$tutti" data info ./open --layout nhwc
grep -q 'sample *3x1x13' out.txt || complain "data info --layout: $(cat out.txt)"
TUTTI_DATA=$work/store silent "$tutti" data import ./open mine --layout nhwc
TUTTI_DATA=$work/store silent "$tutti" data info mine
grep -q 'sample *3x1x13' out.txt || complain "an import with --layout: $(cat out.txt)"
refused 2 '--layout chw: nchw or nhwc' "$tutti" train mlp --data ./open --layout chw
refused 2 'as nchw it has 5 channels' "$tutti" train mlp --data ./last --layout nchw
refused 2 'without a dimension of channels' "$tutti" train mlp --data ./grey --layout nchw
refused 2 '--layout is for images in NumPy arrays' "$tutti" train mlp --data ./idx --layout nchw
refused 2 '--layout is for images in NumPy arrays' "$tutti" data import ./idx other --layout nchw
refused 2 '--layout is for images in NumPy arrays' "$tutti" train textcnn --data one.tsv --layout nchw
refused 2 'data list takes no --layout: it is a flag of data info and import' "$tutti" data list --layout nchw

# One class: refused where labels are learnt, not where images are.
refused 2 'one: all of its 32 training samples are of one class (3).*other labels in y_train.npy' "$tutti" train mlp --data ./one
refused 2 'idx-one: all of its 32 training samples are of one class (0)' "$tutti" train mlp --data ./idx-one
refused 2 'all of its 32 training samples are of one class' "$tutti" fed simulate mlp --data ./one -p 2 --rounds 1
# shellcheck disable=SC2086 # words
silent "$tutti" train conv_autoencoder --data ./one $short --out autoencoder
silent "$tutti" eval last --data ./last # two classes
silent "$tutti" train mlp --data ./grey --epochs 1 --batch 8 --threads 1 --quiet --out grey-run
silent "$tutti" eval grey-run --limit 1
# shellcheck disable=SC2086 # words
{
    warns 'the first 2 training samples (--limit) are all of one class (3)' "$tutti" train mlp --data ./one --limit 2 --batch 2 --epochs 1 --quiet --out limited
    warns 'no sample has label 0' "$tutti" train mlp --data ./from1 $short --out from1-run
    warns 'dark/x_train.npy: its pixels are 0 or 1' "$tutti" train mlp --data ./dark $short --out dark-run
    warns '1 of 3 classes (the first: 2) have no training sample, but 2 for testing' "$tutti" train mlp --data ./unseen $short --out unseen-run
}
if python3 -c "import zlib" 2>/dev/null; then
    python3 - <<'PY'
import os, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(path, value):
    rows = b"".join(b"\0" + bytes([value]) * 8 for _ in range(8))
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
for split in ("train", "test"):
    os.makedirs(f"images/{split}/cats")
    for i in range(8):
        png(f"images/{split}/cats/{i}.png", i)
PY
    "$tutti" data info ./images >/dev/null 2>err.txt
    if grep -q 'built without' err.txt; then leave_out "images: built without libpng"; else
        refused 2 'one class (cats).*a second folder' "$tutti" train mlp --data ./images
    fi
fi
finish
