#!/usr/bin/env bash
# fault.sh - ranks that die or stall, disks that are full: named, quickly, nothing left behind.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

shared_before=$(ls /dev/shm 2>/dev/null | sort)
# A zombie that nobody has waited for yet is dead.
alive() { grep -q '^State:.[^ZX]' "/proc/$1/status" 2>/dev/null; }
start() { # NAME RANKS ARGUMENTS...
    "$tutti" train mlp --epochs 200 --seed 7 --strategy mirrored -n "$2" "${@:3}" --threads 1 --quiet --out "$1" \
        2>"$1.err" &
    pid=$!
    for _ in $(seq 500); do
        [ -s "$1/metrics.jsonl" ] && break
        sleep 0.02
    done
    ranks=($(pgrep -P $pid))
    [ ${#ranks[@]} = "$2" ] || complain "$1: ${#ranks[@]} ranks"
}
ended() { # NAME PATTERN: exits with 3 soon, the message matches, no rank is left
    local began=${EPOCHREALTIME/./} took rank
    wait $pid
    local code=$?
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
    [ $code = 3 ] || complain "$1: exit $code"
    [ $took -lt $((2 * $(limit_ms ${#ranks[@]}))) ] || complain "$1: took $took ms"
    grep -q "$2" "$1.err" || complain "$1: no '$2' in: $(cat "$1.err")"
    for rank in "${ranks[@]}"; do
        ! alive "$rank" || complain "$1: rank process $rank is left"
    done
    [ -s "$1/config.json" ] || complain "$1: the run's folder is gone"
}

start killed 2
kill -KILL "${ranks[1]}"
ended killed 'rank 1 .*signal 9.* at step'
start killed-first 4
kill -KILL "${ranks[0]}"
ended killed-first 'rank 0 .*signal 9'
start stopped 2
kill -STOP "${ranks[1]}"
ended stopped 'rank 1 .*stopped'

# The supervisor itself: every rank goes with it.
start orphan 2
kill -KILL $pid
wait $pid 2>/dev/null
sleep 0.5
for rank in "${ranks[@]}"; do
    ! alive "$rank" || complain "rank $rank outlived its supervisor"
done

# Any rank at any moment, TUTTI_FAULTS times; TUTTI_FAULTS_SEED repeats a sequence. The last checkpoint is good.
RANDOM=${TUTTI_FAULTS_SEED:-$$}
seed=${TUTTI_FAULTS_SEED:-$$}
slowest=0
for i in $(seq "${TUTTI_FAULTS:-2}"); do
    n=$((2 + 2 * (RANDOM % 2)))
    flat=$([ $((RANDOM % 2)) = 0 ] || echo --flat)
    victim=$((RANDOM % n))
    signal=$([ $((RANDOM % 2)) = 0 ] && echo KILL || echo STOP)
    name=any-$seed-$i-$signal-$victim-of-$n$flat
    start "$name" $n $flat --checkpoint-every 20 --log-every 10
    sleep 0.$(printf '%03d' $((RANDOM % 500)))
    began=${EPOCHREALTIME/./}
    kill -$signal "${ranks[victim]}"
    ended "$name" "^tutti: rank $victim (pid ${ranks[victim]}) \(was killed\|has been stopped\)"
    said=$(stat -c %.6Y "$name.err")
    said=$(((${said/./} - began) / 1000))
    [ $said -lt "$(limit_ms $n)" ] || complain "$name: said after $said ms"
    [ $said -lt $slowest ] || slowest=$said
    reached=$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$name/metrics.jsonl" | tail -1)
    "$tutti" train --resume "$name" -n 1 --strategy single --threads 1 --steps $((reached + 40)) --quiet 2>err.txt ||
        complain "$name: resume: $(cat err.txt)"
    rm -rf "$name"
done
echo "${TUTTI_FAULTS:-2} faults, the last word after $slowest ms"

# A full disk: the last good checkpoint stays.
mkdir disk
if mount -t tmpfs -o size=6m none disk 2>/dev/null; then
    "$tutti" train mlp --steps 40 --limit 2000 --checkpoint-every 20 --quiet --out disk/run || complain "disk: first part"
    head -c 5m /dev/zero >disk/filler 2>/dev/null
    refused 1 'o space left\|space' "$tutti" train --resume disk/run --steps 80 --quiet
    [ "$(ls disk/run/checkpoint | grep -c tmp)" = 0 ] || complain "a torn checkpoint is left"
    rm disk/filler
    "$tutti" train --resume disk/run --steps 80 --quiet || complain "disk: resume after making room"
    umount disk
else
    leave_out "a full disk: no tmpfs can be mounted"
fi
[ "$shared_before" = "$(ls /dev/shm 2>/dev/null | sort)" ] || complain "shared memory is left: $(ls /dev/shm)"
finish
