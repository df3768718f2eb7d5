#!/usr/bin/env bash
# namespaces.sh - two hosts with a network between them, quick or slow, have the weights of one process.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
need_mpi
add_bridge
add_host alpha 1
add_host beta 2
make_entrance

# From alpha, as people do: tutti starts mpirun, which reaches the hosts by the agent.
train_on() { # HOSTS RANKS DIR ARGUMENTS...
    local hosts=$1 ranks=$2 dir=$3
    shift 3
    "$work/on" alpha "$tutti" train "$@" -n "$ranks" --hosts "$hosts" --mpirun $starter --launch-agent "$work/agent" \
        --quiet $patient --out "$dir" || complain "$kind, $ranks ranks on $hosts: $*"
}
train() { train_on alpha,beta "$@" --threads 1; }

# A step's tasks between the hosts take at least so many microseconds, by the clock of one of them.
times() { # RANKS LEAST
    "$work/on" alpha "$tutti" bench comm -n "$1" --hosts alpha,beta --mpirun $starter --launch-agent "$work/agent" $patient \
        --bytes 65536 --op reduce_scatter,all_gather --json >comm.txt || complain "bench comm of $1 ranks on two hosts"
    [ "$(grep -c "\"algorithm\": \"messages: [a-z_+]*\", \"bytes\": 65536, \"ranks\": $1, \"nodes\": 2" comm.txt)" = 2 ] &&
        sed 's/.*"us": \([0-9]*\)[.].*/\1/' comm.txt | awk -v least="$2" '$1 + 0 < least || $1 > 1e6 { bad = 1 } END { exit bad || NR != 2 }' ||
        complain "$kind, bench comm of $1 ranks, $2 us at least: $(cat comm.txt)"
}
times 2 1
times 4 1

mlp=(mlp --limit 600 --epochs 1 --batch 60 --shards 4 --seed 7)
reference mlp-1 "${mlp[@]}"
cnn=(cnn --limit 256 --epochs 1 --batch 64 --shards 4 --seed 7 --optimizer adamw --clip 0.5)
reference cnn-1 "${cnn[@]}"
for n in 2 4; do
    train $n mlp-$n "${mlp[@]}"
    train $n cnn-$n "${cnn[@]}"
done
same "mlp on two hosts, $kind" mlp-1 mlp-2 mlp-4
same "cnn on two hosts, $kind" cnn-1 cnn-2 cnn-4
grep -q '"rails": {"ranks": [12], "measured": true, "leaders_ms": ' mlp-4/summary.json ||
    complain "$kind: who talks was not measured: $(cat mlp-4/summary.json)"
train 4 mlp-leaders "${mlp[@]}" --rails leaders
same "one rank of each host talks, $kind" mlp-1 mlp-leaders
grep -q '"rails": {"ranks": 1, "measured": false}' mlp-leaders/summary.json || complain "$kind: --rails leaders"

# Hosts with one and two ranks have different numbers of threads, and the same shards.
train_on alpha:1,beta:2 3 mlp-uneven "${mlp[@]:0:7}" --seed 7
shards=$(sed -n 's/.*"shards": \([0-9]*\).*/\1/p' mlp-uneven/summary.json | head -1)
reference mlp-even "${mlp[@]:0:7}" --seed 7 --shards "$shards"
same "one rank on a host, two on the other, $kind" mlp-even mlp-uneven
[ "$(sent_by beta)" -gt 1000000 ] || complain "beta sent $(sent_by beta) bytes: the ranks did not talk over the wire"

if limit_wires tbf rate 200mbit burst 64kbit latency 50ms; then
    train 4 mlp-slow "${mlp[@]}"
    same "a wire of 200 Mbit/s, $kind" mlp-1 mlp-slow
    free_wires
else
    leave_out "a slow wire: no rate limit here: $(head -1 tc.err)"
fi
nothing_left "$kind"
if lengthen_wire beta 1000; then # two milliseconds there and back
    train 4 mlp-long "${mlp[@]}"
    same "a wire of a millisecond, $kind" mlp-1 mlp-long
    times 2 900
else
    complain "the wire cannot be made longer: $(cat delay-beta.out)"
fi
finish
