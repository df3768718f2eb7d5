#!/usr/bin/env bash
# text.sh - text of one's own is described and imported; what is wrong with it is told in one line.
. "$(dirname "$0")/lib.sh"

works() { "$@" >out.txt 2>err.txt || complain "$*: $(cat err.txt)"; }
says() { grep -q -- "$1" out.txt || complain "no '$1' in: $(head -c 600 out.txt)"; }

# What there is.
mkdir reviews && for i in 1 2 3 4 5 6; do printf '0\tbad film %d\n1\tgood film, really %d\n' $i $i; done >reviews/train.tsv
printf '1\tgood\n0\tbad <br />\n' >reviews/test.tsv
works "$tutti" data info ./reviews && says '12 training, 2 test' && says 'class 1 .* 6 *1$'
works "$tutti" data info ./reviews --json && says '"tokenizer": "words"' && says '"vocabulary": \[12\]'
mkdir pairs && printf 'ein Hund\nzwei Hunde\n' | gzip >pairs/train.de.gz && printf 'a dog\ntwo dogs\n' >pairs/train.en
cp pairs/train.en pairs/test.en && printf 'ein Hund\nzwei Katzen\n' >pairs/test.de
works "$tutti" data info ./pairs && says 'source .* 4 training, 4 test; 7 different'
printf 'To be, or not to be.\nThat is the question.\n' >play.txt
works "$tutti" data info ./play.txt && says 'characters: code points'
works env TUTTI_DATA="$work/imported" "$tutti" data import ./pairs my-pairs
[ -e imported/my-pairs/train.de ] || complain "train.de was not unpacked"
works env TUTTI_DATA="$work/imported" "$tutti" data info my-pairs && says 'source .* 4 training'
# Characters that only the last tenth of a file has: a text without line ends but for its last.
python3 -c "print('ab ' * 400)" >line.txt
works "$tutti" data info ./line.txt && says '1080 training, 121 test; 4 different'
train_line() { works "$tutti" train gpt --data "$@" --width 16 --heads 2 --layers 1 --length 16 --batch 8 --steps 2 --quiet; }
train_line ./line.txt --out line
train_line ./line.txt --min-count 2 --out line-unknown
grep -qx '<unk>' line-unknown/vocabulary.txt || complain "--min-count 2 makes no <unk>"
mkdir files && head -c 1080 line.txt >files/train.txt && tail -c 121 line.txt >files/test.txt
refused 1 'test.txt:1: "\\x0a" is not in the vocabulary of 3 characters.* --min-count 2' \
    "$tutti" train gpt --data ./files --width 16 --heads 2 --layers 1 --length 16 --batch 8 --steps 2 --quiet --out bad-run
train_line ./files --min-count 2 --out files-unknown
works "$tutti" data info ./files && says '1080 training, 121 test; 3 different'

# Reviews of 600 lengths, and 71 batches of them to evaluate, so that there are more plans than are kept at once:
# all ranks agree, and what is counted is what the outputs say, in the order of the data set.
python3 - <<'PY'
import os, random
rng = random.Random(1)
os.makedirs("many")
for name, times in (("train", 1), ("test", 15)):
    with open(f"many/{name}.tsv", "w") as f:
        for length in rng.sample([*range(1, 601)] * times, 600 * times):
            label = rng.randrange(2)
            words = ["good" if label else "bad"] + [f"w{rng.randrange(50)}" for _ in range(length - 1)]
            print(label, " ".join(words), sep="\t", file=f)
PY
for n in 1 3; do
    works "$tutti" train nbow --data ./many --epochs 2 --batch 30 --shards 6 -n $n --threads 1 --lr 0.1 --quiet --out many-$n
done
same "reviews of many lengths" many-1 many-3
works "$tutti" eval many-1 --split test --outputs outputs.safetensors --json && cp out.txt eval.json
python3 - <<'PY' || complain "accuracy is not that of the outputs"
import array, json, struct
raw = open("outputs.safetensors", "rb").read()
size, = struct.unpack("<Q", raw[:8])
head = json.loads(raw[8:8 + size])
def numbers(name, kind):
    begin, end = head[name]["data_offsets"]
    return array.array(kind, raw[8 + size + begin:8 + size + end])
outputs, labels = numbers("outputs", "f"), numbers("labels", "i")
assert len(labels) == 9000 and len(outputs) == 18000
right = sum((outputs[2 * i + 1] > outputs[2 * i]) == labels[i] for i in range(9000))
assert abs(json.load(open("eval.json"))["val_accuracy"] - right / 9000) < 1e-6, right
assert right > 5000, right # short ones are easy, and outputs belong to their labels
PY

# What is wrong.
refused 2 'is text, not images' "$tutti" train mlp --data ./play.txt --out bad-run
refused 2 'is running text; the model learns from text with classes' "$tutti" train nbow --data ./play.txt --out bad-run
refused 2 'attention goes with LSTM cells' "$tutti" train seq2seq --data ./pairs --attention bahdanau --cell gru --out bad-run
refused 2 'unknown tokenizer "wrods": characters, words, gpt2' "$tutti" train nbow --data ./reviews --tokenizer wrods --out bad-run
refused 2 'is text, --report draws images' "$tutti" data info ./reviews --report
printf '0\tgood\n1\tb\xffd\n' >reviews/test.tsv
refused 1 'reviews/test.tsv:2: not UTF-8: byte 10 of the file is 0xff' "$tutti" train nbow --data ./reviews --out bad-run
printf '0\tgood\n2\tbad\n' >reviews/test.tsv
refused 1 'reviews/test.tsv:2: label "2" is none of the 2' "$tutti" train nbow --data ./reviews --out bad-run
printf '' >reviews/test.tsv
refused 1 'reviews/test.tsv: is empty' "$tutti" train nbow --data ./reviews --out bad-run
printf 'no label\n' >reviews/test.tsv
refused 1 'reviews/test.tsv:1: not a label, a tab and text' "$tutti" train nbow --data ./reviews --out bad-run
printf 'one line\n' >pairs/test.de
refused 1 'test.de has 1 lines, .*test.en has 2: they do not belong together' "$tutti" data info ./pairs
gzip -c play.txt | head -c 30 >cut.txt.gz
refused 1 'cut.txt.gz: is cut short' "$tutti" data info ./cut.txt.gz
[ ! -e bad-run ] || complain "a refused run left bad-run"

# A vocabulary that is not the run's.
sed 's/w1 /v1 /g' many/train.tsv >other.tsv
works "$tutti" train nbow --data ./other.tsv --steps 1 --batch 30 --quiet --out other
cp many-1/vocabulary.txt good.txt
cp other/vocabulary.txt many-1/
refused 1 'many-1/vocabulary.txt: is the vocabulary of another run' "$tutti" eval many-1
refused 1 'is the vocabulary of another run' "$tutti" train --resume many-1 --epochs 3
head -c 300 good.txt >many-1/vocabulary.txt
refused 1 'many-1/vocabulary.txt: is cut off' "$tutti" eval many-1
sed 's/good/gud/' good.txt >many-1/vocabulary.txt
refused 1 'many-1/vocabulary.txt: is damaged' "$tutti" eval many-1
rm many-1/vocabulary.txt
refused 1 'many-1/vocabulary.txt' "$tutti" eval many-1
cp good.txt many-1/vocabulary.txt
works "$tutti" eval many-1
finish
