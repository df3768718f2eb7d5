# lib.sh - for the scripts in this folder: $1 is the program, $2 the root of the sources.
set -uo pipefail
tutti=$1 root=$2
work=$(mktemp -d)
trap 'pkill -KILL -P $$ 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
export HOME=$work # nobody's own tables and data
failures=0

complain() { echo "FAILED: $*"; failures=$((failures + 1)); }
finish() { [ $failures = 0 ] && echo "all as expected"; exit $((failures > 0)); }
skip() { echo "skipped: $*"; exit 77; }

need_data() { "$tutti" data info "$1" >/dev/null 2>&1 || skip "data set $1 is not here"; }
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
