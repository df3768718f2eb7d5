#!/usr/bin/env bash
# cut.sh - the wire between two hosts is cut in the middle of a job: every rank says who is missing, and the job ends, its starter
# too, which would wait for the other host.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
need_mpi
add_bridge
add_host alpha 1
add_host beta 2
make_entrance

hosts=alpha:2,beta:1
case $kind in
openmpi) flags="--host $hosts --map-by slot --bind-to none --mca plm rsh --mca plm_rsh_agent $work/agent" ;;
mpich) flags="-hosts $hosts -launcher ssh -launcher-exec $work/agent" ;;
esac
mkdir notes
# shellcheck disable=SC2086 # words
"$work/on" alpha $starter $flags -n 3 bash "$here/rank.sh" "$work/notes" 0 "$tutti" train mlp --epochs 400 --batch 60 --shards 3 --threads 1 \
    --checkpoint-every 20 --log-every 10 --quiet --out "$work/run" >run.out 2>&1 &
pid=$!
for _ in $(seq 1500); do
    [ -s run/metrics.jsonl ] && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.02
done
[ -s run/metrics.jsonl ] || complain "$kind: did not start: $(cat run.out notes/err.*)"
ip link set wire-beta down
began=$SECONDS
while kill -0 $pid 2>/dev/null && [ $((SECONDS - began)) -lt 60 ]; do
    sleep 0.1
done
if kill -0 $pid 2>/dev/null; then
    complain "$kind: the starter is there after a minute: $(others)"
    kill -KILL $(others | awk '{ print $1 }')
fi
[ $((SECONDS - began)) -lt 25 ] || complain "$kind: the starter ended after $((SECONDS - began)) s"
wait $pid && complain "$kind: the starter exits with 0"
for rank in 0 1; do
    grep -q 'rank 2 (pid [0-9]* on beta) has not been heard of' notes/err.$rank || complain "$kind, rank $rank: $(cat notes/err.$rank)"
done
grep -q 'rank [01] (pid [0-9]* on alpha) has not been heard of' notes/err.2 || complain "$kind, rank 2: $(cat notes/err.2)"
until=$((SECONDS + 25)) # on beta daemons have their own time
while [ -n "$(others)" ] && [ $SECONDS -lt $until ]; do sleep 0.1; done
nothing_left "$kind"
finish
