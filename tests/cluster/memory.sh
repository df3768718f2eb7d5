#!/usr/bin/env bash
# memory.sh - ranks of little memory: a gpt whose parameters, gradients and state are more than one rank may have trains
# with zero=3 on four, as a pipeline on two, and on two that share its layers. Each rank is in a control group of its own, which mpirun's ranks enter before they begin.
. "$(dirname "$0")/../cli/lib.sh"
build=${3:-$(dirname "$tutti")}
[ "$(id -u)" = 0 ] || skip "control groups need root"
case $(stat -f -c %T "$work") in
tmpfs | ramfs) skip "files in $work would be memory of who writes them" ;;
esac
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
for kind in openmpi mpich none; do
    starter=mpi$([ $kind = openmpi ] && echo run || echo exec).$kind
    command -v $starter >/dev/null && [ -e "$build/tutti-mpi-$kind.so" ] && break
done
[ $kind != none ] || skip "neither Open MPI nor MPICH is here"

# Groups: of version 1 or 2. Those that cannot be made or limited are none.
remove_groups() {
    for dir in "$groups"/rank? "$groups"; do
        for pid in $(cat "$dir/cgroup.procs" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
    done
    for _ in $(seq 50); do
        rmdir "$groups"/rank? "$groups" 2>/dev/null
        [ -d "$groups" ] || break
        sleep 0.05
    done
}
trap 'remove_groups; pkill -KILL -P $$ 2>/dev/null; rm -rf "$work"' EXIT
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    groups=/sys/fs/cgroup/tutti-test-$$
    mkdir "$groups" 2>/dev/null && echo +memory 2>/dev/null >"$groups/cgroup.subtree_control" ||
        skip "control groups cannot be made here"
    limits=(memory.max memory.swap.max)
else
    groups=/sys/fs/cgroup/memory/tutti-test-$$
    mkdir "$groups" 2>/dev/null || skip "control groups cannot be made here"
    limits=(memory.limit_in_bytes memory.swappiness)
fi
limit_groups() { # BYTES
    local rank dir
    for rank in 0 1 2 3; do
        dir=$groups/rank$rank
        rmdir "$dir" 2>/dev/null
        mkdir "$dir" && echo "$1" 2>/dev/null >"$dir/${limits[0]}" || skip "memory cannot be limited here"
        echo 0 2>/dev/null >"$dir/${limits[1]}"
    done
}
cat >enter <<END
#!/usr/bin/env bash
echo \$\$ >$groups/rank\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}/cgroup.procs && exec "$tutti" "\$@"
END
chmod +x enter

sentences 10 120 >plain.txt
model=(gpt --data ./plain.txt --width 384 --layers 8 --heads 4 --length 32 --batch 4 --shards 4 --steps 3 --limit 16)
model+=(--seed 7 --threads 1 --quiet --lost-after 30)
"$tutti" train "${model[@]}" --out free || complain "without limits"
parameters=$(grep -o '"parameters": [0-9]*' free/summary.json | grep -o '[0-9]*$')
# 4 bytes of a parameter, 4 of its gradient and 8 of AdamW's state.
whole=$((16 * parameters)) limit=$((13 * parameters))

limit_groups $limit
./enter train "${model[@]}" --out one 2>one.err && complain "one rank trains $whole bytes of state in $limit"
limit_groups $limit
$starter -n 4 ./enter train "${model[@]}" --flat --out plain >plain.out 2>&1 &&
    complain "four ranks train in $limit bytes without zero"
limit_groups $limit
$starter -n 4 ./enter train "${model[@]}" --flat --strategy zero --out parts >parts.out 2>&1 ||
    complain "zero=3 in $limit bytes: $(cat parts.out)"
# A stage has its own layers alone. With two shards one rank has two gradients of everything: 20 bytes a parameter.
limit=$((16 * parameters))
"$tutti" train "${model[@]}" --shards 2 --out free-2 || complain "two shards without limits"
limit_groups $limit
./enter train "${model[@]}" --shards 2 --out one-2 2>one.err && complain "one rank trains two shards in $limit"
limit_groups $limit
$starter -n 2 ./enter train "${model[@]}" --shards 2 --strategy pipeline --out stages >stages.out 2>&1 ||
    complain "two stages in $limit bytes: $(cat stages.out)"
# So has a rank that shares them its slices.
limit_groups $limit
$starter -n 2 ./enter train "${model[@]}" --shards 2 --strategy tensor --out slices >slices.out 2>&1 ||
    complain "two ranks with slices in $limit bytes: $(cat slices.out)"
[ -n "$(hash slices)" ] || complain "two ranks with slices have no weights"
same "gpt in little memory" free parts
same "gpt in stages" free-2 stages
finish
