#!/usr/bin/env bash
# servers.sh - parameter servers: the bits of one process where workers wait for each other, and of one worker whatever
# it does; checkpoints, stops, loss of a server; what is refused.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train --threads 1 --seed 7 --quiet "$@" --out "$dir" || complain "train $*"
}

# Uneven shards at the end of an epoch, dropout, AdamW; 1, 2 and 3 servers, with and without shared memory.
cnn=(cnn --limit 300 --batch 60 --shards 4 --optimizer adamw --epochs 1)
train cnn-1 "${cnn[@]}"
train cnn-mirrored "${cnn[@]}" -n 2
train cnn-2-1 "${cnn[@]}" -n 2 --strategy ps
train cnn-3-2 "${cnn[@]}" -n 3 --meet ps:2 --threads 2
train cnn-2-3 "${cnn[@]}" -n 2 --meet ps:3 --sync bounded:0
train cnn-flat "${cnn[@]}" -n 2 --meet ps:2 --flat
same "cnn with servers" cnn-1 cnn-mirrored cnn-2-1 cnn-3-2 cnn-2-3 cnn-flat
scores() { grep -oE '"val_(loss|accuracy|auc)": [0-9.]*' "$1/summary.json"; } # workers share evaluations
for run in cnn-2-1 cnn-3-2 cnn-flat; do
    [ "$(scores cnn-1)" = "$(scores $run)" ] || complain "evaluation differs: $(scores cnn-1), $(scores $run)"
done
for what in '"servers": \[' '"staleness": \[' '"clocks": \['; do
    grep -q "$what" cnn-2-1/summary.json || complain "no $what in summary.json"
done
grep -q 'Parameter servers' cnn-2-1/report.html || complain "no servers in report.html"

# Running averages, and texts: rows of tables.
normed=(resnet18 --width 4 --data fashion-mnist --limit 64 --epochs 1 --batch 32 --shards 4)
train normed-1 "${normed[@]}"
train normed-2 "${normed[@]}" -n 2 --strategy ps
same "resnet18 with a server" normed-1 normed-2
mkdir documents pairs
for split in train test; do
    awk 'BEGIN { s = 9; for (i = 0; i < 90; i++) { printf "%s\t%d\t%d\t", i % 2 ? "pos" : "neg", i % 10, i
        for (n = 2 + i % 9; n > 0; n--) { s = (s * 16807) % 2147483647; printf "w%d ", s % 40 % (1 + s % 30) }; print "" } }' \
        >documents/$split.tsv
done
for split in train val; do
    cut -f 4 documents/train.tsv >pairs/$split.de
    tac pairs/$split.de >pairs/$split.en
done
nbow=(nbow --data ./documents --batch 30 --epochs 1 --dim 20 --shards 6)
seq2seq=(seq2seq --data ./pairs --batch 30 --epochs 1 --hidden 12 --embedding 8 --shards 3)
train nbow-1 "${nbow[@]}"
train nbow-2 "${nbow[@]}" -n 2 --meet ps:2
train nbow-3 "${nbow[@]}" -n 3 --meet ps:3 --threads 2 --flat
same "nbow with servers" nbow-1 nbow-2 nbow-3
train seq2seq-1 "${seq2seq[@]}"
train seq2seq-3 "${seq2seq[@]}" -n 3 --meet ps:2
same "seq2seq with servers" seq2seq-1 seq2seq-3

# Clipped by the norm of rows and dense gradients together: servers tell each other their squares.
for model in nbow seq2seq; do
    declare -n arguments=$model
    train $model-clip "${arguments[@]}" --clip 0.1
    train $model-clip-2 "${arguments[@]}" --clip 0.1 -n 3 --meet ps:2
    train $model-clip-flat "${arguments[@]}" --clip 0.1 -n 3 --meet ps:3 --flat --replicas 2
    train $model-clip-rows "${arguments[@]}" --clip 0.1 -n 3 --strategy parallax --flat --tables serve
    train $model-clip-central "${arguments[@]}" --clip 0.1 -n 3 --strategy central
    same "$model, clipped" $model-clip $model-clip-2 $model-clip-flat $model-clip-rows $model-clip-central
    [ "$(hash $model-clip)" != "$(hash $model-1)" ] || complain "--clip makes no difference to $model"
done

# One worker never has old parameters.
train alone-async "${cnn[@]}" --sync async
train alone-bounded "${cnn[@]}" --strategy ssp
train alone-nbow "${nbow[@]}" --strategy asgd
same "one worker" cnn-1 alone-async alone-bounded
same "one worker, nbow" nbow-1 alone-nbow

# How far a fast worker gets ahead of a slow one is what --sync says, whatever the strategy is called.
spread() { # SYNC LEAST MOST
    train "ahead-$1" "${cnn[@]}" --steps 12 -n 2 --meet ps:1 --sync "$1" --slow rank=1,factor=10
    local ahead
    ahead=$(sed -n 's/.*"largest_spread": \([0-9]*\).*/\1/p' "ahead-$1/summary.json")
    [ "$ahead" -ge "$2" ] && [ "$ahead" -le "$3" ] || complain "--sync $1: $ahead steps ahead, for $2 to $3"
}
spread step 0 1
spread bounded:2 1 2
spread bounded:4 3 4
spread async 5 12

# Servers hold the state of the optimizer: it is in the checkpoint, which loads in any layout.
train resumed "${cnn[@]}" --steps 2 -n 2
"$tutti" train --resume resumed --steps 3 --strategy ps --quiet || complain "resume with a server"
"$tutti" train --resume resumed --steps 4 --meet ps:2 --quiet || complain "resume with two servers"
"$tutti" train --resume resumed --steps 5 --strategy single --meet none -n 1 --quiet || complain "resume without servers"
same "resumed with and without servers" cnn-1 resumed
"$tutti" eval cnn-2-3 >/dev/null || complain "eval"

# A signal stops all workers after the same step; then all is saved.
"$tutti" train "${cnn[@]}" --epochs 1000 -n 2 --strategy ps --threads 1 --quiet --log-every 1 --out stopped 2>err.txt &
pid=$!
until [ -s stopped/metrics.jsonl ] || ! kill -0 $pid; do :; done
kill -TERM $pid
wait $pid && complain "a stopped run ends with 0"
grep -q 'continue with tutti train --resume stopped' err.txt || complain "stop: $(cat err.txt)"

# A server that is lost is named, and what there is to go on from.
"$tutti" train "${cnn[@]}" --epochs 1000 -n 1 --strategy ps --threads 1 --quiet --checkpoint-every 2 --out lost 2>err.txt &
pid=$!
until ls -d lost/checkpoint/step-000000000??? >/dev/null 2>&1 || ! kill -0 $pid; do :; done
kill -KILL "$(pgrep -P $pid | tail -n 1)"
wait $pid && complain "a run without its server ends with 0"
grep -q 'rank 1 .*serv.*: go on from step [0-9]* with tutti train --resume lost' err.txt || complain "lost: $(cat err.txt)"

# With two replicas nothing is lost with a server; a worker that dies leaves others that do not wait for it.
# TUTTI_FAULTS is how often a server is killed (1), at any moment; TUTTI_FAULTS_SEED repeats a sequence.
killed() { # DIR RANK MILLISECONDS ARGUMENTS...
    local dir=$1 rank=$2 late=$3 pid
    shift 3
    "$tutti" train "${cnn[@]}" --threads 1 --seed 7 --quiet --checkpoint-every 2 "$@" --out "$dir" 2>err.txt &
    pid=$!
    until ls -d "$dir"/checkpoint/step-000000000??? >/dev/null 2>&1 || ! kill -0 $pid; do :; done
    sleep "0.$(printf '%03d' "$late")"
    kill -KILL "$(pgrep -P $pid | sed -n $((rank + 1))p)"
    wait $pid || complain "$dir: $(cat err.txt)"
    grep -q "rank $rank .*: the others go on" err.txt || complain "$dir: nobody says that rank $rank is lost: $(cat err.txt)"
}
RANDOM=${TUTTI_FAULTS_SEED:-$$}
echo "TUTTI_FAULTS_SEED=${TUTTI_FAULTS_SEED:-$$}"
train unharmed "${cnn[@]}" --steps 200
for i in $(seq "${TUTTI_FAULTS:-1}"); do
    servers=$((2 + RANDOM % 2)) victim=$((2 + RANDOM % 2)) late=$((RANDOM % 100)) policy=$((RANDOM % 4))
    if [ $policy != 0 ]; then # every push that was acknowledged is in the weights: they are those of an unharmed run
        killed replicated $victim $late --steps 200 -n 2 --meet ps:$servers --replicas 2
        same "server $victim of $servers was killed after $late ms" unharmed replicated
    else
        killed replicated $victim $late --steps 200 -n 2 --sync async --meet ps:$servers --replicas 2
        [ "$(grep -c '"rank": [01], "steps": 200' replicated/summary.json)" = 2 ] || complain "async: steps of workers: $(cat replicated/summary.json)"
    fi
    rm -rf replicated
done
killed deserted 1 0 --steps 25 -n 2 --strategy asgd --slow rank=1,factor=30
grep -q '"rank": 0, "steps": 25' deserted/summary.json && grep -q '"rank": 1, .*"lost": true' deserted/summary.json || complain "a lost worker is not in summary.json"

# What was trained is counted: a lost worker's steps end, those of a step that went on without its slowest are left out.
counted() { # DIR: as many samples as its workers ticked steps of
    python3 - "$1" <<'PY' || complain "$1: samples $(sed -n 's/.*"samples": //p' "$1/summary.json")"
import json, sys
summary = json.load(open(sys.argv[1] + "/summary.json"))
per_step = summary["batch"] // summary["ranks"]
last = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")][-1]
trained = per_step * sum(worker["steps"] for worker in summary["workers"])
sys.exit(summary["samples"] != trained or last["samples"] != trained or trained >= summary["steps"] * summary["batch"])
PY
}
counted deserted
train dropped "${cnn[@]}" --steps 6 -n 3 --strategy ps --backup 1 --slow rank=2,factor=20
python3 - <<'PY' || complain "dropped: $(sed -n 's/.*"samples": //p' dropped/summary.json) samples"
import json, sys
summary = json.load(open("dropped/summary.json"))
sys.exit(not summary["samples"] < summary["steps"] * summary["batch"])
PY

# Rank 1 is slow, so that it has steps left for its spare when it is killed.
killed relieved 1 0 --steps 60 -n 2 --strategy asgd --spares 1 --slow rank=1,factor=30
grep -q 'rank 2 takes the place of rank 1 at step' err.txt || complain "no spare: $(cat err.txt)"
grep -q '"rank": 2, "steps": 60, .*"spare": "used"' relieved/summary.json || complain "the spare is not in summary.json"

# What is drawn, and what is refused.
"$tutti" graph nbow --strategy ps -n 2 >graph.txt && grep -q 'push(' graph.txt || complain "no push in the graph"
"$tutti" graph nbow --strategy ps -n 2 --format svg >graph.svg && grep -q 'pull' graph.svg || complain "no pull in the picture"
no() { refused 2 "$1" "$tutti" train mlp --steps 1 --out never "${@:2}"; }
no 'bounded:-1: must be' --sync bounded:-1
no 'ps:0: must be' --meet ps:0
no '65 servers are not between' --meet ps:65
refused 2 '40 servers are more than' "$tutti" train nbow --data ./documents --dim 1 --batch 30 --steps 1 --meet ps:40 --out never
no '--clip 1: a push is applied slice by slice' --strategy asgd --clip 1
no '--clip 1: a push is applied slice by slice' --strategy ssp --clip 1
no '--optimizer lamb: no server' --strategy asgd --optimizer lamb
no '--backup and strategy mirrored' -n 2 --strategy mirrored --backup 1
no '--replicas and strategy single' --replicas 2
no '--spares and strategy mirrored' -n 2 --spares 1
no '--spares needs --sync async' -n 2 --strategy ps --spares 1
no 'unequal parts' -n 2 --strategy asgd --shards 3 --batch 63 --spares 1
no '--staleness-lr and strategy ps: no gradient is late' --strategy ps --staleness-lr
no '--balance auto' -n 2 --shards 4 --strategy ps --balance auto
no '--sync-batch-norm' -n 2 --strategy ps --sync-batch-norm
no '--compress' -n 2 --strategy ps --compress int8
[ ! -e never ] || complain "a refused run left a folder"
# Steps of workers with parameters of their own are measured through their regime.
for strategy in ps asgd "ssp --flat" easgd localsgd "gossip --flat" "hybrid --meet ps:1"; do
    # shellcheck disable=SC2086 # a name, and a flag
    works "$tutti" bench train mlp --batch 48 -n 2 --threads 1 --windows 1 --json --strategy $strategy &&
        says '"samples_per_s": [1-9]' && says '"bytes_per_step": [1-9]'
done
finish
