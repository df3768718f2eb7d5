#!/usr/bin/env bash
# joining.sh - a rank that mpirun started is stopped before it has joined the others: they say which, and the job ends; one that
# never comes is missed after --stall-timeout.
room=wanted
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
need_mpi

# late.sh RANK HOW COMMAND...: this rank stops as HOW says before it joins
cat >late.sh <<'END'
late=$1 how=$2
shift 2
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = "$late" ] || exec "$@"
case $how in
never) exec sleep 60 ;;
stopped) # as soon as it is the program, before or after it has a guard
    "$@" &
    until [ "$(readlink /proc/$!/exe)" = "$(readlink -f "$1")" ]; do :; done
    kill -STOP $!
    wait $! ;;
child)
    "$@" &
    until child=$(cat "/proc/$!/task/$!/children" 2>/dev/null) && [ -n "$child" ]; do :; done
    kill -STOP $child
    wait $! ;;
esac
END
# missed NAME RANK HOW PATTERN ARGUMENTS...: the others' words match, and the job ends in time
missed() {
    local name=$1 late=$2 how=$3 pattern=$4 began=$SECONDS
    shift 4
    timeout -s KILL 60 $starter -n 3 bash late.sh "$late" "$how" "$tutti" train mlp --limit 600 --epochs 1 --batch 60 --shards 3 --threads 1 \
        --quiet --out "$name" "$@" 2>"$name.err"
    code=$?
    [ $code != 0 ] || complain "$kind, $name: exit $code" # 137: a starter that had to be killed
    [ $((SECONDS - began)) -lt 30 ] || complain "$kind, $name: the job ended after $((SECONDS - began)) s"
    grep -q "$pattern" "$name.err" || complain "$kind, $name: $(cat "$name.err")"
    nothing_left "$kind, $name"
}
missed stopped 1 stopped 'tutti: rank [02]: rank 1 (pid [0-9]*) has been stopped for [0-9]* ms, and has not joined'
missed child 2 child 'tutti: rank [012]: .*(pid [0-9]*) has been stopped for [0-9]* ms, and has not joined'
missed never 0 never 'tutti: rank [12]: not all ranks have joined for 3 s (--stall-timeout): .* none is rank 0' --stall-timeout 3
finish
