#!/usr/bin/env bash
# slurm.sh - srun starts the ranks: a Slurm of two nodes, with munge, lives as long as this script.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
need_mpi
for program in slurmctld slurmd srun munged; do
    command -v $program >/dev/null || skip "$program is not installed"
done
add_bridge
add_host alpha 1
add_host beta 2
make_entrance
mount --bind "$work/hosts" /etc/hosts

# How ranks find each other: what Debian's builds of the two can.
case $kind in
openmpi) mpi=pmix ;;
mpich) mpi=pmi2 ;;
esac

chmod 755 "$work" # munge looks at every folder above its socket
mkdir -m 700 munge
mkdir state
head -c 128 /dev/urandom >munge/key
chmod 400 munge/key
munged --force --foreground --key-file="$work/munge/key" --socket="$work/munge.socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" >munge.out 2>&1 &
disown # the room ends it
cat >slurm.conf <<END
ClusterName=room
SlurmctldHost=room
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
TmpFS=$work/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SchedulerType=sched/builtin
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=1
NodeName=alpha,beta CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
END
export SLURM_CONF=$work/slurm.conf
slurmctld -D >slurmctld.out 2>&1 &
disown
for host in alpha beta; do
    "$work/on" $host slurmd -D -N $host >slurmd-$host.out 2>&1 &
    disown
done
for _ in $(seq 100); do
    [ "$(sinfo -h -o '%T %D' 2>/dev/null)" = "idle 2" ] && break
    sleep 0.1
done
if [ "$(sinfo -h -o '%T %D' 2>&1)" != "idle 2" ]; then
    ! grep -q cgroup slurmd-*.out || skip "slurmd finds no control groups: $(grep -h cgroup slurmd-*.out | head -1)"
    tail -n 20 ./*.out
    complain "Slurm did not start: $(sinfo 2>&1)"
    finish
fi

train() { # "-N NODES -n TASKS" DIR ARGUMENTS...
    local shape=$1 dir=$2
    shift 2
    srun $shape --mpi=$mpi --quiet --time=1 "$tutti" train "$@" --threads 1 --quiet $patient --out "$work/$dir" ||
        complain "srun $shape --mpi=$mpi: $*"
}
mlp=(mlp --limit 600 --epochs 1 --batch 60 --shards 4 --seed 7)
reference mlp-1 "${mlp[@]}"
train "-N 1 -n 2" mlp-2 "${mlp[@]}"
train "-N 2 -n 2" mlp-1x2 "${mlp[@]}"
train "-N 2 -n 4" mlp-2x2 "${mlp[@]}"
same "mlp by srun, $kind" mlp-1 mlp-2 mlp-1x2 mlp-2x2

# Tasks that cannot find each other say so.
srun -n 2 --mpi=none --quiet --time=1 "$tutti" train "${mlp[@]}" --out "$work/no" 2>err.txt && complain "srun --mpi=none"
grep -q 'use srun --mpi=pmix' err.txt || complain "srun --mpi=none: $(cat err.txt)"
[ ! -e no ] || complain "a refused run left a folder"

# From inside an allocation, tutti starts mpirun on its nodes.
salloc --quiet -N 2 -n 2 --time=1 "$work/on" alpha "$tutti" train "${mlp[@]}" --hosts slurm --mpirun $starter \
    --launch-agent "$work/agent" --threads 1 --quiet $patient --out "$work/mlp-slurm" || complain "--hosts slurm"
same "--hosts slurm, $kind" mlp-1 mlp-slurm
finish
