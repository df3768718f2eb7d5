#!/usr/bin/env bash
# tables.sh - kernels of a GPU by a table: `bench tune` makes one, --kernels and the user's own are followed and recorded, one that the
# GPU cannot follow is refused. Little work: tests/cuda_on_cpu runs this, too.
. "$(dirname "$0")/../cli/lib.sh"
"$tutti" devices | grep -q '^cuda *[0-9]' || skip "no device cuda: $("$tutti" devices | grep '^cuda')"

for i in $(seq 40); do
    echo "Romeo: $((i * i % 7)) and $((i * i * i % 11))."
done >play.txt
text=(gpt --data ./play.txt --tokenizer characters --layers 1 --heads 2 --width 32 --length 32 --batch 4 --steps 3 --seed 7 --threads 1
    --quiet)
# train DIR ARGUMENTS...
train() {
    TUTTI_LOG=debug timeout 300 "$tutti" train "${text[@]}" "${@:2}" --out "$1" 2>"$1.err" || complain "$1: exit $?: $(tail -3 "$1.err")"
}
# kernel DIR OP: that runs the op first
kernel() { sed -n "s/^debug: \([a-z_0-9]*\)  *$2 .*/\1/p" "$1.err" | head -1; }

"$tutti" bench kernel "linear 8x16 4x16 4" --device cuda --precision f32 --json >rows.txt || complain "bench kernel fails"
grep -q '"kernel": "cublaslt", "us": [0-9.]*}' rows.txt || complain "bench kernel: $(cat rows.txt)"
"$tutti" bench tune logistic --batch 8 --device cuda >tuned.txt || complain "bench tune fails"
grep -q 'kernels-cuda.json' tuned.txt || complain "bench tune: $(tail -1 tuned.txt)"
grep -q '"device": "cuda"' "$HOME/.config/tutti/kernels-cuda.json" || complain "no table: $(cat "$HOME/.config/tutti/kernels-cuda.json")"
[ ! -e "$HOME/.config/tutti/kernels.json" ] || complain "the cpu's table was written"

# The problem of the first attention, as it is called, and another kernel for it than the usual one.
train usual --device cuda
problem=$(sed -n 's/^debug: [a-z_0-9]* *\(attention [^ ].*\)/\1/p' usual.err | head -1)
[ "$(kernel usual attention)" != own ] || complain "the usual kernel of attention is own: choose another one here"
printf '{ "device": "cuda", "choices": { "bf16 %s": "own" } }\n' "$problem" >table.json
train chosen --device cuda --kernels table.json
[ "$(kernel chosen attention)" = own ] || complain "the table is not followed: $(kernel chosen attention)"
cp table.json "$HOME/.config/tutti/kernels-cuda.json"
train own --device cuda
same "the user's own table" chosen own
train none --device cuda --kernels none
same "no table" usual none
train other --device cuda --precision f32
[ "$(kernel other attention)" = "$(kernel none attention)" ] || [ "$(kernel other attention)" = own ] || complain "f32: $(kernel other attention)"

# Another one's tables change nothing; runs go from device to device with them.
train here --device cpu --kernels table.json
train plain --device cpu --kernels none
same "a GPU's table on the cpu" here plain
timeout 300 "$tutti" train --resume here --device cuda --steps 5 --quiet 2>resumed.err || complain "resumed: $(cat resumed.err)"

for line in '"attention 1x1": "own"' '"bf16 attention": "own"' '"bf16 relu 3x4": 7'; do
    echo "{ \"device\": \"cuda\", \"choices\": { $line } }" >wrong.json
    refused 1 'wrong.json' "$tutti" train "${text[@]}" --device cuda --kernels wrong.json --out never
done
echo '{ "device": "gpu", "choices": {} }' >wrong.json
refused 1 'is not cuda' "$tutti" train "${text[@]}" --device cuda --kernels wrong.json --out never
printf '{ "device": "cuda", "choices": { "bf16 %s": "nobody" } }\n' "$problem" >wrong.json
refused 1 'nobody' "$tutti" train "${text[@]}" --device cuda --kernels wrong.json --out never
finish
