#!/usr/bin/env bash
# commands.sh - the documented commands, as people type them.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist

works() { "$@" >out.txt 2>err.txt || complain "$*: $(cat err.txt)"; }
says() { grep -q -- "$1" out.txt || complain "no '$1' in: $(head -c 600 out.txt)"; }

works "$tutti" --version
works "$tutti" --help
says 'tutti COMMAND'
for command in train eval generate graph bench report compare models strategies data devices; do
    works "$tutti" "$command" --help
    says usage:
    works "$tutti" help "$command"
done
works "$tutti" train --help
says 'graph file' && says '--flip .*probability 1/2' && says '--sync .*local:H' && says '--meet .*allreduce'
grep -q 'every other image' out.txt && complain "train --help: --flip says every other image"
grep -nE ' $|^  --.{27,} {2}[a-z]' out.txt && complain "train --help: a flag runs into its text, or a space ends a line"
works "$tutti" help --help && says 'tutti COMMAND'
for command in simulate coordinator join; do
    works "$tutti" fed "$command" --help
    says usage:
    grep -q 'passes over the data (3)\|samples a step, over all ranks (64)' out.txt && complain "fed $command tells train's defaults"
done
says '--out FILE'
works "$tutti" models && says cnn
works "$tutti" models cnn && says '421642' && says 'dropout' && says 'conv2d' && says '128x3136, 128'
works env LC_ALL=C "$tutti" models "$root/examples/my_model.c" && says '^  o-+  pool1' && says '^  o-+  skip'
works env LC_ALL=C.UTF-8 "$tutti" models "$root/examples/my_model.c" && says '●─╯  skip'
works "$tutti" models cnn --svg cnn.svg && says cnn.svg
works "$tutti" models gpt --size 124m --vocab 50257 --length 1024 && says 124439808 && says '; 124m)' && says '1024 tokens of 50257'
works "$tutti" models gpt --layers 2 --width 64 --heads 2 --json && says '"name": "layers", "value": 2'
works "$tutti" models --help && says 'own options are flags'
grep -q '<svg' cnn.svg || complain "models --svg draws nothing"
works "$tutti" models cnn --json
python3 - <<'PY' || complain "models --json"
import json
m = json.load(open("out.txt"))
assert m["parameters"] == sum(l["parameters"] for l in m["layers"]) == 421642
assert m["weights"]["conv1.weight"] == [32, 1, 3, 3] and m["options"][0]["name"] == "dropout"
assert 2.5 < m["training_flops"] / m["flops"] < 3.2
assert [l["from"] for l in m["layers"][1:]] == [[i] for i in range(len(m["layers"]) - 1)]
PY
works "$tutti" strategies && says mirrored && says ' central$' && says ' update serve async$' && says '^bounded  '
[ "$(awk '$1 == "with" && $2 == "--flat:"' out.txt)" = "   with --flat: ... hierarchy" ] || complain "strategies: $(cat out.txt)"
awk '/^ / && !/known as/ && length > 100' out.txt >long.txt && [ ! -s long.txt ] || complain "long lines: $(cat long.txt)"
works "$tutti" devices && says "^cpu   0  .* cores" && says "^cuda  "
works env TUTTI_CUDA=/nowhere/tutti-cuda.so "$tutti" devices && says "^cuda  -  TUTTI_CUDA: /nowhere"
works "$tutti" data list && says fashion-mnist
[ "$(grep -o '.* classes' out.txt | awk '{ print length }' | sort -u | wc -l)" = 1 ] || complain "columns of data list"
lines=$(wc -l <out.txt)
works "$tutti" data list --json
python3 - $lines <<'PY' || complain "data list --json"
import json, os, sys
sets = {s["name"]: s for s in map(json.loads, open("out.txt"))}
assert len(sets) == int(sys.argv[1]), (len(sets), sys.argv)
s = sets["fashion-mnist"]
assert (s["train"], s["test"], s["sample"], s["classes"], s["format"]) == (60000, 10000, [1, 28, 28], 10, "idx"), s
assert os.path.isdir(s["folder"]) and s["can_fetch"] is True, s
assert sets["shakespeare"]["train"] is sets["shakespeare"]["sample"] is sets["shakespeare"]["classes"] is None
PY
refused 2 'data list takes no --report' "$tutti" data list --report
refused 2 'data list takes no --from' "$tutti" data list --from http://localhost
refused 2 'data info takes no --from' "$tutti" data info fashion-mnist --from http://localhost
refused 2 'data fetch takes no --report' "$tutti" data fetch mnist --report
refused 2 'data fetch takes no --json' "$tutti" data fetch mnist --json
refused 2 'data import takes no --json' "$tutti" data import ./nothing mine --json
works "$tutti" data info fashion-mnist && says 'Ankle boot'
works "$tutti" data info fashion-mnist --report && says '^fashion-mnist.html$'
works "$tutti" data info fashion-mnist --json --report page.html && says '"report": "page.html"'
cmp -s fashion-mnist.html page.html || complain "two pages about one data set differ"
for part in 'Samples of each class' 'Pixel values' 'Ankle boot' '<td>0.2860</td><td>0.3530</td>' 'data:image/png;base64,'; do
    grep -q -- "$part" page.html || complain "page.html has no $part"
done
works "$tutti" graph mlp && says sgd_update
works "$tutti" graph mlp --optimizer lamb && says 'trust_ratio(' && says 'lamb_direction('
# Linear scaling: from the rate of the base batch in equal steps to that of this one.
works "$tutti" train mlp --limit 600 --batch 60 --lr 0.01 --scale-lr --base-batch 15 --warmup 4 --log-every 1 --steps 5 \
    --quiet --out scaled
[ "$(sed -n 's/.*"lr": \([0-9.]*\).*/\1/p' scaled/metrics.jsonl | tr '\n' ' ')" = "0.0175 0.025 0.0325 0.04 0.04 " ] ||
    complain "rates of --scale-lr: $(grep -o '"lr": [0-9.]*' scaled/metrics.jsonl)"
grep -q '"scaled_lr": 0.04,' scaled/config.json || complain "config.json has no scaled rate"
grep -q 'scaled_lr' scaled/report.html || complain "report.html has no scaled rate"
works "$tutti" graph cnn --strategy pipeline -n 2 && says '^rank 0 of 2$' && says ' update' && ! grep -q 'fc2.weight.*update' out.txt
works "$tutti" graph cnn --strategy pipeline -n 2 --rank 1 && says '^rank 1 of 2$' && says 'bucket1.update f32\[401'
works "$tutti" graph cnn --strategy pipeline -n 2 --rank 1 --after model && ! grep -q update out.txt || complain "--after model --rank 1: $(cat out.txt)"
refused 2 'ranks 0 to 1' "$tutti" graph cnn --strategy pipeline -n 2 --rank 2
# The list of passes follows from the flags: levels between nodes, degrees of synchrony, one copy.
works "$tutti" graph cnn --strategy mirrored -n 2 && ! grep -q between_nodes out.txt || complain "mirrored has levels: $(cat out.txt)"
works "$tutti" graph cnn --strategy mirrored -n 2 --flat && says 'reduce_scatter(.*levels=within_node,between_nodes$'
works "$tutti" graph cnn --strategy ps -n 2 --sync async && says '= push(.*when=at_once$' && says '= pull(.*when=at_once$'
works "$tutti" graph cnn --strategy ps -n 2 --sync bounded:5 && says '= push(.*when=at_once$' && says '= pull(.*when=bounded:5$'
works "$tutti" graph cnn --strategy ssp -n 2 --sync bounded:0 && says '= push(.*when=step$' && says '= pull(.*when=step$'
works "$tutti" graph cnn --strategy ssp -n 2 --after lower && says 'pull bucket 0 (slowest worker at most 3 steps behind)'
works "$tutti" graph cnn --strategy central -n 2 --after lower && says 'reduce_scatter+update bucket' && ! grep -q all_gather out.txt ||
    complain "central gathers: $(cat out.txt)"
refused 2 'one copy (strategy central) are on one node' "$tutti" graph cnn --strategy central -n 2 --flat --after lower
refused 2 'one copy (strategy central) are on one node' "$tutti" train mlp --strategy central -n 2 --flat --steps 1 --limit 64 --out apart
works "$tutti" graph mlp --after model && says 'softmax_cross_entropy'
# Operations and bytes of a step, here and on a GPU that need not be there: 2 * 64 * (2 * 222000 + 26000) for products.
works "$tutti" graph mlp --batch 64 --shards 1 && says '^ in all: 61[0-9]\{6\} operations, [0-9]* bytes read and written$'
here=$(sed -n 's/^ in all: .* operations, \([0-9]*\) bytes.*/\1/p' out.txt)
works "$tutti" graph mlp --batch 64 --device cuda && says 'softmax_loss(' && says '^ in all: 61[0-9]\{6\} operations'
there=$(sed -n 's/^ in all: .* operations, \([0-9]*\) bytes.*/\1/p' out.txt)
[ "$there" -lt "$here" ] || complain "a step in bf16 moves $there bytes, in f32 $here"
works "$tutti" graph cnn --strategy mirrored -n 2 --format dot && says digraph
works "$tutti" graph cnn --strategy mirrored -n 2 --format svg && says '<svg'
works "$tutti" train mlp --steps 60 --limit 4000 --out run && says report.html
works "$tutti" eval run && says accuracy
works "$tutti" report run && says report.html
works "$tutti" compare run other=run --out compare.html && says 'the same weights to the last bit'
works "$tutti" compare run run2=run --json && says '"verdict": "same"'
refused 2 'nothing to compare' "$tutti" compare run
refused 2 'named twice' "$tutti" compare run ./run
cp -r run repeated # the same weights again say nothing of results
works "$tutti" compare run repeated && says '(2 runs' && ! grep 'accuracy.*±' out.txt || complain "a repeated run counts twice: $(cat out.txt)"
refused 1 nowhere "$tutti" compare run nowhere
works "$tutti" train cnn --dropout 0.1 --steps 10 --limit 1000 -n2 --batch=32 --json --out json
python3 -c 'import json; [json.loads(l) for l in open("out.txt")]' || complain "--json is not JSON lines"
works "$tutti" bench train mlp --batch 64 --threads 1 --windows 1 --json
for key in model batch ranks threads device samples_per_s step_ms step_ms_p10 step_ms_p90 peak_bytes; do
    says "\"$key\""
done
works "$tutti" bench train mlp -n 2 --threads 1 --windows 1 --trace --out traced && says 'traced/trace.json'
works "$tutti" bench scale mlp --ranks 2,1 --threads 1 --rounds 1 --windows 1 --out scaling && says 'weak scaling' && says efficiency
grep -q 'Bytes of a step and rank' scaling/scale.html || complain "scale.html has no plot"
works "$tutti" bench scale mlp --ranks 1,2 --strong --rounds 1 --windows 1 --json
python3 - <<'PY' || complain "bench scale --json"
import json
lines = [json.loads(line) for line in open("out.txt")]
assert [l["ranks"] for l in lines if l["bench"] == "scale"] == [1, 2]
assert lines[0]["efficiency"] == 1 and lines[0]["batch"] == lines[1]["batch"] == 64
assert len(lines[1]["rank_wait"]) == len(lines[1]["rank_made_wait"]) == 2 and lines[1]["bytes_per_step"] > 0
PY
works "$tutti" train cnn --steps 6 --limit 400 -n 2 --threads 1 --trace --trace-steps 2:5 --log-every 2 --out seen
python3 - <<'PY' || complain "trace.json"
import json
trace = json.load(open("seen/trace.json"))
events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
assert {e["pid"] for e in events} == {0, 1}
assert {"compute", "communication", "step", "evaluation", "checkpoint"} <= {e["cat"] for e in events}
steps = {e["args"]["step"] for e in events if e["cat"] == "compute"}
assert steps == {2, 3, 4}, steps
assert all("kernel" in e["args"] for e in events if e["cat"] == "compute" and e["name"].startswith("conv"))
for rank in (0, 1): # events of a lane follow each other
    lane = sorted((e["ts"], e["dur"]) for e in events if e["pid"] == rank and e["tid"] == 1 and e["cat"] != "wait")
    assert all(a[0] + a[1] <= b[0] + 0.002 for a, b in zip(lane, lane[1:])), rank
metrics = [json.loads(line) for line in open("seen/metrics.jsonl")]
assert all("hidden_share" in m and m["bytes_sent"] > 0 for m in metrics if m["kind"] == "train")
ranks = json.load(open("seen/summary.json"))["rank_times"]
assert len(ranks) == 2 and all(r["made_wait_s"] >= 0 and r["bytes_sent"] > 0 for r in ranks)
assert "Whom the other ranks waited for" in open("seen/report.html").read()
PY
works "$tutti" bench comm -n 2 --bytes 8,4096 --json
for key in op transport algorithm bytes ranks nodes us us_p90 bytes_sent optimum; do
    says "\"$key\""
done
works "$tutti" bench comm -n 2 --bytes 4096 --op all_reduce,broadcast --algorithm all
works "$tutti" bench comm -n 2 --bytes 4096 --algorithm auto && says ' shared'
works "$tutti" bench comm -n 2 --bytes 65536 --codec all
works "$tutti" bench data fashion-mnist --batch 100 --crop 4 --flip --cutout 8 --threads 2 --windows 1 --json
for key in data batch threads crop flip cutout samples_per_s samples_per_s_p10 samples_per_s_p90 mb_per_s floor_samples_per_s floor_mb_per_s; do
    says "\"$key\""
done
works "$tutti" bench data --windows 1 fashion-mnist && says 'augmentation none' && says 'writing alone'
works "$tutti" bench kernel 'linear 8x16 4x16 4 relu' && says reference
works "$tutti" bench tune mlp --batch 8 --threads 1 --write kernels.json --json && says '"kernel": "' && ! grep -qv '^{.*}$' out.txt || complain "bench tune --json: $(head -2 out.txt)"
works "$tutti" bench tune mlp --batch 8 --threads 1 --write kernels.json && says written
works "$tutti" train mlp --steps 4 --limit 100 --batch 8 --threads 1 --kernels kernels.json --out tuned
folder=$("$tutti" data list | grep -o '/.*fashion-mnist$')
works env TUTTI_DATA="$work/imported" "$tutti" data import "$folder" my-fashion
works env TUTTI_DATA="$work/imported" "$tutti" data info my-fashion && says '60000 training'
works env TUTTI_DATA="$work/imported" "$tutti" data list && says "^my-fashion  *idx .*$work/imported/my-fashion$"
works env TUTTI_DATA="$work/imported" "$tutti" data list --json && says '"name": "my-fashion", "format": "idx", "train": null'
python3 - <<'PY'
import os, struct, zlib
def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
for split in ("train", "val"):
    for shade, label in enumerate(("cat", "dog")):
        os.makedirs(f"pets/{split}/{label}")
        for i in range(8):
            rows = b"".join(b"\0" + bytes([100 * shade + i] * 28) for _ in range(28))
            with open(f"pets/{split}/{label}/{i}.png", "wb") as file:
                file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0))
                           + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
PY
works "$tutti" data info ./pets && says 'class 1   dog  *8  *8'
works "$tutti" train mlp --data ./pets --steps 4 --batch 8 --threads 1 --quiet --out pets-run
works env TUTTI_DATA="$work/imported" "$tutti" data import ./pets pets
works env TUTTI_DATA="$work/imported" "$tutti" data info pets && says 'numpy' && says 'class 1   dog  *8  *8'

for file in config.json metrics.jsonl summary.json report.html graph.svg; do
    [ -s "run/$file" ] || complain "run/$file is missing"
done
python3 - <<'PY' || complain "a file of the run is not valid JSON"
import json
json.load(open("run/config.json")), json.load(open("run/summary.json"))
PY

# The manual is well-formed.
if command -v groff >/dev/null; then
    [ -z "$(groff -man -Tutf8 -ww -z "$root/docs/man/tutti.1" 2>&1)" ] || complain "docs/man/tutti.1: $(groff -man -Tutf8 -ww -z "$root/docs/man/tutti.1" 2>&1 | head -3)"
else
    leave_out "the manual: no groff"
fi
finish
