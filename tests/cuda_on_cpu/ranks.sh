#!/usr/bin/env bash
# ranks.sh - ranks that share a GPU, which is a CPU here, have the weights of one; one that dies is named.
# TUTTI_CUDA names the plug-in. What a real GPU is asked for is in tests/gpu.
. "$(dirname "$0")/../cli/lib.sh"
[ -n "${TUTTI_CUDA:-}" ] || skip "TUTTI_CUDA names no plug-in"

for i in $(seq 600); do
    echo "Romeo: $((i * i % 7)) and $((i * i * i % 11))."
done >play.txt
text=(gpt --data ./play.txt --tokenizer characters --layers 2 --heads 2 --width 32 --length 32 --batch 8 --optimizer adamw --lr 0.003
    --steps 4 --threads 1 --shards 4 --clip 0.3 --seed 7 --device cuda --quiet)

# train DIR ARGUMENTS...
train() { timeout 300 "$tutti" train "${text[@]}" --out "$1" "${@:2}" 2>"$1.err" || complain "$1: exit $?: $(tail -3 "$1.err")"; }
train one
train mirrored -n 2
train parts -n 2 --split dp=2,zero=3
train stages -n 2 --strategy pipeline
same "ranks of a GPU" one mirrored parts stages
train fp16 --precision fp16
train fp16-grid -n 4 --precision fp16 --split dp=2,pp=2
same "in fp16" fp16 fp16-grid
[ "$(hash one)" != "$(hash fp16)" ] || complain "fp16 makes no difference"
train slices -n 2 --split tp=2

"$tutti" train "${text[@]}" -n 2 --steps 100000 --log-every 1 --out lost 2>lost.err &
pid=$!
for _ in $(seq 1500); do
    [ -s lost/metrics.jsonl ] && break
    sleep 0.02
done
kill -KILL "$(pgrep -P $pid | tail -1)"
wait $pid
code=$?
[ $code = 3 ] || complain "a killed rank: exit $code"
grep -q 'rank 1 .*kill' lost.err || complain "a killed rank is not named: $(cat lost.err)"
finish
