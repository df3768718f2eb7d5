#!/usr/bin/env bash
# rank.sh FOLDER COMMAND... - runs a rank and notes in FOLDER its process (pid.RANK), what it said (err.RANK), how and
# when it ended (end.RANK).
#
# mpirun ends all ranks as soon as one is gone. They are to find out by themselves: so this stays until as many have
# ended as FOLDER/expected says, or some seconds have passed.
folder=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
"$@" 2>"$folder/err.$rank" &
pid=$!
echo $pid >"$folder/pid.$rank"
wait $pid
code=$?
echo "$code ${EPOCHREALTIME/./}" >"$folder/end.tmp.$rank"
mv "$folder/end.tmp.$rank" "$folder/end.$rank"
for _ in $(seq 100); do
    [ "$(ls "$folder"/end.[0-9]* | wc -l)" -ge "$(cat "$folder/expected" 2>/dev/null || echo 1000)" ] && break
    sleep 0.05
done
exit $code
