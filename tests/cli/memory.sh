#!/usr/bin/env bash
# memory.sh - data takes little more memory than it has bytes; what cannot fit is refused at once.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "python3 is not here"

# measured COMMAND...: out.txt, err.txt, and in $code, $peak_kb and $cpu_ms what the command took
measured() {
    read -r code peak_kb cpu_ms < <(python3 - "$@" <<'PY'
import resource, subprocess, sys
with open("out.txt", "w") as out, open("err.txt", "w") as err:
    code = subprocess.call(sys.argv[1:], stdout=out, stderr=err)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, used.ru_maxrss, int(1000 * (used.ru_utime + used.ru_stime)))
PY
    )
}

# images COUNT SIDE FOLDER: NumPy arrays of random images, channels innermost
images() {
    mkdir -p "$3"
    python3 - "$@" <<'PY'
import os, sys
count, side, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def save(name, kind, shape, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape)
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    with open(f"{folder}/{name}", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data)
for split, n in (("train", count), ("test", 20)):
    save(f"x_{split}.npy", "|u1", (n, side, side, 3), os.urandom(n * side * side * 3))
    save(f"y_{split}.npy", "|u1", (n,), bytes(i % 10 for i in range(n)))
PY
}

images 20 32 small
measured "$tutti" data info ./small
[ "$code" = 0 ] || complain "a small folder: $(cat err.txt)"
base_kb=$peak_kb

# 48 MB of images with channels innermost are there once.
images 16000 32 hwc
measured "$tutti" bench data ./hwc --batch 10 --threads 1 --windows 1
[ $((peak_kb - base_kb)) -lt 72000 ] || complain "48 MB of images took $((peak_kb - base_kb)) KB"
[ "$code" = 0 ] || complain "48 MB of images: $(cat err.txt)"

# A program that waits for long says so, once where no terminal is.
TUTTI_NOTICE_AFTER=0 measured "$tutti" data info ./hwc
[ "$(grep -c 'x_train.npy: [0-9]*% after' err.txt)" = 1 ] || complain "no notice: $(cat err.txt)"

# 8 GB of images, a file without blocks, are refused before memory is asked for.
mkdir large && cp hwc/?_test.npy large
python3 - <<'PY'
n, side = 2700000, 32
def save(name, kind, shape, size):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape)
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    with open("large/" + name, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
        file.truncate(10 + len(head) + size)
save("x_train.npy", "|u1", (n, side, side, 3), n * side * side * 3)
save("y_train.npy", "|u1", (n,), n)
PY
(ulimit -v 14000000; measured "$tutti" data info ./large
 [ "$code" = 1 ] && [ "$peak_kb" -lt 200000 ] && [ "$cpu_ms" -lt 2000 ] &&
    grep -q '^tutti: .*x_train.npy: turning .* needs about 8.29 GB of memory, .* are left' err.txt) ||
    complain "images without room: $(cat err.txt)"
rm -r large

tiny='--steps 1 --batch 1 --length 8 --layers 1 --heads 1 --width 8 --limit 20'
# 16 MB of text, a token a character: 5 bytes a byte and not 12.
python3 -c '
line = "the quick brown fox jumps over the lazy dog and runs through the forest\n"
open("text.txt", "w").write(line * (16000000 // len(line)))'
# shellcheck disable=SC2086
measured "$tutti" train gpt --data ./text.txt $tiny --out text
head -c 100000 text.txt >short.txt
text_kb=$peak_kb
# shellcheck disable=SC2086
measured "$tutti" train gpt --data ./short.txt $tiny --out short
[ $((text_kb - peak_kb)) -lt 110000 ] || complain "16 MB of text took $((text_kb - peak_kb)) KB"

# Samples that are too many for any memory are refused before a batch is made.
for command in "train mlp --data ./small" "bench train mlp" "bench train logistic"; do
    # shellcheck disable=SC2086
    (ulimit -v 6000000; measured "$tutti" $command --batch 1000000000
     [ "$code" = 1 ] && grep -q '^tutti: .*\(does not fit\|are left\)' err.txt &&
         [ "$peak_kb" -lt 400000 ] && [ "$cpu_ms" -lt 2000 ]) ||
        complain "$command of 1e9 samples: $(cat err.txt)"
done
(ulimit -v 6000000; measured "$tutti" plan mlp -n 2 --batch 1000000000
 [ "$peak_kb" -lt 400000 ] && [ "$cpu_ms" -lt 5000 ]) ||
    complain "a plan for 1e9 samples: $(cat err.txt)"

mkdir reviews
for split in train test; do printf 'pos\tgood film\nneg\tbad film\n' >reviews/$split.tsv; done
measured "$tutti" train nbow --data ./reviews --batch 1000000000
grep -q '^tutti: .*a shard has [0-9]* ids, at most [0-9]* can be sorted: use a smaller --batch or more --shards' err.txt ||
    complain "a text of 1e9 samples: $(cat err.txt)"

# So is a model, without a search for what would have room that takes minutes.
(ulimit -v 6000000; measured "$tutti" train gpt --data ./short.txt --width 16384 --heads 16 --layers 48
 [ "$code" = 1 ] && grep -q '^tutti: gpt with single does not fit' err.txt &&
     [ "$cpu_ms" -lt 2500 ]) ||
    complain "gpt of width 16384: $(cat err.txt)"
(ulimit -v 6000000; measured timeout 60 "$tutti" train gpt --data ./short.txt --width 16384 --heads 16 \
    --layers 48 -n 4 --strategy pipeline
 [ "$code" = 1 ] && grep -q '^tutti: gpt with pipeline does not fit' err.txt &&
     [ "$cpu_ms" -lt 5000 ]) ||
    complain "gpt of width 16384 in a pipeline: $(cat err.txt)"

finish
