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

# start NAME RANKS HOSTS STAYS: ranks that train for long, on this machine ("") or on hosts
start() {
    local name=$1 ranks=$2 hosts=$3 stays=$4 command
    mkdir "$work/$name.notes"
    command=(bash "$here/rank.sh" "$work/$name.notes" "$stays" "$tutti" train mlp --epochs 400 --batch 64 --shards 4 --threads 1
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

# ended NAME RANKS VICTIM STAYS: every other rank says in time which rank it was; all of them fail soon after, by
# themselves where mpirun lets them; and nothing is left
ended() {
    local name=$1 ranks=$2 victim=$3 stays=$4 limit rank code at
    limit=$(limit_ms "$2")
    for _ in $(seq $((limit / 1000 + 20))); do
        kill -0 $pid 2>/dev/null || break
        sleep 1 &
        wait -n $pid $!
    done
    if kill -0 $pid 2>/dev/null; then
        complain "$name: mpirun does not end: $(others)"
        kill -KILL $(others | awk '{ print $1 }') 2>/dev/null
    fi
    wait $pid
    code=$?
    [ $code != 0 ] || complain "$name: mpirun exits with 0"
    for rank in $(seq 0 $((ranks - 1))); do
        [ "$rank" != "$victim" ] || continue
        if grep -q "tutti: rank $rank: rank $victim (pid" "$name.notes/err.$rank"; then
            at=$(stat -c %.6Y "$name.notes/err.$rank")
            at=$(((${at/./} - done_at) / 1000))
            [ $at -lt "$limit" ] || complain "$name: rank $rank said it after $at ms"
            [ $at -lt $slowest ] || slowest=$at
        else
            complain "$name: rank $rank does not name rank $victim: $(cat "$name.notes/err.$rank")"
        fi
        if [ -e "$name.notes/end.$rank" ]; then
            read -r code at <"$name.notes/end.$rank"
            at=$(((at - done_at) / 1000))
            [ "$code" = 3 ] || complain "$name: rank $rank exits with $code"
            [ $at -lt $((limit + 1500)) ] || complain "$name: rank $rank ended after $at ms"
        elif [ "$stays" = 1 ]; then
            complain "$name: rank $rank did not end by itself"
        fi
    done
    nothing_left "$name"
}

slowest=0
for i in $(seq "$times"); do
    ranks=$((2 + 2 * (RANDOM % 2)))
    hosts=""
    [ $((RANDOM % 2)) = 0 ] || hosts=alpha:$((ranks / 2)),beta:$((ranks / 2))
    victim=$((RANDOM % ranks))
    signal=KILL
    [ $((RANDOM % 2)) = 0 ] || signal=STOP
    stays=$((RANDOM % 2))
    name=fault-$i-$signal-$victim-of-$ranks${hosts:+-hosts}-$stays
    start "$name" $ranks "$hosts" $stays || continue
    sleep 0.$(printf '%03d' $((RANDOM % 500)))
    echo $victim >"$name.notes/victim"
    done_at=${EPOCHREALTIME/./}
    guard=$(cat "$name.notes/pid.$victim")
    kill -$signal $(cat "/proc/$guard/task/$guard/children")
    ended "$name" $ranks $victim $stays
    # Its last checkpoint is good: another number of ranks goes on from it.
    reached=$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$name/metrics.jsonl" | tail -1)
    "$tutti" train --resume "$name" -n 1 --strategy single --threads 1 --steps $((reached + 40)) --quiet 2>err.txt ||
        complain "$name: resume: $(cat err.txt)"
    rm -rf "$name"
done
echo "$times faults, the last word after $slowest ms"
finish
