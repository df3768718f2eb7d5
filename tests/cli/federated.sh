#!/usr/bin/env bash
# federated.sh - federations in one process: the bits of a single run where there is one step, the same bits on any number of
# threads, every algorithm, secure rounds, privacy, wrong input.
. "$(dirname "$0")/lib.sh"
"$tutti" fed simulate --help >/dev/null 2>&1 || skip "built without federated learning"
need_data fashion-mnist

# A table is opened at once, so most runs are on one: two numbers, one sometimes missing, and a word.
awk 'BEGIN {
    srand(3)
    print "age,pressure,where,label"
    for (i = 0; i < 900; i++) {
        ill = rand() < 0.5
        pressure = rand() < 0.1 ? "" : sprintf("%.1f", 100 + 30 * rand() + 15 * ill)
        printf "%d,%s,%s,%d\n", 30 + 40 * rand() + 8 * ill, pressure, rand() < 0.3 + 0.4 * ill ? "town" : "land", ill
    }
}' >patients.csv
small=(tabular --data ./patients.csv -p 6 --limit 300 --rounds 2 --batch 10 --lr 0.05 --quiet --eval-every 0)
simulate() { # DIR FLAGS...
    local dir=$1
    shift
    "$tutti" fed simulate "${small[@]}" "$@" --out "$dir" || complain "simulate $*"
}

# One step of all samples is a step of one run whose shards the participants are; five are no power of two.
"$tutti" fed simulate mlp -p 5 --limit 300 --rounds 3 --full-batch --partition blocks --lr 0.1 --quiet --out step ||
    complain "simulate step"
"$tutti" train mlp --limit 300 --batch 300 --shards 5 --steps 3 --no-shuffle --optimizer sgd --momentum 0 --lr 0.1 --quiet \
    --out single || complain "train single"
same "one step of everybody" single step
"$tutti" eval step --json >eval.json || complain eval
grep -q "$(hash step)" eval.json || complain "the checkpoint has other weights: $(cat eval.json)"

# Threads do not matter, nor does an anchor that does not pull, nor control variates in their first round.
simulate plain
simulate one --threads 1
simulate three --threads 3
simulate anchored --algorithm fedprox --mu 0
same "threads and anchors" plain one three anchored
simulate first --rounds 1
simulate scaffold --rounds 1 --algorithm scaffold
same "control variates begin with nothing" first scaffold
simulate other --seed 2
[ "$(hash other)" != "$(hash plain)" ] || complain "another seed gives the same weights"

# Text whose samples have one sequence each, of different lengths.
for i in $(seq 200); do
    printf '%d\t%s\n' $((i % 2)) "$(seq -s ' ' $((i % 2 * 50)) $((i % 2 * 50 + i % 90)))"
done >reviews.tsv
"$tutti" fed simulate nbow --data ./reviews.tsv -p 3 --rounds 2 --quiet --out text || complain "simulate nbow"

# What each does is its own.
number=0
for how in "--algorithm fedprox --mu 1" "--algorithm fedavgm" "--algorithm fedadam" "--algorithm fedyogi" \
    "--algorithm scaffold" "--algorithm fedbuff --buffer 3" "--aggregate median" "--aggregate krum:1 --min-participants 5" "--compress int8" \
    "--partition dirichlet:0.3" "--secure" "--per-round 3" "--personal-head" \
    "--dp central --dp-clip 1 --dp-noise 0.1 --weighting equal" "--dp-sgd 1,0.5" \
    "--dp distributed --secure --dp-clip 1 --dp-noise 0.1 --weighting equal"; do
    number=$((number + 1))
    simulate "way-$number" $how
    [ "$(hash "way-$number")" != "$(hash plain)" ] || complain "$how has the bits of plain rounds"
done

# The report tells who has which labels; a budget ends the run.
grep -q 'Labels of participants' plain/report.html || complain "the report has no picture of labels"
"$tutti" fed simulate "${small[@]}" --rounds 50 --dp central --dp-clip 1 --dp-noise 2 --weighting equal --dp-budget 2 \
    --json --out budget >budget.json || complain budget
grep -q '"status": "stopped"' budget/summary.json || complain "the budget did not end the run"

# Tables are standardized by what all have, told in the clear or as a sum alone.
simulate standard --standardize
simulate standard-secure --standardize --secure
loss() { sed -n 's/.*"train_loss": \([0-9]*\.[0-9]\{3\}\).*/\1/p' "$1/summary.json"; }
[ "$(loss standard)" = "$(loss plain)" ] || complain "parts add up to $(loss standard), the whole table has $(loss plain)"
[ "$(loss standard)" = "$(loss standard-secure)" ] || complain "masked they add up to $(loss standard-secure)"

# A participant that falls silent: with a deadline the others go on.
simulate silent --drop 0.2 --deadline 5
# Masked, most rounds are lost, and begin again; if all are, the run ends with what it has.
simulate masked -p 30 --secure --drop 0.1 --deadline 10 --rounds 10
grep -q '"status": "done"' masked/summary.json || complain "lost rounds ended the run"
simulate hopeless --secure --drop 0.9 --deadline 1
grep -q '"why": "[0-9]* rounds are lost.*too few' hopeless/summary.json && grep -q '"status": "stopped"' hopeless/summary.json &&
    [ -s hopeless/report.html ] || complain "nobody answers: $(cat hopeless/summary.json)"
# A signal ends it with what is done.
"$tutti" fed simulate "${small[@]}" --rounds 100000 --out stopped 2>err.txt &
for ((i = 0; i < 200; i++)); do [ -s stopped/metrics.jsonl ] && break || sleep 0.05; done
kill -INT $!
wait $!
[ $? = 130 ] && grep -q '"status": "stopped"' stopped/summary.json && [ -s stopped/report.html ] &&
    grep -q 'stopped by a signal in round' err.txt || complain "a signal: $(cat err.txt)"
simulate late --algorithm fedbuff --buffer 4 --drop 0.5 --deadline 5
refused 2 'buffer 10 above --participants 6' "$tutti" fed simulate "${small[@]}" --algorithm fedbuff --out wrong
refused 2 'give --deadline' "$tutti" fed simulate "${small[@]}" --drop 0.5 --overwrite --out silent
refused 2 'take --min-participants 5' "$tutti" fed simulate "${small[@]}" --aggregate krum:1 --overwrite --out silent
refused 2 'per-round 4.*needs 7' "$tutti" fed simulate "${small[@]}" --aggregate multikrum:1,7 --per-round 4 --out wrong
refused 2 'min-participants 7 above --participants 6' "$tutti" fed simulate "${small[@]}" --min-participants 7 --overwrite --out silent
[ -n "$(hash silent)" ] || complain "a refusal removed the run before it"
refused 2 'iid, blocks' "$tutti" fed simulate "${small[@]}" --partition even --out wrong
refused 2 'two participants\|needs 2 at least\|each needs' "$tutti" fed simulate "${small[@]}" -p 299 --out wrong
refused 2 'sum alone' "$tutti" fed simulate "${small[@]}" --secure --aggregate median --out wrong
"$tutti" fed simulate --help | grep -- '--momentum' | grep -q '(0)' || complain "help has another momentum than rounds"
refused 2 'which model' "$tutti" fed simulate --out wrong
finish
