# lib.sh - for the scripts in this folder: $1 is the program, $2 the root of the sources.
set -uo pipefail
tutti=$1 root=$2
work=$(mktemp -d)
trap 'pkill -KILL -P $$ 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
# Data sets that lie on this machine are hidden, so that no script relies on them unnoticed: it sees those of Debian's
# packages, and those that it asks for.
hidden_data=("${TUTTI_DATA:-}" "$HOME/.local/share/tutti")
unset TUTTI_DATA
export HOME=$work # nobody's own tables and data
failures=0

complain() { echo "FAILED: $*"; failures=$((failures + 1)); }
finish() { [ $failures = 0 ] && echo "all as expected"; exit $((failures > 0)); }
skip() { echo "skipped: $*"; exit 77; }

# leave_out TEXT: a part of this script that cannot run here; script/test counts such lines
leave_out() { echo "left out: $*"; }

# has_data NAME: whether the data set is on this machine; from then on the script sees it
has_data() {
    local place name shown=$HOME/.local/share/tutti
    for place in "${hidden_data[@]}"; do
        for name in "$1" "${1/-/}"; do # the folder of cifar-10 may be cifar10
            [ -n "$place" ] && [ -d "$place/$name" ] && [ ! -e "$shown/$1" ] || continue
            mkdir -p "$shown" && ln -s "$place/$name" "$shown/$1"
        done
    done
    "$tutti" data info "$1" >/dev/null 2>&1
}
need_data() { has_data "$1" || skip "data set $1 is not here"; }

# Made-up data: enough to see that bits are the same, too little to learn anything.
# sentences SEED COUNT: lines of 3 to 22 words of a vocabulary of 40
sentences() {
    awk -v seed="$1" -v count="$2" 'BEGIN {
        for (i = 0; i < count; i++) {
            line = ""
            for (n = 3 + i % 20; n > 0; n--) {
                seed = (seed * 16807) % 2147483647
                line = line "w" seed % 40 " "
            }
            print line
        }
    }'
}
# pairs DIR COUNT: a folder of sentences in two languages
pairs() {
    local split
    mkdir "$1"
    for split in train val; do
        sentences 7 "$2" >"$1/$split.de"
        sentences 8 "$2" >"$1/$split.en"
    done
}
# colours DIR COUNT: a folder of CIFAR-10's binary files, COUNT images for training and 40 for testing
colours() {
    command -v python3 >/dev/null || skip "no python3"
    python3 - "$1" "$2" <<'PY'
import os, random, sys
folder, count = sys.argv[1], int(sys.argv[2])
rng = random.Random(5)
def image():
    label = rng.randrange(10)
    return bytes([label]) + bytes(min(255, rng.randrange(120) + 13 * label) for _ in range(3072))
os.mkdir(folder)
for name, n in [(f"data_batch_{i + 1}", count // 5) for i in range(5)] + [("test_batch", 40)]:
    with open(f"{folder}/{name}.bin", "wb") as f:
        f.write(b"".join(image() for _ in range(n)))
PY
}
# hash DIR: the weights of a run
hash() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }
# refused CODE PATTERN COMMAND...: exits with CODE, one line on standard error, which matches
refused() {
    local code=$1 pattern=$2 got lines
    shift 2
    "$@" >out.txt 2>err.txt
    got=$?
    lines=$(wc -l <err.txt)
    [ $got = "$code" ] || complain "exit $got instead of $code: $*: $(cat err.txt)"
    [ "$lines" = 1 ] || complain "$lines lines instead of one: $*: $(cat err.txt)"
    grep -q "^tutti: .*$pattern" err.txt || complain "no '$pattern': $*: $(cat err.txt)"
}
# limit_ms RANKS: two seconds, and more where others keep this machine busy
limit_ms() {
    local load rest busy
    read -r load rest </proc/loadavg
    busy=$(((10#${load/./} - 100 * $1) / (100 * $(nproc))))
    echo $((2000 * (busy > 0 ? 1 + busy : 1)))
}
# same TEXT DIR DIR...: all runs have the same weights
same() {
    local what=$1 first=$2 dir
    shift
    for dir in "$@"; do
        [ -n "$(hash "$dir")" ] && [ "$(hash "$dir")" = "$(hash "$first")" ] ||
            complain "$what: $dir has weights $(hash "$dir"), $first has $(hash "$first")"
    done
}
