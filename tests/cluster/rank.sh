#!/usr/bin/env bash
# rank.sh FOLDER STAYS COMMAND... - runs a rank and notes in FOLDER its process (pid.RANK), what it said (err.RANK), how
# and when it ended (end.RANK). The rank is the child of the process that is started here, its guard.
#
# mpirun ends all ranks as soon as one is gone, so that not all come to note their end. If STAYS is 1, this stays until
# all but the one that FOLDER/victim names have ended, or some seconds have passed.
folder=$1
stays=$2
shift 2
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
size=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}
"$@" 2>"$folder/err.$rank" &
pid=$!
echo $pid >"$folder/pid.$rank"
wait $pid
code=$?
echo "$code ${EPOCHREALTIME/./}" >"$folder/end.tmp.$rank"
mv "$folder/end.tmp.$rank" "$folder/end.$rank"
for _ in $(seq 600); do
    [ "$stays" = 1 ] || break
    victim=$(cat "$folder/victim" 2>/dev/null || echo none)
    [ "$(ls "$folder"/end.[0-9]* | grep -cv "end.$victim\$")" -ge $((size - 1)) ] && break
    sleep 0.05
done
exit $code
