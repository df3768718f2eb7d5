#!/usr/bin/env bash
# mpirun.sh - ranks that mpirun starts on this machine have the weights of one process.
room=wanted
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
need_mpi

train() { # RANKS DIR ARGUMENTS...
    local ranks=$1 dir=$2
    shift 2
    $starter -n "$ranks" "$tutti" train "$@" --threads 1 --quiet $patient --out "$dir" || complain "$kind -n $ranks: $*"
}

mlp=(mlp --limit 600 --epochs 1 --batch 60 --shards 4 --seed 7)
reference mlp-1 "${mlp[@]}"
cnn=(cnn --limit 256 --epochs 1 --batch 64 --shards 4 --seed 7 --optimizer adamw --clip 0.5)
reference cnn-1 "${cnn[@]}"
for n in 2 4; do
    train $n mlp-$n "${mlp[@]}"
    train $n cnn-$n "${cnn[@]}"
done
same "mlp, 4 shards, $kind" mlp-1 mlp-2 mlp-4
same "cnn, 4 shards, $kind" cnn-1 cnn-2 cnn-4

# Compressed gradients: on one machine that means --flat, whoever starts the ranks.
"$tutti" train "${mlp[@]}" --threads 1 --quiet -n 2 --compress int8 --out mlp-packed || complain "--compress"
train 2 mlp-packed-mpi "${mlp[@]}" --compress int8
same "compressed, $kind" mlp-packed mlp-packed-mpi

# A pipeline, and two of them.
train 3 mlp-pipe "${mlp[@]}" --strategy pipeline
train 4 mlp-grid "${mlp[@]}" --strategy hybrid --pipeline gpipe
same "pipelines, $kind" mlp-1 mlp-pipe mlp-grid

# The last ranks are servers.
train 4 mlp-served "${mlp[@]}" --meet ps:2
train 5 mlp-stages-served "${mlp[@]}" --strategy hybrid --split dp=2,pp=2 --meet ps:1
same "workers and servers, $kind" mlp-1 mlp-served mlp-stages-served

# Rows of tables, clipped: by all machines, by their owners, by servers.
mkdir pairs
for split in train val; do
    awk 'BEGIN { for (i = 0; i < 56; i++) { for (n = 0; n < 3 + i % 5; n++) printf "w%d ", (i * i + 7 * n) % 23; print "" } }' \
        >pairs/$split.de
    tac pairs/$split.de >pairs/$split.en
done
rows=(seq2seq --data ./pairs --batch 28 --epochs 1 --hidden 12 --embedding 8 --shards 4 --seed 7 --clip 0.1)
reference rows-1 "${rows[@]}"
train 4 rows-served "${rows[@]}" --meet ps:2
train 2 rows-parallax "${rows[@]}" --strategy parallax --flat --tables serve
same "clipped rows, $kind" rows-1 rows-served rows-parallax

# tutti starts mpirun itself.
"$tutti" train "${mlp[@]}" -n 2 --hosts localhost --mpirun $starter $patient --threads 1 --quiet --out mlp-hosts ||
    complain "--hosts localhost"
same "--hosts localhost" mlp-1 mlp-hosts

# One of the ranks speaks; a step's tasks and comm/'s algorithms are timed in one job.
$starter -n 2 "$tutti" bench comm $patient --bytes 1024,65536 --json >comm.txt || complain "bench comm"
[ "$(grep -c '"ranks": 2' comm.txt)" = 2 ] || complain "bench comm: $(cat comm.txt)"
[ "$(grep -c '"algorithm": "shared: reduce_scatter+update+all_gather"' comm.txt)" = 2 ] || complain "bench comm: $(cat comm.txt)"
$starter -n 3 "$tutti" bench comm --flat $patient --bytes 65536 --op reduce_scatter,all_gather,broadcast --json >comm.txt || complain "bench comm --flat"
[ "$(grep -o '"algorithm": "messages: [a-z_+]*"' comm.txt | tr -d '\n')" = '"algorithm": "messages: reduce_scatter+update""algorithm": "messages: all_gather"' ] &&
    [ "$(grep -c '"ranks": 3, "nodes": 3' comm.txt)" = 3 ] || complain "bench comm --flat: $(cat comm.txt)"
$starter -n 2 "$tutti" train "${mlp[@]}" -n 3 --out no 2>err.txt && complain "-n 3 under mpirun -n 2"
grep -q -- '-n 3, but .* started 2' err.txt || complain "-n 3: $(cat err.txt)"
[ ! -e no ] || complain "a refused run left a folder"

# Ranks that differ are named, and nothing is trained.
differs() { # TEXT, THEN ARGUMENTS OF RANK 1
    local text=$1
    shift
    $starter -n 1 "$tutti" train "${mlp[@]}" --threads 1 $patient --out differ-$# --overwrite \
        : -n 1 "$tutti" train "$@" --threads 1 $patient --out differ-$# --overwrite 2>err.txt &&
        complain "ranks that differ went on: $*"
    [ "$(grep -c "tutti: rank 1 has another $text" err.txt)" = 1 ] || complain "$text: $(cat err.txt)"
}
differs "lr than rank 0: 0.25, not 0.05" "${mlp[@]}" --lr 0.25
differs "model than rank 0" cnn "${mlp[@]:1}"
# What runs is what the step program lists; one library of MPI is enough for that.
start() { # RANKS WORKERS ARGUMENTS...
    local ranks=$1
    shift 2
    $starter -n "$ranks" "$tutti" train "$@" $patient
}
ways=(--flat)
[ "$kind" = mpich ] || . "$root/tests/tasks.sh"
nothing_left "$kind"
finish
