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

# A table is imported under a name: a folder, one file, and files of a known name.
(
    export TUTTI_DATA=$work/kept
    "$tutti" data import ./table mine && cmp kept/mine/train.csv table/train.csv && cmp kept/mine/test.csv table/test.csv &&
        "$tutti" data import ./good.csv small && cmp kept/small/train.csv good.csv &&
        "$tutti" train logistic --data small --batch 2 --epochs 1 --quiet --out imported &&
        mkdir uci && python3 -c 'for i in range(20): print(i, "MB"[i % 2], *range(30), sep=",")' >uci/wdbc.data &&
        "$tutti" data import ./uci breast-cancer-wisconsin && "$tutti" train tabular --data breast-cancer-wisconsin --batch 4 --epochs 1 --quiet --out wdbc
) >out.txt 2>&1 || complain "a table is not imported: $(cat out.txt)"
refused 2 '--label d: no column' "$tutti" train logistic --data good.csv --label d
refused 2 '--fold 6/5' "$tutti" train logistic --data good.csv --fold 6/5
refused 2 'are for tables' "$tutti" train mlp --label c
refused 2 'is no table' "$tutti" train logistic --data fashion-mnist
refused 1 'good.csv: has no column age' "$tutti" train tabular.json --data good.csv --out no
"$tutti" train logistic --data good.csv --label b --categories c --skip-columns 1 --fold 2/2 --batch 2 --quiet --out flags || complain "flags of tables"
# A Unix time has more digits than a float: the same weights as of seconds from 0, also after a stop, and of LIBSVM's files.
python3 - <<'PY'
for name, first in (("near", 0), ("far", 1700000000)):
    rows = [(first + i % 40, i % 40 < 20) for i in range(200)]
    open(name + ".csv", "w").write("time,when\n" + "".join(f"{t},{'early' if e else 'late'}\n" for t, e in rows))
    open(name + ".svm", "w").write("".join(f"{'-1' if e else '+1'} 1:{t}\n" for t, e in rows))
PY
times="--batch 20 --lr 0.5 --optimizer sgd --threads 1 --quiet"
for name in near far; do "$tutti" train logistic --data $name.csv $times --epochs 20 --out $name || complain "$name"; done
"$tutti" train logistic --data far.csv $times --epochs 10 --out half || complain "half of it"
"$tutti" train --resume half --epochs 20 --quiet || complain "the other half"
same "a constant in a column" near far half
"$tutti" eval far --json | grep -q '"val_accuracy": 1,' || complain "eval of times: $("$tutti" eval far --json)"
python3 - <<'PY' || complain "an axis of AUC goes beyond 1"
import re
plots = [f for f in re.findall("<figure.*?</figure>", open("far/report.html").read(), re.S) if ">AUC<" in f]
ticks = [float(t) for f in plots for t in re.findall(r">(\d\.\d+)<", f)]
assert plots and ticks and max(ticks) <= 1, (len(plots), ticks)
PY
# Statistics of runs from before were floats.
python3 - <<'PY'
import json, struct
table = json.load(open("far/table.json"))
table["statistics"] = [struct.unpack("f", struct.pack("f", x))[0] for x in table["statistics"]]
json.dump(table, open("far/table.json", "w"))
PY
"$tutti" eval far --json 2>err.txt | grep -q '"val_accuracy": 1,' && [ ! -s err.txt ] || complain "statistics as floats: $(cat err.txt)"
"$tutti" train logistic --data far.svm $times --epochs 20 --out svm 2>err.txt || complain "far.svm"
grep -q 'far.svm: column 1 is standardized, not taken as it is' err.txt && grep -q '"val_accuracy": 1,' svm/summary.json || complain "times of LIBSVM: $(cat err.txt)"
# A schema from elsewhere may have a center that is far off, or want numbers as they are: that is said.
"$tutti" graph logistic --data near.csv --format json >near.json || complain "graph of near.csv"
"$tutti" train near.json --data far.csv $times --epochs 1 --out cut 2>err.txt || complain "a center that is far off"
grep -q 'column time: 160 of 160 numbers are more than a million scales away' err.txt || complain "numbers that are cut: $(cat err.txt)"
sed 's/"name": "time",/"name": "time", "plain": true,/' near.json >plain.json
"$tutti" train plain.json --data far.csv $times --epochs 1 --out plain 2>err.txt || complain "numbers as they are"
grep -q 'column time is taken as it is.*lose digits' err.txt || complain "plain numbers: $(cat err.txt)"
{ echo time,when; for i in $(seq 60); do echo "170000000000000000$((i % 2)),$([ $((i % 4)) = 0 ] && echo a || echo b)"; done; } >long.csv
"$tutti" data info long.csv 2>err.txt >out.txt || complain "data info of long numbers"
grep -q 'column time: its numbers.*digits behind the 16th, which are lost' err.txt || complain "long numbers: $(cat err.txt)"
# Whole numbers below 2^53, such as microseconds, lose nothing. An outlier leaves the other rows no
# digits in single precision.
python3 - <<'PY'
def write(name, times):
    lines = [f"{t},{'early' if i % 40 < 20 else 'late'}\n" for i, t in enumerate(times)]
    open(name + ".csv", "w").write("time,when\n" + "".join(lines))
write("micro", [1700000000000000 + i % 40 * 10 for i in range(200)])
write("outlier", [-99999999999999] + [1700000000 + i % 40 for i in range(1, 200)])
PY
"$tutti" train logistic --data micro.csv $times --epochs 20 --out micro 2>err.txt || complain "micro.csv"
[ ! -s err.txt ] && grep -q '"val_accuracy": 1,' micro/summary.json ||
    complain "times in microseconds: $(cat err.txt)"
"$tutti" train logistic --data outlier.csv $times --epochs 1 --out outlier 2>err.txt || complain "outlier.csv"
grep -q 'column time: [0-9]* of [0-9]* numbers that differ from the row before' err.txt ||
    complain "an outlier: $(cat err.txt)"

# What a file leaves open is said, or refused.
python3 - <<'PY'
import random
random.seed(5)
def write(name, head, rows):
    open(name, "w").write(head + "\n" + "".join(",".join(map(str, r)) + "\n" for r in rows))
write("price.csv", "a,price", [(i % 7, random.random()) for i in range(90)])
write("key.csv", "a,key", [(i % 7, f"k{i}") for i in range(40)])
write("index.csv", ",a,kind", [(i, random.random(), "xy"[i % 2]) for i in range(40)])
write("stray.csv", "a,kind", [(i if i != 9 else "none", "xy"[i % 2]) for i in range(40)])
write("wide.csv", "a,b,kind", [(f"k{i}", i, "xy"[i % 2]) for i in range(60)])
write("many.csv", "a,kind", [(i if i != 9 else "none", "xy"[i % 2]) for i in range(2000)])
write("empty.csv", "a,b,kind", [(i % 7, "", "xy"[i % 2]) for i in range(40)])
write("constant.csv", "a,b,kind", [(i % 7, 0.1, "xy"[i % 2]) for i in range(40)])
write("case.csv", "a,kind", [(i % 7, "xyY"[i % 3]) for i in range(40)])
write("rare.csv", "a,kind", [(i, "xy"[i % 2] if i != 9 else "z") for i in range(40)])
PY
refused 2 'price.csv: label column price has 90 different numbers in 90 rows, and tutti classifies' "$tutti" train logistic --data price.csv
refused 2 'many.csv:11: column a has "none" among 1999 numbers' "$tutti" train logistic --data many.csv
refused 2 'key.csv: label column key has another value in each of 40 rows' "$tutti" train logistic --data key.csv
warns() { # PATTERN DATA: one warning
    "$tutti" train logistic --data "$2" --epochs 1 --batch 8 --quiet --out warned --overwrite 2>err.txt || complain "$2: $(cat err.txt)"
    [ "$(wc -l <err.txt)" = 1 ] && grep -q "^warning: .*$1" err.txt || complain "no '$1' alone: $2: $(cat err.txt)"
}
warns 'index.csv:1: column 1 has no name and is called c1' index.csv
"$tutti" data info index.csv 2>/dev/null | grep -q 'a *number' || complain "a name is missing: $("$tutti" data info index.csv)"
warns 'stray.csv:11: column a has "none" among numbers' stray.csv
warns 'empty.csv: column b holds nothing and is left out' empty.csv
warns 'case.csv: label column kind has classes Y and y' case.csv
warns 'wide.csv: column a has 60 different texts in 60 rows' wide.csv
warns 'constant.csv: column b is 0.1 in all [0-9]* training rows' constant.csv
warns 'rare.csv: 1 of 3 classes (the first: z) have no training sample' rare.csv

sed 's/"op": "linear"/"op": "push"/' tabular.json >wrong.json
refused 1 'wrong.json: .*its op is none' "$tutti" train wrong.json $short --out no
finish
