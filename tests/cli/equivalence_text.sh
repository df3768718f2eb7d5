#!/usr/bin/env bash
# equivalence_text.sh - the same weights to the last bit for models of text, however shards are spread: sequences of
# unequal lengths, gradients of the rows that occur, dropout.
. "$(dirname "$0")/lib.sh"

# Sentences of 3 to 30 words out of 60, frequent ones more often, from a small generator of its own.
sentences() { # SEED COUNT
    awk -v seed="$1" -v count="$2" 'BEGIN {
        for (i = 0; i < count; i++) {
            line = ""
            seed = (seed * 16807) % 2147483647
            for (n = 3 + seed % 28; n > 0; n--) {
                seed = (seed * 16807) % 2147483647
                word = seed % 60
                seed = (seed * 16807) % 2147483647
                if (seed % 2) word = word % 7
                line = line "w" word " "
            }
            print line
        }
    }'
}
mkdir pairs documents plain
for split in train val; do
    sentences 7 150 >pairs/$split.de
    sentences 8 150 >pairs/$split.en
done
for split in train test; do
    sentences 9 300 | awk '{ print (NR % 2 ? "pos" : "neg") "\t" NR % 10 "\t" NR "\t" $0 }' >documents/$split.tsv
done
sentences 10 400 >plain/input.txt

train() { # DIR ARGUMENTS...
    local dir=$1
    shift
    "$tutti" train "$@" --seed 7 --quiet --out "$dir" || complain "train $*"
}
nbow=(nbow --data ./documents --batch 60 --epochs 1 --dim 24)
textcnn=(textcnn --data ./documents --batch 60 --epochs 1 --dim 16 --filters 12)
seq2seq=(seq2seq --data ./pairs --batch 28 --epochs 1 --hidden 24 --embedding 16)
attention=(seq2seq --data ./pairs --batch 28 --epochs 1 --hidden 24 --embedding 16 --attention bahdanau)
gru=(seq2seq --data ./pairs --batch 28 --epochs 1 --hidden 24 --embedding 16 --cell gru)
gpt=(gpt --data ./plain/input.txt --width 32 --layers 2 --heads 2 --length 24 --batch 32 --steps 12 --dropout 0.1)
bert=(bert --data ./plain/input.txt --size tiny --width 32 --length 24 --batch 32 --steps 12 --tokenizer words)
for model in nbow textcnn seq2seq attention gru gpt bert; do
    declare -n arguments=$model
    for n in 1 2 4; do
        train $model-$n "${arguments[@]}" --shards 4 --threads 1 -n $n
    done
    train $model-1x2 "${arguments[@]}" --shards 4 --threads 2
    same "$model, 4 shards" $model-1 $model-2 $model-4 $model-1x2
    train $model-one "${arguments[@]}" --shards 1 --threads 1
    train $model-one-3 "${arguments[@]}" --shards 1 --threads 3
    same "$model, one shard, threads share it" $model-one $model-one-3
done

# Wide enough for the kernels of large products.
large=(gpt --data ./plain/input.txt --width 256 --layers 1 --heads 4 --length 64 --batch 20 --steps 2)
for n in 1 2; do train large-$n "${large[@]}" --shards 4 --threads 1 -n $n; done
train large-1x3 "${large[@]}" --shards 4 --threads 3
same "a wide gpt" large-1 large-2 large-1x3

# Three ranks, clipping, and dense gradients.
train nbow-3 "${nbow[@]}" --shards 6 --threads 1 -n 3
train nbow-6 "${nbow[@]}" --shards 6 --threads 1
same "nbow on three ranks" nbow-3 nbow-6
for n in 1 2; do
    train clip-$n "${seq2seq[@]}" --shards 4 --threads 1 -n $n --clip 1
    train dense-$n "${nbow[@]}" --shards 4 --threads 1 -n $n --dense
done
same "seq2seq, clipped" clip-1 clip-2
same "nbow, dense" dense-1 dense-2
[ "$(hash dense-1)" != "$(hash nbow-1)" ] || complain "--dense makes no difference to Adam"

# Stopped and gone on with, on another number of ranks.
train half "${gpt[@]}" --shards 4 --threads 1 --checkpoint-every 5 --steps 5
"$tutti" train --resume half --steps 12 --strategy mirrored -n 2 --quiet || complain "resume of gpt"
same "gpt, resumed" gpt-1 half

# From a graph file of its own every model trains, is evaluated and goes on with the same bits.
for what in 'documents:nbow --dim 24' 'documents:textcnn --dim 16 --filters 12' 'pairs:seq2seq --hidden 24 --embedding 16' \
    'pairs:seq2seq --hidden 24 --embedding 16 --attention bahdanau' 'plain/input.txt:gpt --width 32 --layers 1 --heads 2 --length 24' \
    'plain/input.txt:bert --size tiny --width 32 --length 24'; do
    data=./${what%%:*} model=${what#*:}
    rm -rf zoo file
    # shellcheck disable=SC2086 # words
    {
        "$tutti" graph $model --data "$data" --format json >file.json || complain "$model: no graph file"
        train zoo $model --data "$data" --limit 64 --batch 32 --epochs 2 --threads 1
        train file file.json --data "$data" --limit 64 --batch 32 --epochs 1 --threads 1
    }
    "$tutti" eval file >/dev/null || complain "$model: eval of a graph file"
    "$tutti" train --resume file --epochs 2 --quiet || complain "$model: resume of a graph file"
    same "$model from a graph file" zoo file
    grep -q '"kind": "eval", "step": ' file/metrics.jsonl || complain "$model: not evaluated"
done
"$tutti" graph seq2seq --hidden 24 --embedding 16 --data ./pairs --format json >file.json
rm -rf file && train file file.json --data ./pairs --limit 64 --batch 32 --steps 1 --threads 1
# Without data a graph has the model's usual vocabulary; what the data have beyond it is refused at once.
"$tutti" graph nbow --dim 8 --vocab 20 --format json >short.json
refused 1 'graph nbow has 20 tokens, the data have [0-9]*: use --vocab 20' "$tutti" train short.json --data ./documents --out short
train short short.json --data ./documents --vocab 20 --limit 64 --batch 32 --steps 1 --threads 1
refused 2 'is a graph file, whose translations' "$tutti" eval file --beam 2
finish
