#!/usr/bin/env bash
# ending.sh - how runs end: killed at any moment, by signals, done; what the exit code tells, and a command that is repeated until it is 0.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

small=(mlp --limit 128 --batch 32 --threads 1 --seed 7 --epochs 2 --eval-every 1)
works() { "$@" >out.txt 2>err.txt || complain "exit $?: $*: $(cat err.txt)"; }
member() { sed -n "s/.*\"$2\": \"\{0,1\}\([^\",}]*\).*/\1/p" "$1" | head -1; }
# whole NAME: the run is done as `first` is, once in its metrics, with a report that is no older
whole() {
    python3 - first "$1" <<'PY' || complain "$1 is not as first"
import json, os, sys
first, run = sys.argv[1:]
a, b = (json.load(open(r + "/summary.json")) for r in (first, run))
for key in "status", "steps", "samples", "weights_sha256", "val_loss", "val_accuracy", "train_loss", "train_accuracy", "confusion":
    if a.get(key) != b.get(key):
        sys.exit(f"{key}: {a.get(key)} and {b.get(key)}")
def lines(run):
    last = {}
    for text in open(run + "/metrics.jsonl"):
        line = json.loads(text)
        last[line["kind"], line["step"]] = {k: line[k] for k in ("samples", "val_loss", "train_loss", "train_accuracy") if k in line}
    return last
if lines(first) != lines(run):
    sys.exit(f"metrics: {lines(first)} and {lines(run)}")
if os.stat(run + "/report.html").st_mtime_ns < os.stat(run + "/summary.json").st_mtime_ns:
    sys.exit("its report is old")
PY
}

# Killed before any file comes or goes, from the folder's making to the report: the same command, repeated, comes to the same end.
cc -shared -fPIC -O1 -D_GNU_SOURCE -o kill_at.so "$root/tests/cli/kill_at.c" -ldl || complain "kill_at.c"
repeated=("$tutti" train "${small[@]}" --checkpoint-every 5 --log-every 1 --quiet --resume-if-any)
works "${repeated[@]}" --out first
works env LD_PRELOAD="$work/kill_at.so" KILL_FILE="$work/count" "${repeated[@]}" --out counted
whole counted
moments=$(cat count)
[ "$moments" -ge 12 ] || complain "$moments moments to be killed at"
for at in $(seq "$moments"); do
    { env LD_PRELOAD="$work/kill_at.so" KILL_AT=$at "${repeated[@]}" --out "at-$at"; } >out.txt 2>&1
    [ $? = 137 ] || complain "not killed at $at: $(cat out.txt)"
    works "${repeated[@]}" --out "at-$at"
    whole "at-$at"
done
echo "killed at $moments moments"

# So do models that leave more in the folder: a vocabulary, statistics of a table, what the model says.
python3 -c "print('to be or not to be, that is the question. ' * 60)" >play.txt
python3 - >rows.csv <<'PY'
print("a,b,label")
for i in range(80):
    print(i % 7, i % 5, "yes" if i % 7 > 3 else "no", sep=",")
PY
for what in 'gpt --data ./play.txt --width 16 --heads 2 --layers 1 --length 16 --batch 8 --steps 3' 'tabular --data ./rows.csv --batch 8 --steps 3'; do
    rm -rf first at-*
    # shellcheck disable=SC2206 # words
    other=("$tutti" train $what --threads 1 --log-every 1 --quiet --resume-if-any)
    works env LD_PRELOAD="$work/kill_at.so" KILL_FILE="$work/count" "${other[@]}" --out first
    for at in $(seq "$(cat count)"); do
        { env LD_PRELOAD="$work/kill_at.so" KILL_AT=$at "${other[@]}" --out "at-$at"; } >out.txt 2>&1
        works "${other[@]}" --out "at-$at"
        whole "at-$at"
    done
done
rm -rf first
works "${repeated[@]}" --out first

# The last ones again, with --resume, which ends the run once.
for at in $((moments - 2)) $((moments - 1)) "$moments"; do
    rm -rf again
    { env LD_PRELOAD="$work/kill_at.so" KILL_AT=$at "$tutti" train "${small[@]}" --checkpoint-every 5 --log-every 1 --quiet --out again; } >out.txt 2>&1
    works "$tutti" train --resume again
    grep -q 'steps 9 to 8' err.txt && complain "steps that cannot be: $(head -n 1 err.txt)"
    whole again
    refused 2 'has done all of its 8 steps' "$tutti" train --resume again --quiet
done

# However work is distributed, what is left of a run is its evaluation: without summary it is made again.
for how in '-n 2' '--strategy pipeline -n 2' '--strategy zero -n 2 --split dp=2,zero=3' '--strategy ps -n 2' '--strategy asgd -n 2 --spares 1' \
    '--strategy easgd -n 2' '--strategy localsgd -n 2'; do
    rm -rf left before
    # shellcheck disable=SC2086 # words
    works "$tutti" train "${small[@]}" --shards 4 --quiet --out left $how
    mv left/summary.json before.json
    rm left/report.html
    works "$tutti" train --resume left --quiet
    for key in status samples weights_sha256 val_loss train_loss; do
        [ "$(member left/summary.json $key)" = "$(member before.json $key)" ] || complain "$how: another $key"
    done
done

# Repeated: nothing where it is done, further where more is asked for, refused where it is another run.
stamp=$(stat -c %.9Y first/summary.json first/metrics.jsonl first/config.json)
works "${repeated[@]}" --out first
[ "$stamp" = "$(stat -c %.9Y first/summary.json first/metrics.jsonl first/config.json)" ] || complain "a run that is done was touched"
"$tutti" train "${small[@]}" --resume-if-any --out first --json 2>/dev/null | grep -q "\"weights_sha256\": \"$(hash first)\", \"steps\": 8" ||
    complain "no summary of a run that is done"
rm first/report.html
works "${repeated[@]}" --out first
[ -s first/report.html ] || complain "no report of a run that is done"
cp -r first more
works "${repeated[@]}" --out more --epochs 3
[ "$(member more/summary.json steps)" = 12 ] || complain "not further: $(member more/summary.json steps) steps"
refused 2 'holds a run of mlp, not of cnn' "$tutti" train cnn --out first --resume-if-any
refused 2 'holds a run on fashion-mnist, not on mnist' "$tutti" train mlp --data mnist --out first --resume-if-any
refused 2 '12 steps already, 8 are asked for' "${repeated[@]}" --out more
refused 2 'Add --out' "$tutti" train mlp --resume-if-any
refused 2 'leave one of them out' "$tutti" train mlp --resume-if-any --overwrite --out first
refused 2 'leave one of them out' "$tutti" train --resume first --resume-if-any
# What the run has made of a command is no contradiction when the command is repeated.
cp first/checkpoint/step-*8/weights.safetensors w.safetensors
for what in '--accumulate 2' '--strategy auto -n 2' '--init w.safetensors' '--optimizer adamw --scale-lr' '--kernels none'; do
    rm -rf made
    # shellcheck disable=SC2086 # words
    works "$tutti" train "${small[@]}" --quiet --out made --resume-if-any $what
    rm made/summary.json made/report.html
    # shellcheck disable=SC2086 # words
    works "$tutti" train "${small[@]}" --quiet --out made --resume-if-any $what
    [ "$(member made/summary.json status)" = done ] || complain "$what: not done"
done

# Signals: 3 says that the same command goes on, 130 that somebody wished it to end.
start() { # NAME ARGUMENTS...
    "$tutti" train mlp --limit 2000 --batch 20 --threads 1 --epochs 5000 --checkpoint-every 50 --quiet --out "$@" 2>"$1.err" &
    pid=$!
    for _ in $(seq 600); do
        compgen -G "$1/checkpoint/step-*0" >/dev/null && break
        sleep 0.02
    done
}
# handles PROCESS: SIGINT and SIGTERM have a handler there. This shell has one, too, and its child until it is the program.
handles() { ! grep -q '^bash' "/proc/$1/comm" 2>/dev/null && [ $((0x$(sed -n 's/^SigCgt:\s*//p' "/proc/$1/status") & 0x4002)) = $((0x4002)) ] 2>/dev/null; }
start_slow() { # NAME RANKS: goes on after a step with one that takes a minute
    works "$tutti" train cnn --limit 100 --batch 100 --shards 2 --threads 1 --steps 1 --quiet --out "$1"
    "$tutti" train --resume "$1" --steps 9 -n "$2" --strategy "$([ "$2" = 1 ] && echo single || echo mirrored)" --slow rank=0,factor=1000 --quiet 2>"$1.err" &
    pid=$!
    for _ in $(seq 600); do
        ranks_of=$([ "$2" = 1 ] && echo $pid || pgrep -P $pid)
        all=0
        for rank in $ranks_of; do handles "$rank" && all=$((all + 1)); done
        [ $all = "$2" ] && break
        sleep 0.02
    done
}
# insist SIGNAL: sends it until the process ends. On a loaded machine the first two may be handled
# within a second, which makes them one wish, or be delivered as one.
insist() {
    kill "-$1" $pid
    for _ in $(seq 20); do
        sleep 1.2
        kill "-$1" $pid 2>/dev/null || break
    done
}
ended() { # NAME CODE PATTERN: in one line
    wait $pid
    local code=$?
    [ $code = "$2" ] || complain "$1: exit $code instead of $2: $(cat "$1.err")"
    [ "$(grep -c '^tutti: ' "$1.err")" = 1 ] && grep -q "^tutti: .*$3" "$1.err" || complain "$1: no '$3': $(cat "$1.err")"
}
for ranks in 1 2; do
    for signal in TERM:3 HUP:3 INT:130; do
        name=${signal%:*}-$ranks
        start "$name" -n $ranks
        kill "-${signal%:*}" $pid
        ended "$name" "${signal#*:}" "all saved: continue with tutti train --resume $name"
        [ "$(member "$name/summary.json" status)" = stopped ] || complain "$name: $(member "$name/summary.json" status)"
        saved=$(ls -d "$name"/checkpoint/step-* | tail -1)
        [ "$((10#${saved##*step-}))" = "$(member "$name/summary.json" steps)" ] || complain "$name: $saved and $(member "$name/summary.json" steps)"
    done
    # Ctrl-C twice within a second is one wish, whose line comes; a later one ends the run at once, in a line.
    start twice-$ranks -n $ranks
    kill -INT $pid
    sleep 0.15
    kill -INT $pid 2>/dev/null
    ended twice-$ranks 130 'all saved: continue with'
    start_slow slow-$ranks $ranks
    insist INT
    ended slow-$ranks 130 'step 1 of 9 is saved: continue with tutti train --resume slow'
    start_slow gone-$ranks $ranks
    insist TERM
    ended gone-$ranks 3 'step 1 of 9 is saved: continue with'
done
start lost -n 2
kill -KILL "$(pgrep -P $pid | tail -1)"
ended lost 3 'rank 1 .*SIGKILL'
# While data are read nothing is saved, and the codes are the same.
python3 -c "print('to be or not to be, that is the question. ' * 1000000)" >long.txt
for signal in TERM HUP; do
    "$tutti" train gpt --data ./long.txt --out early --quiet 2>early.err &
    pid=$!
    for _ in $(seq 500); do
        [ $((0x$(sed -n 's/^SigCgt:\s*//p' "/proc/$pid/status" 2>/dev/null) & 0x4000)) = $((0x4000)) ] && break
        sleep 0.01
    done
    kill -$signal $pid
    ended early 3 'outside of training: repeat the command'
    [ ! -e early ] || complain "$signal while data were read: there is a folder"
done
# Who is told to ignore a hangup does.
trap '' HUP
start nohup
trap - HUP
kill -HUP $pid
before=$(ls -d nohup/checkpoint/step-* | tail -1)
for _ in $(seq 600); do
    [ "$(ls -d nohup/checkpoint/step-* | tail -1)" != "$before" ] && break
    sleep 0.02
done
kill -TERM $pid
ended nohup 3 'all saved'
finish
