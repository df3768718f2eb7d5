#!/usr/bin/env bash
# generate.sh - a small gpt writes and a small seq2seq translates; what is asked wrongly is refused.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

works() { "$@" >out.txt 2>err.txt || complain "$*: $(cat err.txt)"; }
says() { grep -q -- "$1" out.txt || complain "no '$1' in: $(head -c 600 out.txt)"; }

# A text that is easily learnt, with characters of several bytes; and a language whose words are those of
# another, one by one.
python3 - <<'PY'
import os, random
rng = random.Random(5)
with open("play.txt", "w", encoding="utf-8") as f:
    for i in range(1500):
        f.write(f"Romeo: äh, {rng.choice(['ja', 'nein', 'süß'])}.\nJulia: öh — {rng.choice(['gut', 'naja'])}!\n")
words = {"ein": "a", "mann": "man", "hund": "dog", "rennt": "runs", "schläft": "sleeps", "und": "and", "grün": "green"}
os.mkdir("pairs")
for split, count in (("train", 3000), ("val", 60), ("test", 60)):
    with open(f"pairs/{split}.de", "w", encoding="utf-8") as de, open(f"pairs/{split}.en", "w", encoding="utf-8") as en:
        for _ in range(count):
            chosen = [rng.choice(list(words)) for _ in range(rng.randrange(2, 6))]
            de.write(" ".join(chosen).capitalize() + ".\n")
            en.write(" ".join(words[w] for w in chosen).capitalize() + ".\n")
PY

# A model that goes on with a text ------------------------------------------------------------
works "$tutti" train gpt --data ./play.txt --tokenizer characters --layers 2 --heads 2 --width 32 --length 32 --batch 16 \
    --optimizer adamw --lr 0.003 --steps 300 --threads 1 --quiet --out gpt
works "$tutti" eval gpt && says 'perplexity' && says 'tokens/s'
works "$tutti" eval gpt --json && cp out.txt eval.json
works "$tutti" generate gpt --prompt 'Romeo:' --length 80 && cp out.txt one.txt
grep -q '^80 tokens in .* tokens/s$' err.txt || complain "no speed: $(cat err.txt)"
works "$tutti" generate gpt --prompt 'Romeo:' --length 80 --seed 1 --threads 2 && cmp -s one.txt out.txt ||
    complain "the same seed writes another text"
works "$tutti" generate gpt --prompt 'Romeo:' --length 80 --seed 2 && ! cmp -s one.txt out.txt ||
    complain "another seed writes the same text"
works "$tutti" generate gpt --prompt 'Romeo:' --length 80 --temperature 0 && cp out.txt greedy.txt
works "$tutti" generate gpt --prompt 'Romeo:' --length 80 --top-k 1 --seed 9 && cmp -s greedy.txt out.txt ||
    complain "the likeliest tokens differ"
printf 'Romeo:' | "$tutti" generate gpt --length 80 >out.txt 2>err.txt && cmp -s one.txt out.txt ||
    complain "a prompt on standard input differs: $(cat err.txt)"
works "$tutti" generate gpt --prompt 'Romeo:' --length 80 --json && cp out.txt gpt.json
python3 - <<'PY' || complain "gpt is not as it should be"
import json, math
said = open("one.txt", encoding="utf-8").read()
assert said.startswith("Romeo:") and len(said) == 6 + 80 + 1, said
o = json.load(open("gpt.json"))
assert o["prompt"] + o["text"] + "\n" == said and o["tokens"] == 80 and o["seed"] == 1, o
assert "Julia: öh" in open("greedy.txt", encoding="utf-8").read()
e, s = json.load(open("eval.json")), json.load(open("gpt/summary.json"))
for x in (e, s):
    assert abs(x["perplexity"] - math.exp(x["val_loss"])) < 1e-9 * x["perplexity"] and x["tokens_per_s"] > 0, x
assert e["perplexity"] < 2, e
lines = [json.loads(line) for line in open("gpt/metrics.jsonl", encoding="utf-8")]
samples = [l for l in lines if l["kind"] == "sample"]
assert samples and samples[-1]["step"] == 300 and len(samples[-1]["texts"][0]["output"]) == 240, samples
assert all("tokens_per_s" in l for l in lines if l["kind"] == "train")
assert "What it writes" in open("gpt/report.html", encoding="utf-8").read()
PY

refused 2 'the prompt is empty' "$tutti" generate gpt --prompt ''
refused 2 'prompt: "#" is not in the vocabulary' "$tutti" generate gpt --prompt 'Ja#'
refused 2 'prompt: the text is not UTF-8' "$tutti" generate gpt --prompt $'a\xff'
refused 2 'gpt does not translate' "$tutti" generate gpt --prompt a --beam 2
refused 2 'temperature -1' "$tutti" generate gpt --prompt a --temperature -1
refused 2 'top-p 0' "$tutti" generate gpt --prompt a --top-p 0
refused 2 'not a number' "$tutti" generate gpt --prompt a --top-p much
refused 2 'whole number' "$tutti" generate gpt --prompt a --top-k some
refused 2 'at least 1' "$tutti" generate gpt --prompt a --length 0
refused 2 'no run' "$tutti" generate
refused 2 'holds no run' "$tutti" generate .
refused 1 'none.safetensors' "$tutti" generate gpt --prompt a --weights none.safetensors
mkdir later && cp gpt/config.json gpt/vocabulary.txt later
refused 1 'no checkpoint yet' "$tutti" generate later --prompt a
rm later/vocabulary.txt
refused 1 'has no vocabulary' "$tutti" generate later --prompt a
head -c 100 gpt/vocabulary.txt >later/vocabulary.txt
refused 1 'later/vocabulary.txt' "$tutti" generate later --prompt a

# A model that translates ---------------------------------------------------------------------
works "$tutti" train seq2seq --data ./pairs --hidden 48 --embedding 24 --dropout 0 --batch 64 --optimizer adam --lr 0.01 --epochs 10 \
    --threads 1 --quiet --out nmt
works "$tutti" generate nmt --prompt 'Ein Hund schläft und rennt.' && cp out.txt prompt.txt
printf 'Ein Hund schläft und rennt.\nMann grün\n' | "$tutti" generate nmt >lines.txt 2>err.txt || complain "lines: $(cat err.txt)"
[ "$(wc -l <lines.txt)" = 2 ] && [ "$(head -1 lines.txt)" = "$(cat prompt.txt)" ] || complain "lines differ: $(cat lines.txt)"
printf 'Ein Hund schläft und rennt.\n\n  \nMann grün\n' | "$tutti" generate nmt >blank.txt 2>err.txt || complain "blank lines: $(cat err.txt)"
[ "$(sed -n '1p;4p' blank.txt)" = "$(cat lines.txt)" ] && [ -z "$(sed -n '2,3p' blank.txt)" ] && [ "$(wc -l <blank.txt)" = 4 ] ||
    complain "blank lines: $(cat blank.txt)"
printf '\nMann grün\n' | "$tutti" generate nmt --json >blank.json 2>err.txt || complain "blank lines: $(cat err.txt)"
works "$tutti" generate nmt --prompt 'Ein Hund schläft und rennt.' --beam 4 --json && cp out.txt beam.json
works "$tutti" eval nmt && says 'BLEU'
works "$tutti" eval nmt --json && cp out.txt bleu.json
works "$tutti" eval nmt --beam 3 --json && cp out.txt bleu3.json
works "$tutti" eval nmt --split validation --json && cp out.txt validation.json
python3 - <<'PY' || complain "seq2seq is not as it should be"
import json
assert open("prompt.txt").read() == "a dog sleeps and runs.\n", open("prompt.txt").read()
b = json.load(open("beam.json"))
assert b["translation"] == "a dog sleeps and runs." and b["score"] < 0, b
blank, line = (json.loads(line) for line in open("blank.json", encoding="utf-8"))
assert blank["source"] == blank["translation"] == "" and blank["tokens"] == 0 and line["source"] == "Mann grün", (blank, line)
for name in "bleu.json", "bleu3.json":
    e = json.load(open(name))
    assert 90 < e["bleu"] <= 100.001 and "case:lc" in e["bleu_signature"] and e["perplexity"] > 1, e
v, t, s = (json.load(open(name)) for name in ("validation.json", "bleu.json", "nmt/summary.json"))
assert v["val_loss"] == s["val_loss"] != t["val_loss"], (v, t, s)
lines = [json.loads(line) for line in open("nmt/metrics.jsonl", encoding="utf-8")]
last = [l for l in lines if l["kind"] == "sample"][-1]["texts"]
assert len(last) == 4 and all(t["source"] and t["reference"].lower() == t["output"] for t in last), last
assert "Translations" in open("nmt/report.html", encoding="utf-8").read()
PY
refused 2 'prompt: there is no word' "$tutti" generate nmt --prompt '   '
refused 2 'translates and draws nothing' "$tutti" generate nmt --prompt ein --temperature 1
refused 2 'at least 1' "$tutti" generate nmt --prompt ein --beam 0
refused 2 'at least 1' "$tutti" eval nmt --beam 0
refused 2 'gpt does not translate' "$tutti" eval gpt --beam 2
refused 2 'which no one tensor holds' "$tutti" eval nmt --outputs out.safetensors
refused 2 'test, train or validation' "$tutti" eval nmt --split dev
refused 2 'whole number up to 256' "$tutti" generate nmt --prompt ein --beam 1000

finish
