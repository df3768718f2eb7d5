#!/usr/bin/env bash
# readme.sh - the commands of README.md, as they stand there. Above each block of them is a comment: `<!-- run -->`, or
# `<!-- run: fed -->` and `<!-- run: library -->` where they need what may not be built, or `<!-- needs: ... -->`.
. "$(dirname "$0")/lib.sh"
build=$3
need_data fashion-mnist
command -v python3 >/dev/null || skip "no python3"

mkdir blocks
python3 - "$root/README.md" blocks <<'PY' || complain "README.md: a block of commands without a mark"
import re, sys
lines = open(sys.argv[1], encoding="utf-8").read().split("\n")
begin = lines.index("## Five minutes")
mark, block, number, failures, fenced = None, [], 0, 0, False
for at in range(begin, len(lines)):
    line = lines[at]
    if line.startswith("```"):
        fenced = not fenced
    if line.startswith("    ") and not fenced:
        block.append(line[4:])
        continue
    if block and line.strip():
        number += 1
        if not mark:
            print("no mark above:", block[0])
            failures += 1
        else:
            kind = "run" if mark.startswith("run") else "needs"
            name = f"{sys.argv[2]}/{number:02}.{kind}"
            open(name, "w", encoding="utf-8").write("# " + mark + "\n" + "\n".join(block) + "\n")
        mark, block = None, []
    found = re.fullmatch(r"<!-- ((run|needs)[: ].*|run) -->", line)
    if found:
        mark = found.group(1)
sys.exit(failures > 0)
PY

ln -s "$root/examples" "$root/include" .
ln -s "$build" build
skipped=0
: >all.sh
for block in blocks/*; do
    mark=$(sed -n '1s/^# //p' "$block")
    case $mark in
    "run: fed") "$tutti" fed simulate 2>&1 | grep -q 'without federated learning' && mark="needs: a build with federated learning" ;;
    "run: library") [ -e "$build/libtutti.so" ] && [ -z "${TUTTI_TEST_CFLAGS:-}" ] || mark="needs: the library" ;;
    esac
    if [ "${mark#run}" = "$mark" ]; then
        case $mark in
        "needs: a build with federated learning" | "needs: the library") leave_out "README.md needs ${mark#needs: }: $(sed -n 2p "$block") ..." ;;
        *) echo "skipped, $mark: $(sed -n 2p "$block") ..." ;;
        esac
        skipped=$((skipped + 1))
        continue
    fi
    # Each command must succeed, also inside of a loop.
    { echo 'set -e'; cat "$block"; } >>all.sh
done
began=$SECONDS
bash all.sh >out.txt 2>err.txt || complain "a command of README.md fails: $(tail -3 err.txt)"
echo "$((SECONDS - began)) s, $skipped blocks skipped"
[ "$(cat same-*/summary.json | grep -o '"weights_sha256": "[^"]*"' | sort -u | wc -l)" = 1 ] ||
    complain "README.md: four runs with the same shards have other bits"
for file in first/report.html compare.html scaling/scale.html traced/trace.json; do
    [ -s $file ] || complain "README.md names $file, which is not there"
done
finish
