#!/usr/bin/env bash
# faults.sh - a rank that mpirun started is killed or stopped at any moment: the others know which, and end.
#
# TUTTI_FAULTS is how often (4); TUTTI_FAULTS_SEED repeats a sequence.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
need_mpi
times=${TUTTI_FAULTS:-4}
RANDOM=${TUTTI_FAULTS_SEED:-$$}
echo "TUTTI_FAULTS_SEED=${TUTTI_FAULTS_SEED:-$$}"
add_bridge
add_host alpha 1
add_host beta 2
make_entrance

# start NAME RANKS HOSTS: ranks that train for long, on this machine ("") or on hosts
start() {
    local name=$1 ranks=$2 hosts=$3 command
    mkdir "$work/$name.notes"
    command=(bash "$here/rank.sh" "$work/$name.notes" "$tutti" train mlp --epochs 400 --batch 64 --shards 4 --threads 1
        --checkpoint-every 20 --log-every 10 --quiet --out "$work/$name")
    if [ -n "$hosts" ]; then
        "$work/on" alpha $starter $(host_flags "$hosts") -n "$ranks" "${command[@]}" >"$name.out" 2>&1 &
    else
        $starter -n "$ranks" "${command[@]}" >"$name.out" 2>&1 &
    fi
    pid=$!
    for _ in $(seq 600); do
        [ -s "$name/metrics.jsonl" ] && [ -n "$(ls "$name/checkpoint" 2>/dev/null)" ] && return 0
        kill -0 $pid 2>/dev/null || break
        sleep 0.02
    done
    complain "$name did not start: $(cat "$name.out" "$name.notes"/err.*)"
    return 1
}
host_flags() { # HOSTS
    case $kind in
    openmpi) echo "--host $1 --map-by slot --bind-to none --mca plm rsh --mca plm_rsh_agent $work/agent" ;;
    mpich) echo "-hosts $1 -launcher ssh -launcher-exec $work/agent" ;;
    esac
}

# ended NAME RANKS VICTIM LIMIT_MS: which rank it was is said in time, by one or more of the others and by none wrongly;
# all of them fail soon after, and nothing is left
ended() {
    local name=$1 ranks=$2 victim=$3 limit=$4 rank code at said=0
    wait $pid
    code=$?
    [ $code != 0 ] || complain "$name: mpirun exits with 0"
    for rank in $(seq 0 $((ranks - 1))); do
        [ "$rank" != "$victim" ] || continue
        if [ -s "$name.notes/err.$rank" ]; then
            said=$((said + 1))
            at=$(stat -c %.6Y "$name.notes/err.$rank")
            at=$(((${at/./} - done_at) / 1000))
            [ $at -lt "$limit" ] || complain "$name: rank $rank said it after $at ms"
            grep -q "^tutti: .*rank $victim\b" "$name.notes/err.$rank" ||
                complain "$name: rank $rank does not name rank $victim: $(cat "$name.notes/err.$rank")"
        fi
        if ! [ -e "$name.notes/end.$rank" ]; then
            complain "$name: rank $rank did not end by itself"
            continue
        fi
        read -r code at <"$name.notes/end.$rank"
        at=$(((at - done_at) / 1000))
        [ "$code" = 1 ] || complain "$name: rank $rank exits with $code"
        [ $at -lt $((limit + 1500)) ] || complain "$name: rank $rank ended after $at ms"
    done
    [ $said -gt 0 ] || complain "$name: no rank says what happened: $(cat "$name.out")"
    nothing_left "$name"
}

for i in $(seq "$times"); do
    ranks=$((2 + 2 * (RANDOM % 2)))
    hosts=""
    [ $((RANDOM % 2)) = 0 ] || hosts=alpha:$((ranks / 2)),beta:$((ranks / 2))
    victim=$((RANDOM % ranks))
    signal=KILL limit=2000
    [ $((RANDOM % 2)) = 0 ] || signal=STOP limit=4500 # two seconds of standing still come first
    name=fault-$i-$signal-$victim-of-$ranks${hosts:+-hosts}
    start "$name" $ranks "$hosts" || continue
    sleep 0.$(printf '%03d' $((RANDOM % 500)))
    if [ $signal = KILL ]; then echo $ranks; else echo $((ranks - 1)); fi >"$name.notes/expected"
    done_at=${EPOCHREALTIME/./}
    kill -$signal "$(cat "$name.notes/pid.$victim")"
    ended "$name" $ranks $victim $limit
    # Its last checkpoint is good: another number of ranks goes on from it.
    reached=$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$name/metrics.jsonl" | tail -1)
    "$tutti" train --resume "$name" -n 1 --strategy single --threads 1 --steps $((reached + 40)) --quiet 2>err.txt ||
        complain "$name: resume: $(cat err.txt)"
    rm -rf "$name"
done
finish
