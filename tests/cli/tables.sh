#!/usr/bin/env bash
# tables.sh - tables: losses, AUC and calibration as PyTorch's (tests/golden/README.md); the same bits from a graph file, on
# two ranks and after a stop; what is wrong with a table is said by line and column.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

python3 - "$tutti" "$root/tests/golden/tables.json" <<'PY' || complain "results differ from PyTorch's"
import json, os, subprocess, sys
tutti, path = sys.argv[1:]
golden = json.load(open(path))
os.mkdir("table")
for name, text in golden["files"].items():
    open("table/" + name, "w").write(text)
failures = 0
for name, run in golden["models"].items():
    flags = ["--data", "./table", "--no-shuffle", "--shards", 1, "--batch", golden["batch"], "--steps", golden["steps"],
             "--seed", golden["seed"], "--log-every", 1, "--optimizer", "sgd", "--lr", run["lr"], "--momentum", 0, "--weight-decay", 0]
    subprocess.run([tutti, "train", name, *map(str, flags), "--quiet", "--out", name], check=True)
    ours = [json.loads(l)["train_loss"] for l in open(name + "/metrics.jsonl") if '"train"' in l]
    assert len(ours) == golden["steps"]
    error = max(abs(a - b) / abs(b) for a, b in zip(ours, run["losses"]))
    said = json.loads(subprocess.run([tutti, "eval", name, "--json"], check=True, capture_output=True).stdout)
    figures = [("accuracy", said["val_accuracy"], 1e-9), ("auc", said["val_auc"], 1e-9),
               ("calibration_error", said["val_calibration_error"], 1e-5)]
    summary = json.load(open(name + "/summary.json"))
    worst = [k for k, ours, most in figures if not abs(ours - run[k]) <= most]
    print(f"{name}: losses differ by {error:.1e}; {worst or 'figures agree'}")
    failures += error > 1e-5 or bool(worst) or summary["val_auc"] != said["val_auc"] or len(summary["calibration"]) < 2
sys.exit(failures > 0)
PY

# A graph file has the bits of the model it was made from, with dropout and without; of a table it has the schema, too.
"$tutti" graph tabular --data ./table --dropout 0.2 --hidden 9 --format json >tabular.json || complain "graph file of a table"
grep -q '"categories": \["blue", "green", "red"\]' tabular.json || complain "no schema in the graph file"
short="--data ./table --epochs 3 --batch 16 --quiet"
"$tutti" train tabular --dropout 0.2 --hidden 9 $short --out named || complain "tabular"
"$tutti" train tabular.json $short --out from-file || complain "training from a graph file"
"$tutti" train tabular.json $short -n 2 --threads 1 --shards 2 --out two || complain "two ranks"
"$tutti" train tabular --dropout 0.2 --hidden 9 $short --shards 2 --out one || complain "one rank"
same "graph file" named from-file
same "graph file on two ranks" one two
"$tutti" train tabular.json --data ./table --epochs 3 --batch 16 --quiet --steps 30 --out stopped || complain "30 steps"
"$tutti" train --resume stopped --steps 0 --quiet || complain "resume from a graph file"
same "resumed" named stopped
cp table/test.csv other.csv
"$tutti" eval from-file --data other.csv --json | grep -q '"val_auc"' || complain "eval on another table"
grep -q Calibration from-file/report.html || complain "no calibration in the report"
refused 2 "graph file" "$tutti" generate from-file
"$tutti" data info ./table | grep -q 'kind *category' || complain "data info of a table"
"$tutti" data info ./table --json | python3 -c 'import json, sys; d = json.load(sys.stdin); assert d["features"] == 6' || complain "data info --json"

printf 'a,b\n1,x\n2,y\n3\n' >short.csv
refused 1 'short.csv:4: 1 columns' "$tutti" train logistic --data short.csv
printf 'a,b,c\n1,x,0\n2,y,1\n1,x,0\n2,y,1\n' >good.csv
refused 2 '--label d: no column' "$tutti" train logistic --data good.csv --label d
refused 2 '--fold 6/5' "$tutti" train logistic --data good.csv --fold 6/5
refused 2 'are for tables' "$tutti" train mlp --label c
refused 2 'is no table' "$tutti" train logistic --data fashion-mnist
refused 1 'good.csv: has no column age' "$tutti" train tabular.json --data good.csv --out no
"$tutti" train logistic --data good.csv --label b --categories c --skip-columns 1 --fold 2/2 --batch 2 --quiet --out flags || complain "flags of tables"
sed 's/"op": "linear"/"op": "push"/' tabular.json >wrong.json
refused 1 'wrong.json: .*its op is none' "$tutti" train wrong.json $short --out no
finish
