#!/usr/bin/env bash
# blame.sh - three hosts, of which one hears nothing of the others any more, while they hear it: all say that it is that one, it
# too. Then two whose link to each other is cut, while the third has both.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
need_mpi
add_bridge
add_host alpha 1
add_host beta 2
add_host gamma 3
make_entrance

hosts=alpha:1,beta:1,gamma:1
case $kind in
openmpi) flags="--host $hosts --map-by slot --bind-to none --mca plm rsh --mca plm_rsh_agent $work/agent" ;;
mpich) flags="-hosts $hosts -launcher ssh -launcher-exec $work/agent" ;;
esac
start() { # NAME
    mkdir "$1.notes"
    # shellcheck disable=SC2086 # words
    "$work/on" alpha $starter $flags -n 3 bash "$here/rank.sh" "$work/$1.notes" 0 "$tutti" train mlp --epochs 400 --batch 60 --shards 3 \
        --threads 1 --checkpoint-every 20 --log-every 10 --quiet --out "$work/$1" >"$1.out" 2>&1 &
    pid=$!
    for _ in $(seq 1500); do
        [ -s "$1/metrics.jsonl" ] && return
        kill -0 $pid 2>/dev/null || break
        sleep 0.02
    done
    complain "$kind, $1: did not start: $(cat "$1.out" "$1".notes/err.*)"
}
ended() { # NAME PATTERN: what every rank says
    local began=$SECONDS rank
    while kill -0 $pid 2>/dev/null && [ $((SECONDS - began)) -lt 60 ]; do sleep 0.1; done
    if kill -0 $pid 2>/dev/null; then
        complain "$kind, $1: the starter does not end"
        kill -KILL $(others | awk '{ print $1 }')
    fi
    wait $pid && complain "$kind, $1: the starter exits with 0"
    for rank in 0 1 2; do
        grep -qE "$2" "$1.notes/err.$rank" || complain "$kind, $1, rank $rank: $(cat "$1.notes/err.$rank")"
    done
}

start deaf
for host in alpha beta; do ip netns exec $host ip route add blackhole 10.77.0.3/32; done
ended deaf 'rank 2 \(pid [0-9]* on gamma\) has (heard of no other|not been heard of)'
for host in alpha beta; do ip netns exec $host ip route del blackhole 10.77.0.3/32; done
for _ in $(seq 300); do [ -z "$(others)" ] && break || sleep 0.1; done

start parted
ip netns exec beta ip route add blackhole 10.77.0.3/32
ip netns exec gamma ip route add blackhole 10.77.0.2/32
ended parted 'rank [12] \(pid [0-9]* on (beta|gamma)\) has not been heard of for [0-9]* ms on (beta|gamma) alone: the link between'
finish
