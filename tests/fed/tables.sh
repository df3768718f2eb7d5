#!/usr/bin/env bash
# tables.sh - a federation on tables: standardized by what all have, masked or not; its model can be tested anywhere. The
# hospitals of examples/hospitals, if their data are here.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

# Three clinics whose patients differ; the last column follows from the others.
python3 - <<'PY'
import random
random.seed(5)
for clinic, (count, age) in enumerate(((120, 30), (200, 55), (80, 70))):
    with open(f"clinic{clinic}.csv", "w") as out:
        out.write("age,kind,dose,sick\n")
        for _ in range(count):
            a, d, k = random.gauss(age, 9), random.gauss(clinic, 1), random.choice("abc")
            sick = (a - 50) / 10 + d + (k == "a") + random.gauss(0, 0.5) > 1
            out.write(f"{a if random.random() < 0.9 else '?'},{k},{d},{'yes' if sick else 'no'}\n")
PY
{ cat clinic0.csv; tail -q -n +2 clinic1.csv clinic2.csv; } >all.csv
how="--batch 20 --lr 0.2 --momentum 0 --optimizer sgd"

# Masks cancel: the secure federation ends where the plain one does.
for name in plain secure; do
    "$tutti" fed simulate logistic --data all.csv -p 5 --partition blocks --rounds 8 --min-participants 5 --per-round 5 --epochs 2 $how --standardize \
        $([ $name = plain ] || echo --secure) --quiet --out "$name" || complain "simulate $name"
done
"$tutti" train logistic --data all.csv --epochs 16 $how --quiet --out pooled || complain "pooled"
python3 - <<'PY' || complain "federated on a table is not as pooled"
import json
said = {name: json.load(open(name + "/summary.json")) for name in ("plain", "secure", "pooled")}
loss = {name: s["val_loss"] for name, s in said.items()}
print(loss)
assert abs(loss["plain"] - loss["secure"]) < 1e-3 and abs(loss["plain"] - loss["pooled"]) < 0.05
PY

# Times: 0 to 39 seconds after a moment. A center that is far off leaves sums of floats nothing of the deviation.
for first in 0 100000 1700000000; do
    { echo time,when && for i in $(seq 0 199); do echo "$((first + i % 40)),$([ $((i % 40)) -lt 20 ] && echo early || echo late)"; done; } >"from$first.csv"
done
"$tutti" fed simulate logistic --data from1700000000.csv -p 2 --rounds 5 --epochs 4 --batch 20 --lr 0.5 --standardize --secure --quiet --out times 2>err.txt || complain "simulate times"
grep -q '"val_accuracy": 1,' times/summary.json && [ ! -s err.txt ] || complain "times in a federation: $(cat err.txt times/summary.json)"
"$tutti" graph logistic --data from0.csv --format json >from0.json || complain "graph file of times"
"$tutti" fed simulate from0.json --data from100000.csv -p 2 --rounds 1 --standardize --quiet --out far 2>err.txt || complain "a center that is far off"
[ "$(wc -l <err.txt)" = 1 ] && grep -q "column time: .*lie so far from the schema's center 19.5" err.txt || complain "a center that is far off: $(cat err.txt)"

# Processes: the coordinator has no table, the model says what columns are.
"$tutti" graph logistic --data all.csv --format json >logistic.json || complain "graph file"
enrol clinic0 clinic1 clinic2
lead state --model logistic.json --rounds 3 --min-participants 3 --per-round 3 --epochs 4 $how --standardize --seed 3
for i in 0 1 2; do join "clinic$i" --data "clinic$i.csv" --give-up 20; done
for i in 0 1 2; do ends "clinic$i"; done
ends state
grep -q 'round 3 of 3 is done' state.log && ! grep -q 'round 4' state.log || complain "rounds: $(cat state.log)"
"$tutti" eval state/model.json --weights state/model.safetensors --data all.csv --json >eval.json || complain "eval of the federation's model"
python3 -c 'import json; assert json.load(open("eval.json"))["val_auc"] > 0.85' || complain "the federation learnt little: $(cat eval.json)"

if has_data heart-disease; then
    # One round is too few to be as good as pooled training: it is about the way there.
    FOLDS=2 ROUNDS=1 EPOCHS=8 "$root/examples/hospitals/run.sh" "$tutti" hospitals >out.txt 2>&1
    grep -q 'accuracy: federated .* above the mean of alone .*: yes' out.txt || complain "hospitals: $(tail -n 8 out.txt)"
    [ "$(wc -l <hospitals/results.jsonl)" = 60 ] && [ -s hospitals/hospitals.html ] || complain "hospitals: no page"
else
    leave_out "examples/hospitals: data set heart-disease is not here"
fi
finish
