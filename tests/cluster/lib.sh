# lib.sh - for the scripts in this folder: a room of their own, hosts in it, and MPI's starters.
#
# A script is called as those of tests/cli are; its fourth argument is the MPI: openmpi or mpich.
#
# `enter_room` begins the script again in namespaces of its own: processes, mounts, network, shared memory, hostname.
# Whatever happens, also kill -9, all of it goes with the script: daemons, interfaces, folders, segments.
# A host is a network namespace in that room, with an address on a bridge, a hostname and a /dev/shm of its own.
# A script that needs no hosts says `room=wanted` first: where namespaces are not permitted it runs without them, and its
# processes are told from others by a variable in their environment.

skip_early() { echo "skipped: $*"; exit 77; }

enter_room() { # ARGUMENTS OF THE SCRIPT...
    local apart=(unshare --mount --net --pid --ipc --uts --fork --kill-child --mount-proc) why=""
    if [ -z "${CLUSTER_ROOM:-}" ]; then
        if [ "$(id -u)" != 0 ]; then
            why="namespaces need root"
        elif ! command -v ip >/dev/null; then
            why="ip (iproute2) is not installed"
        elif ! "${apart[@]}" mount -t tmpfs none /mnt 2>/dev/null; then
            why="namespaces are not permitted here"
        fi
        [ -n "$why" ] || CLUSTER_ROOM=1 TMPDIR=/mnt exec "${apart[@]}" bash "$0" "$@"
        [ "${room:-needed}" = wanted ] || skip_early "$why"
        echo "note: $why: this runs among other processes"
        export CLUSTER_MARK=$$-$RANDOM
        return
    fi
    mount -t tmpfs none /mnt && mount -t tmpfs none /run && mount -t tmpfs none /dev/shm || skip_early "no tmpfs here"
    ip link set lo up
    hostname room
}
enter_room "$@"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cli/lib.sh"
kind=${4:-openmpi}

# What Open MPI asks of tests that run as root, on few cores, in a folder that vanishes.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

# starter: mpirun or mpiexec of $kind
case $kind in
openmpi) starter=mpirun.openmpi ;;
mpich) starter=mpiexec.mpich ;;
*) complain "$kind: openmpi or mpich"; finish ;;
esac
need_mpi() {
    command -v $starter >/dev/null || skip "$starter is not installed"
    ls "$build"/tutti-mpi-$kind.so >/dev/null 2>&1 || skip "tutti is built without $kind"
}
build=${3:-$(dirname "$tutti")}

# The machine may be busy with other things; scripts that are about something else have patience.
patient="--lost-after 30"

# reference DIR ARGUMENTS...: a run on one process, to compare others with
reference() {
    local dir=$1
    shift
    "$tutti" train "$@" --strategy single --threads 1 --quiet --out "$dir" || complain "single: $*"
}

# Hosts ------------------------------------------------------------------------------------

# add_bridge: the room itself is on it, as 10.77.0.254
add_bridge() {
    [ -e /etc/hosts ] || skip "there is no /etc/hosts, over which names of hosts are mounted"
    ip link add cluster type bridge && ip addr add 10.77.0.254/24 dev cluster && ip link set cluster up ||
        skip "bridges are not permitted here"
    printf '127.0.0.1 localhost\n10.77.0.254 room\n' >"$work/hosts"
}
# add_host NAME NUMBER: a machine with the address 10.77.0.NUMBER
add_host() {
    ip netns add "$1" && ip link add "wire-$1" type veth peer name eth0 netns "$1" || skip "no veth pairs here"
    ip link set "wire-$1" master cluster up
    ip -n "$1" addr add "10.77.0.$2/24" dev eth0
    ip -n "$1" link set eth0 up
    ip -n "$1" link set lo up
    mkdir "$work/tmp-$1"
    echo "10.77.0.$2 $1" >>"$work/hosts"
}
# make_entrance: $work/on HOST COMMAND... runs a command on a host; $work/agent does for mpirun, which quotes it for a
# shell. UCX takes all hosts of one kernel for one machine, but for what goes by System V's shared memory, of which
# each has its own: so it is told to use that, and the wire.
make_entrance() {
    cat >"$work/on" <<END
#!/usr/bin/env bash
host=\$1
shift
exec nsenter --net="/run/netns/\$host" unshare --uts --mount --ipc bash -c '
    hostname "\$0" && mount -t tmpfs none /dev/shm && mount --bind "$work/hosts" /etc/hosts &&
        UCX_TLS=tcp,self,sysv UCX_NET_DEVICES=eth0 TMPDIR="$work/tmp-\$0" exec "\$@"' "\$host" "\$@"
END
    cat >"$work/agent" <<END
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
exec "$work/on" "\$host" bash -c "cd '$work' && exec \$*"
END
    chmod +x "$work/on" "$work/agent"
}
# limit_wires TC ARGUMENTS...: a queueing discipline on what every host receives and sends
limit_wires() {
    local host
    for host in $(ip netns list | sed 's/ .*//'); do
        tc qdisc replace dev "wire-$host" root "$@" 2>tc.err &&
            tc -n "$host" qdisc replace dev eth0 root "$@" 2>tc.err || return 1
    done
}
free_wires() {
    local host
    for host in $(ip netns list | sed 's/ .*//'); do
        tc qdisc del dev "wire-$host" root
        tc -n "$host" qdisc del dev eth0 root
    done 2>/dev/null
}

# lengthen_wire HOST MICROSECONDS: all that it sends and receives comes that much later
lengthen_wire() {
    ip link add "long-$1" type veth peer name "port-$1" && ip link set "wire-$1" nomaster &&
        ip link set "long-$1" up && ip link set "port-$1" master cluster up || return 1
    "$build/tests/cluster/delay" "wire-$1" "long-$1" "$2" >"delay-$1.out" 2>&1 &
    disown # the room ends it
    for _ in $(seq 100); do
        grep -q ready "delay-$1.out" && return 0
        sleep 0.02
    done
    return 1
}
# sent_by HOST: bytes that it has sent
sent_by() { awk -v name="wire-$1:" '$1 == name { print $2 }' /proc/net/dev; }

# What is left -----------------------------------------------------------------------------

# Processes of the room but this script, which is its first, and what it runs to find out. Without a room: those that this script
# started.
others() {
    [ -n "${CLUSTER_MARK:-}" ] && others_marked && return
    ps -e -o pid=,stat=,args= | awk '$1 != 1 && $2 !~ /^Z/ && !/ps -e -o|awk .*ps -e/ && !/'"${0##*/}"'/'
}
others_marked() {
    local folder pid
    for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        grep -qsz "^CLUSTER_MARK=$CLUSTER_MARK\$" "$folder/environ" && [ "$pid" != $BASHPID ] || continue
        [[ $(tr '\0' ' ' <"$folder/cmdline") == *"${0##*/}"* ]] || ps -o pid=,stat=,args= -p "$pid" | awk '$2 !~ /^Z/'
    done 2>/dev/null
    return 0
}
nothing_left() { # TEXT
    local until=$((SECONDS + 6)) left
    left=$(others)
    while [ -n "$left" ] && [ $SECONDS -lt $until ]; do
        sleep 0.05
        left=$(others)
    done
    [ -z "$left" ] || complain "$1: left: $left"
    [ -n "${CLUSTER_MARK:-}" ] || [ -z "$(ls -A /dev/shm)" ] || complain "$1: shared memory is left: $(ls -A /dev/shm)"
}
