#!/usr/bin/env bash
# plan.sh - plans: every strategy has its line, the choice is one that can run, --strategy auto runs it; what does not fit is
# refused with advice; cluster files.
. "$(dirname "$0")/lib.sh"

# strategy_of FILE: what was chosen; row FILE NAME KEY: a member of the first row of that strategy
strategy_of() { awk -F'"' '/"chosen": /{ split($0, a, /[:,]/); chosen = a[2] + 0 } /\{"strategy"/{ if (n++ == chosen) print $4 }' "$1"; }
row() { grep "\"strategy\": \"$2\"" "$1" | head -1 | sed -n "s/.*\"$3\": \([^,}]*\).*/\1/p"; }

"$tutti" plan mlp -n 2 --threads 1 --seconds 0.1 --json --out plan >plan.json || complain "plan mlp"
cmp -s plan.json plan/plan.json || complain "plan.json is not what --json prints"
grep -q '"measured": true' plan.json || complain "nothing was measured"
for strategy in mirrored multiworker zero central parallax ps asgd ssp easgd localsgd tensor pipeline; do
    [ -n "$(row plan.json $strategy step_ms)" ] || complain "no prediction for $strategy"
done
[ "$(row plan.json asgd exact)" = false ] || complain "asgd passes for synchronous"
[ "$(row plan.json ps exact)" = true ] || complain "ps passes for asynchronous"
# On one machine these are one program, so they have one prediction.
for strategy in multiworker central parallax; do
    [ "$(row plan.json $strategy step_ms)" = "$(row plan.json mirrored step_ms)" ] ||
        complain "$strategy is predicted at $(row plan.json $strategy step_ms) ms, mirrored at $(row plan.json mirrored step_ms)"
done
# Long names move no column.
"$tutti" plan mlp -n 4 --threads 1 --guess >plan.txt || complain "plan mlp -n 4"
[ "$(awk 'match($0, /[0-9]\.[0-9][0-9][0-9]  /) { print RSTART + RLENGTH }' plan.txt | sort -u | wc -l)" = 1 ] ||
    complain "columns of plans: $(cat plan.txt)"
case $(strategy_of plan.json) in
mirrored | multiworker | zero | central | parallax | ps | pipeline | tensor | hybrid) ;;
*) complain "auto picks '$(strategy_of plan.json)'" ;;
esac
grep -q '<svg' plan/plan.html || complain "plan.html has no picture"
grep -q 'stage 1' plan/plan.html || complain "plan.html has no timeline"
"$tutti" plan cnn -n 4 --threads 1 --guess >table.txt || complain "plan cnn"
grep -q '^\* ' table.txt || complain "no row is chosen: $(cat table.txt)"
grep -q 'hybrid dp=2,pp=2 1f1b' table.txt || complain "no hybrid: $(cat table.txt)"
grep -q 'auto picks' table.txt || complain "no reason"

# Guesses are the same on every day.
"$tutti" plan gpt -n 2 --guess --json >one.json && "$tutti" plan gpt -n 2 --guess --json >two.json
cmp -s one.json two.json || complain "two guesses differ"

# Memory: what does not fit is not chosen.
"$tutti" plan gpt -n 4 --batch 4 --guess --memory 1.4e8 --json >small.json || complain "plan gpt"
[ "$(row small.json mirrored fits)" = false ] || complain "gpt fits into 140 MB: $(row small.json mirrored memory)"

# Machines that are not here, up to ten thousand ranks.
cat >cluster.json <<'END'
{ "nodes": 1250, "ranks_per_node": 8, "flops": 1e13, "memory": 64e9,
  "within":  { "latency_us": 2, "gb_per_s": 100 },
  "between": { "latency_us": 10, "message_us": 0.5, "gb_per_s": 12 } }
END
"$tutti" plan gpt --batch 8 --simulate cluster.json --json --out sim >sim.json || complain "simulate"
grep -q '"ranks": 10000, "data_parallel' sim.json || complain "no curve to 10000 ranks"
grep -q 'Predicted throughput' sim/plan.html || complain "no scaling plot"
"$tutti" plan mlp -n 4 --batch 64 --network cluster.json >/dev/null || complain "network"
"$tutti" plan mlp -n 4 --nodes 2 --guess | grep -q 'on 2 machines' || complain "nodes"

echo '{"nodes": 0}' >wrong.json
refused 2 'wrong.json: nodes must be a number' "$tutti" plan mlp --simulate wrong.json
echo 'nodes: 4' >wrong.json
refused 2 'wrong.json: not a cluster file' "$tutti" plan mlp -n 2 --network wrong.json
refused 1 'missing.json' "$tutti" plan mlp -n 2 --network missing.json
refused 2 'one of them' "$tutti" plan mlp -n 2 --nodes 2 --simulate cluster.json
refused 2 'leave out -n' "$tutti" plan mlp -n 2 --simulate cluster.json
refused 2 'cannot be shared out evenly' "$tutti" plan mlp -n 3 --batch 63 --nodes 2
refused 2 'a number above 0' "$tutti" plan mlp --seconds never
refused 2 'no model' "$tutti" plan
refused 2 'auto chooses' "$tutti" train mlp -n 2 --strategy auto --meet ps:1

need_data fashion-mnist
# With rows of shards by weights grids of ranks are refused, so that what is left has the bits of one device.
"$tutti" train mlp -n 2 --threads 1 --strategy auto --shards 4 --balance 1,1 --steps 3 --limit 512 --out auto >/dev/null 2>told.txt || complain "auto"
grep -q 'auto picks' told.txt || complain "auto does not say what it picked"
grep -q '"auto": {"why": ' auto/config.json || complain "config.json does not say why"
chosen=$(sed -n 's/.*"strategy": "\(.*\)",/\1/p' auto/config.json)
[ -n "$chosen" ] && [ "$chosen" != auto ] || complain "config.json has strategy '$chosen'"
"$tutti" train mlp --threads 1 --shards 4 --steps 3 --limit 512 --quiet --out single || complain "single"
same "auto and single" single auto
# A pipeline cut by measured times: the names of layers are kept, the bits are the same.
"$tutti" train mlp -n 2 --threads 1 --strategy pipeline --cut measured --shards 2 --steps 3 --limit 512 --quiet --out cut ||
    complain "cut measured"
grep -q '"cut": "fc[123]"' cut/config.json || complain "the cut is $(grep '"cut"' cut/config.json)"
"$tutti" train mlp --threads 1 --shards 2 --steps 3 --limit 512 --no-factors --quiet --out plain || complain "plain"
same "a measured cut" plain cut
refused 1 'does not fit: a rank needs .* use -n ' "$tutti" train mlp --threads 1 --memory 1.2e7 --batch 512 --steps 1
refused 1 'no way to split it' "$tutti" train mlp --threads 1 --memory 1e3 --steps 1
# Shards fix the bits, so ranks that would round otherwise are not picked.
"$tutti" plan mlp -n 2 --shards 4 --guess >fixed.txt 2>&1 || complain "plan --shards: $(cat fixed.txt)"
grep -q '^  tensor tp=2 .*rounds otherwise' fixed.txt || complain "tensor may be picked with --shards: $(grep tensor fixed.txt)"
"$tutti" plan mlp -n 2 --guess | grep -q 'tensor tp=2 .*rounds otherwise' && complain "tensor is never picked"
finish
