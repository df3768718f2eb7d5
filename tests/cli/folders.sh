#!/usr/bin/env bash
# folders.sh - a run's folder: whose it is, what it says of the run, what going on may change, and what is refused before a file is touched.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

small=(mlp --limit 128 --batch 32 --threads 1 --quiet)
works() { "$@" >out.txt 2>err.txt || complain "exit $?: $*: $(cat err.txt)"; }
# member FILE KEY: a text or number of a JSON file
member() { sed -n "s/.*\"$2\": \"\{0,1\}\([^\",}]*\).*/\1/p" "$1" | head -1; }

# One process at a time: neither a new run nor one that goes on gets the folder of one that trains.
"$tutti" train "${small[@]}" --steps 100000 --checkpoint-every 50 --slow rank=0,factor=40 --out busy 2>busy.err &
pid=$!
for _ in $(seq 600); do
    compgen -G "busy/checkpoint/step-*" >/dev/null && break
    sleep 0.02
done
refused 2 'in use by another process' timeout 20 "$tutti" train cnn --limit 64 --steps 1 --quiet --out busy --overwrite
refused 2 'in use by another process' timeout 20 "$tutti" train --resume busy --steps 100001 --quiet
kill -KILL $pid
wait $pid 2>/dev/null
newest=$(basename "$(ls -d busy/checkpoint/step-* | tail -1)")
works "$tutti" train --resume busy --steps $((10#${newest#step-} + 3)) --quiet # at once: who was killed keeps nobody away
[ "$(member busy/config.json model)" = mlp ] || complain "busy is another model's: $(member busy/config.json model)"

# Files of others that have a run's names stay.
mkdir mine && echo mine >mine/report.html
refused 2 'report.html already' "$tutti" train "${small[@]}" --steps 1 --out mine
[ "$(cat mine/report.html)" = mine ] || complain "somebody's report.html is gone"
works "$tutti" train "${small[@]}" --steps 1 --out mine --overwrite

# What was split, in words of --split; the command as a shell reads it.
for split in pipeline:2:pp=2 tensor:2:tp=2 hybrid:4:dp=2,pp=2 zero:2:dp=2,zero=3 mirrored:2:dp=2; do
    IFS=: read -r strategy ranks expected <<<"$split"
    works "$tutti" train "${small[@]}" --steps 1 --strategy $strategy -n $ranks --out split --overwrite
    grep -q "\"distribution\": {\"split\": \"$expected\"" split/config.json || complain "$strategy: $(grep distribution split/config.json)"
done
works "$tutti" train "${small[@]}" --steps 1 --out "it's mine"
grep -qF "\"command\": \"tutti train mlp --limit 128 --batch 32 --threads 1 --quiet --steps 1 --out 'it'\\\\''s mine'\"" "it's mine/config.json" ||
    complain "the command: $(grep command "it's mine/config.json")"

# Going on with another optimizer: its own numbers, its state begins.
works "$tutti" train "${small[@]}" --steps 3 --optimizer adamw --out other
works "$tutti" train --resume other --steps 5 --optimizer sgd --quiet
grep -q 'no state of sgd' err.txt || complain "another optimizer: $(cat err.txt)"
[ "$(member other/config.json lr)" = 0.05 ] && [ "$(member other/config.json momentum)" = 0.9 ] || complain "sgd has adamw's numbers"
works "$tutti" train --resume other --steps 6 --quiet
[ ! -s err.txt ] || complain "sgd goes on: $(cat err.txt)"
works "$tutti" train --resume other --steps 7 --optimizer adam --quiet

# What a run had from its beginning.
refused 2 '--init' "$tutti" train --resume other --steps 9 --init x.safetensors
refused 2 '--vocab' "$tutti" train --resume other --steps 9 --vocab 7
# Which samples a step has, their order, and how they are summed: by flags, or by a config.json that somebody wrote.
for flags in '--batch 64' '--seed 2' --no-shuffle --drop-last '--shards 2'; do
    # shellcheck disable=SC2086 # words
    refused 2 "$(cut -d' ' -f1 <<<"${flags/no-/}"): the run in other goes on with what it began with" "$tutti" train --resume other --steps 8 $flags --quiet
done
refused 2 'saved with other training data, now it is --data fashion-mnist: leave that as it was, or begin another run with --init other/checkpoint/step-0*7/weights.safetensors' \
    "$tutti" train --resume other --steps 8 --limit 64 --quiet
for change in 's/"seed": 1,/"seed": 2,/:saved with --seed 1, now it is 2' 's/"shuffle": true/"shuffle": false/:saved with --shuffle, now it is --no-shuffle' \
    's/"drop_last": false/"drop_last": true/:saved with --no-drop-last, now it is --drop-last' 's/"batch": 32/"batch": 64/:saved with --batch 32, now it is 64' \
    's/"shards": 1,/"shards": 2,/:saved with --shards 1, now it is 2'; do
    rm -rf written && cp -r other written
    sed -i "${change%%:saved*}" written/config.json
    refused 2 "saved${change##*:saved}" "$tutti" train --resume written --steps 8 --quiet
done
# A checkpoint by an earlier version does not say all of it.
rm -rf written && cp -r other written
python3 - written <<'PY'
import glob, hashlib, json, sys
newest = sorted(glob.glob(sys.argv[1] + "/checkpoint/step-*"))[-1]
state = json.load(open(newest + "/state.json"))
for key in "seed", "shuffle", "drop_last", "shards":
    assert key in state, key
    del state[key]
text = json.dumps(state).encode()
open(newest + "/state.json", "wb").write(text)
manifest = json.load(open(newest + "/manifest.json"))
manifest["files"]["state.json"] = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
json.dump(manifest, open(newest + "/manifest.json", "w"))
PY
works "$tutti" train --resume written --steps 8 --quiet
works "$tutti" train --resume other --steps 8 --quiet
same "a checkpoint by an earlier version" other written

# Lines that nobody can read are left out, the others stay.
sed -i '1s/.*/{"kind": "tr/' other/metrics.jsonl
lines=$(wc -l <other/metrics.jsonl)
works "$tutti" train --resume other --steps 9 --quiet
! grep -q '"tr$' other/metrics.jsonl && [ "$(wc -l <other/metrics.jsonl)" -gt $((lines - 2)) ] || complain "metrics: $(wc -l <other/metrics.jsonl) of $lines lines"

# From any folder; and a model's file that is another one now.
works "$tutti" graph mlp --data fashion-mnist --format json
mkdir elsewhere && cp out.txt elsewhere/own.json
works env -C elsewhere "$tutti" train own.json --data fashion-mnist --limit 64 --steps 1 --quiet --out run
works "$tutti" eval elsewhere/run --limit 10
[ ! -s err.txt ] || complain "from another folder: $(cat err.txt)"
sed -i 's/relu/tanh/' elsewhere/own.json
works "$tutti" eval elsewhere/run --limit 10
grep -q 'own.json has changed' err.txt || complain "a changed model: $(cat err.txt)"

# Runs of every distribution are evaluated.
for flags in '--strategy asgd -n 2 --spares 1' '--strategy tensor -n 2 --sequence-parallel' '-n 2 --flat --compress int8 --compress-after 1' --drop-last; do
    # shellcheck disable=SC2086 # words
    works "$tutti" train "${small[@]}" --steps 2 $flags --out apart --overwrite
    works "$tutti" eval apart --limit 10
done

# A wish to stop in the last step is no stop; at an epoch's end the evaluation is made.
"$tutti" train "${small[@]}" --epochs 50 --slow rank=0,factor=30 --out stopped 2>stopped.err &
pid=$!
for _ in $(seq 600); do
    grep -qs '"kind": "eval"' stopped/metrics.jsonl && break
    sleep 0.02
done
kill -INT $pid
wait $pid
step=$(member stopped/summary.json steps)
[ $((${step:-1} % 4)) != 0 ] || grep -q "\"kind\": \"eval\", \"step\": $step" stopped/metrics.jsonl || complain "stopped after step $step without its evaluation"
refused 1 'not a finite number' "$tutti" train "${small[@]}" --steps 3 --lr 300 --out nan
finish
