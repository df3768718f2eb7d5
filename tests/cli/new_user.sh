#!/usr/bin/env bash
# new_user.sh - what a new user does with data of their own: folders of PNG images, a table with times, labelled text. Each is
# learnt; copies in another order are evaluated alike; a run that is killed at any moment ends with the same weights; a run's
# folder may be moved. TUTTI_TEST_SEED chooses the moments, TUTTI_NEW_USER_KILLS how many a run is killed at least (2).
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
seed=${TUTTI_TEST_SEED:-$$}
RANDOM=$seed

# In each of the three the label is easily told, so that whatever is below 0.99 was not learnt. The copies have the same
# samples: files and folders made in the opposite order under names that sort the other way, lines and columns in another one.
python3 - <<'PY'
import os, random, struct, zlib
rng = random.Random(11)
def png(path, rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    size = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
KINDS = ["bear", "cat", "dog"] # each has a colour
for split, count in (("train", 40), ("test", 15)):
    for k, kind in enumerate(KINDS):
        for i in range(count):
            rows = [[rng.randrange(100) + 140 * (c == k) for x in range(12) for c in range(3)] for y in range(12)]
            for folder, number in (("data/pets", i), ("data/pets-again", count - i)):
                os.makedirs(f"{folder}/{split}/{kind}", exist_ok=True)
                png(f"{folder}/{split}/{kind}/{number:03d}.png", rows)
            if kind != "bear": # two of the classes, which would have other numbers by themselves
                os.makedirs(f"data/pets-some/{split}/{kind}", exist_ok=True)
                png(f"data/pets-some/{split}/{kind}/{i}.png", rows)

def table(folder, split, header, rows, order):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{split}.csv", "w") as f:
        for row in [header] + rows:
            print(",".join(str(row[i]) for i in order), file=f)
def text(folder, split, lines):
    os.makedirs(folder, exist_ok=True)
    open(f"{folder}/{split}.tsv", "w").write("".join(lines))
SWITCH = 1_700_000_000 # orders are some minutes earlier or later; floats of this size lie 128 seconds apart
for split, count in (("train", 400), ("test", 120)):
    rows = []
    for i in range(count):
        far = rng.randrange(30, 400)
        late = i % 2
        rows.append([SWITCH + far if late else SWITCH - far, f"{rng.random():.3f}", rng.choice(["red", "blue"]), ["early", "late"][late]])
    header = ["seen_at", "weight", "colour", "when"]
    table("data/orders", split, header, rows, [0, 1, 2, 3])
    table("data/orders-again", split, header, rows[::-1], [2, 3, 0, 1])
    lines = []
    for i in range(count):
        words = [f"w{rng.randrange(60)}" for _ in range(rng.randrange(4, 12))] + [["good", "bad"][i % 2]]
        rng.shuffle(words)
        lines.append(["pos", "neg"][i % 2] + "\t" + " ".join(words) + "\n")
    text("data/reviews", split, lines)
    text("data/reviews-again", split, lines[::-1])
PY

images=(mlp --data ./data/pets --epochs 4 --batch 20 --lr 0.05)
orders=(logistic --data ./data/orders --label when --epochs 12 --batch 20 --lr 0.1)
reviews=(nbow --data ./data/reviews --epochs 8 --batch 20 --optimizer adam --lr 0.02)
accuracy() { sed -n 's/.*"val_accuracy": \([0-9.]*\).*/\1/p' "$1" | head -1; }

# evaluated NAME DATA WHAT: eval of run NAME on DATA, or on what it was trained on; the accuracy must be that of the run
evaluated() {
    "$tutti" eval "$1" ${2:+--data "$2"} --json >eval.json 2>eval.err || { complain "$3: $(tail -1 eval.err)"; return; }
    [ "$(accuracy eval.json)" = "$(accuracy "$1/summary.json")" ] ||
        complain "$3: accuracy $(accuracy eval.json), the run has $(accuracy "$1/summary.json")"
}
# go_on SECONDS DIR ARGUMENTS...: as a user does who knows only that it did not end: resume, or begin again where that is refused
# because nothing was saved yet; killed after SECONDS, if that is not 0
go_on() {
    local limit=(timeout --signal=KILL "$1") code
    [ "$1" != 0 ] || limit=()
    ("${limit[@]}" "$tutti" train --resume "$2" --quiet; exit $?) 2>resume.err && return
    code=$?
    [ $code != 137 ] || return $code
    ! compgen -G "$2/checkpoint/step-*" >/dev/null || { complain "$2: resume: $(tail -1 resume.err)"; return 1; }
    rm -rf "$2"
    ("${limit[@]}" "$tutti" train "${@:3}" --quiet --out "$2"; exit $?) 2>resume.err
}
for name in images orders reviews; do
    declare -n args=$name
    run=("${args[@]}" --seed 3 --shards 2 --threads 1 --checkpoint-every 3)
    began=${EPOCHREALTIME/./}
    "$tutti" train "${run[@]}" --quiet --out "$name" 2>train.err || { complain "$name: $(tail -1 train.err)"; continue; }
    echo "$name: accuracy $(accuracy "$name/summary.json")"
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
    awk -v reached="$(accuracy "$name/summary.json")" 'BEGIN { exit !(reached >= 0.99) }' ||
        complain "$name: accuracy $(accuracy "$name/summary.json"): it learnt too little"

    data=${args[2]}
    evaluated "$name" "" "$name"
    evaluated "$name" "$data-again" "$name in another order"

    # Killed at random moments of the time that it takes, then finished.
    kills=0 tries=0
    while [ $kills -lt "${TUTTI_NEW_USER_KILLS:-2}" ] && [ $tries -lt 20 ]; do
        tries=$((tries + 1))
        ms=$((RANDOM * took / 32768 + 1))
        [ ! -e "$name-killed/summary.json" ] || rm -rf "$name-killed"
        go_on "$((ms / 1000)).$(printf %03d $((ms % 1000)))" "$name-killed" "${run[@]}"
        [ $? != 137 ] || kills=$((kills + 1))
    done
    [ -e "$name-killed/summary.json" ] || go_on 0 "$name-killed" "${run[@]}" || complain "$name: does not end: $(tail -1 resume.err)"
    same "$name, killed $kills times" "$name" "$name-killed"
    # Killed behind the last checkpoint, when only what tells about the run was missing.
    cp -r "$name" "$name-last"
    rm "$name-last/summary.json" "$name-last/report.html"
    "$tutti" train --resume "$name-last" --quiet 2>resume.err || complain "$name: resume behind the last checkpoint: $(tail -1 resume.err)"
    same "$name, resumed behind the last checkpoint" "$name" "$name-last"
    [ -s "$name-last/report.html" ] || complain "$name: no report behind the last checkpoint"
    # Ended after some steps, then at its length.
    "$tutti" train "${run[@]}" --steps 7 --quiet --out "$name-short" && "$tutti" train --resume "$name-short" --steps 0 --quiet ||
        complain "$name: from step 7 on"
    same "$name from step 7 on" "$name" "$name-short"

    # Moved, and looked at from elsewhere; what it was trained on stays where it was.
    mkdir -p elsewhere/beside && mv "$name" "elsewhere/$name"
    cd elsewhere/beside || exit 1
    evaluated "$work/elsewhere/$name" "" "$name, moved"
    cd "$work" || exit 1
done

# Run and data both moved: the old places are no longer needed.
mv data elsewhere/data
for name in images orders reviews; do
    declare -n args=$name
    evaluated "elsewhere/$name" "elsewhere/${args[2]#./}" "$name, moved with its data"
done

# Images of some of the classes: told with the numbers of the run's classes, or refused.
if "$tutti" eval elsewhere/images --data elsewhere/data/pets-some --json >eval.json 2>eval.err; then
    [ "$(accuracy eval.json)" = 1 ] || complain "some of the classes: accuracy $(accuracy eval.json)"
else
    [ "$(wc -l <eval.err)" = 1 ] && grep -q 'class' eval.err || complain "some of the classes: $(cat eval.err)"
fi
[ $failures = 0 ] || echo "moments of TUTTI_TEST_SEED=$seed"
finish
