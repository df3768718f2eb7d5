#!/usr/bin/env bash
# resume.sh - a run that was stopped, killed or damaged goes on to the same bits.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

run=(mlp --epochs 2 --seed 7 --shards 4 --batch 60 --limit 12000 --checkpoint-every 50 --strategy mirrored -n 2 --threads 1)
"$tutti" train "${run[@]}" --quiet --out whole || complain "whole"

wait_for() { # FILE-PATTERN: until a checkpoint is there
    for _ in $(seq 600); do
        compgen -G "$1" >/dev/null && return 0
        sleep 0.02
    done
    complain "no $1 in 12 s"
}
interrupted() { # NAME SIGNAL
    "$tutti" train "${run[@]}" --quiet --out "$1" 2>"$1.err" &
    local pid=$!
    wait_for "$1/checkpoint/step-*0"
    kill "-$2" $pid
    wait $pid
    local code=$?
    [ ! -e "$1/summary.json" ] || grep -q '"stopped"' "$1/summary.json" || echo "note: $1 was done before the signal"
    [ "$2" = KILL ] || [ -s "$1/report.html" ] || complain "$1: no report after $2"
    [ $code != 0 ] || grep -q '"done"' "$1/summary.json" || complain "$1: exit 0 after $2"
    if grep -q '"done"' "$1/summary.json" 2>/dev/null; then return; fi
    "$tutti" train --resume "$1" --quiet || complain "$1: resume"
    same "interrupted by $2" whole "$1"
}
interrupted killed KILL
interrupted terminated TERM
interrupted interrupted INT
# A signal to all processes of a job, as timeout and service managers send it, is one wish: ranks save.
"$tutti" train "${run[@]}" --epochs 50 --quiet --out group 2>group.err &
pid=$!
wait_for "group/checkpoint/step-*0"
kill -TERM $(pgrep -P $pid) $pid
wait $pid
grep -q 'all saved' group.err || complain "a signal to all: $(cat group.err)"

"$tutti" train --resume whole --epochs 3 --quiet || complain "resume a finished run with more epochs"
"$tutti" train "${run[@]}" --epochs 3 --quiet --out three || complain "three"
same "one epoch more" three whole

# Other ranks and threads, flags given at resume.
"$tutti" train "${run[@]}" --steps 120 --quiet --out moved || complain "moved"
"$tutti" train --resume moved --steps 0 -n 1 --threads 2 --strategy single --quiet || complain "moved: resume"
same "resumed on another number of ranks" three three
"$tutti" train "${run[@]}" --quiet --out again || complain again
same "resumed on another number of ranks" again moved

# A damaged newest checkpoint: the one before is used, with a word.
"$tutti" train "${run[@]}" --steps 150 --quiet --out torn || complain "torn"
newest=$(ls -d torn/checkpoint/step-* | tail -1)
truncate -s -5 "$newest/weights.safetensors"
"$tutti" train --resume torn --steps 0 --quiet 2>torn.err || complain "torn: resume"
grep -q "$(basename "$newest")" torn.err || complain "torn: no word about $newest: $(cat torn.err)"
same "torn checkpoint" again torn

# Augmentation is a setting like others: kept, and a change of it is told.
aug=(cnn --batch 60 --limit 1200 --shards 2 --threads 1 --crop 3 --flip --cutout 6)
"$tutti" train "${aug[@]}" --steps 35 --quiet --out augmented-whole || complain "augmented-whole"
"$tutti" train "${aug[@]}" --steps 25 --quiet --out augmented || complain "augmented"
cp -r augmented changed
"$tutti" train --resume augmented --steps 35 --quiet 2>augmented.err || complain "augmented: resume"
[ ! -s augmented.err ] || complain "augmented: $(cat augmented.err)"
same "resumed with augmentation" augmented-whole augmented
"$tutti" train --resume changed --steps 35 --no-flip --quiet 2>changed.err || complain "changed: resume"
grep -q 'with augmentation crop 3 flip cutout 6, now it is crop 3 cutout 6' changed.err || complain "changed: $(cat changed.err)"

# Lines of metrics are neither lost nor doubled.
for dir in killed again; do
    python3 - "$dir" <<'PY' || complain "metrics of $dir"
import json, sys
steps = [json.loads(line)["step"] for line in open(sys.argv[1] + "/metrics.jsonl") if '"train"' in line]
sys.exit(steps != sorted(set(steps)) or steps != list(range(50, 401, 50)))
PY
done
"$tutti" eval again --json >eval.json || complain eval
grep -q "$(hash again)" eval.json || complain "eval has other weights"
finish
