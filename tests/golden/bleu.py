#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bleu.py - makes bleu.json: small corpora with what sacreBLEU says of them.

    python3 -m venv .venv/bleu && .venv/bleu/bin/pip install sacrebleu
    .venv/bleu/bin/python tests/golden/bleu.py FILE     # FILE: a text to take lines from (tiny Shakespeare)
"""
import json
import os
import random
import sys

import sacrebleu

HERE = os.path.dirname(os.path.abspath(__file__))
NASTY = [
    "a", "b", "the", "The", " ", " ", " ", ".", ",", "-", "3", "14", "0", "'", "\"", "&quot;", "&amp;", "&lt;", "&gt;",
    "&amp;lt;", "&", "<skipped>", "\n", "-\n", "\t", "\r", "\u00a0", "\u2003", "\u3000", "\u0085", "\x1c", "ä", "ß", "é",
    "e\u0301", "中", "文", "🙂", "…", "“", "/", "\\", "[", "]", "{", "}", "~", "`", "^", "_", "@", ":", ";", "(", ")", "*",
    "+", "!", "$", "%", "#", "=", "?", "|", "\x7f", "İ", "ǅ", "1.5", "1,000", "..", "...", ".5", "5.", "2-3", "-2",
]
BY_HAND = [
    ("equal", [("A man in an orange hat starring at something.",) * 2, ("Five people, 3.5 of them tall.",) * 2]),
    ("empty hypotheses", [("", "a dog runs through the grass"), ("", "two")]),
    ("one empty hypothesis", [("", "a dog runs"), ("a dog runs through the grass", "a dog runs in the grass")]),
    ("empty reference", [("a dog", ""), ("a dog runs on", "a dog runs on")]),
    ("both empty", [("", ""), ("  ", "\n")]),
    ("no four words", [("a dog", "a dog runs"), ("the cat sat", "the cat sat down")]),
    ("words but no pairs", [("dog a runs the", "a dog the runs"), ("x", "x")]),
    ("nothing matches", [("one two three four five", "six seven eight nine ten")]),
    ("no four-grams match", [("a b c x d e f", "a b c y d e f z"), ("g h i", "g h i")]),
    ("repeated words", [("the the the the the the the", "the cat is on the mat")]),
    ("too short", [("a dog runs through", "a dog runs through the high green grass today")]),
    ("German", [("Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
                 "Zwei junge, weiße Männer sind draußen in der Nähe von Büschen."),
                ("Ein kleines Mädchen klettert in ein Spielhaus aus Holz.",
                 "Ein kleines Mädchen klettert in das Spielhaus aus Holz."),
                ("Größe: 1,75 m – „schön“", "Größe: 1.75 m – „schön“")]),
    ("symbols", [("3-year-old (U.S.) e-mail: a@b.c, 50% of $1,000.00!", "3-year old (U.S.) email: a@b.c 50 % of $1,000.00 !"),
                 ("\"Don't\", she said; <b>no</b> &amp; never.", "&quot;Don't&quot; , she said ; &lt;b&gt;no&lt;/b&gt; &amp; never .")]),
    ("case", [("A MAN in THE Ärmelkanal reads ΣΟΦΟΣ.", "a man in the ÄRMELKANAL reads σοφος ."),
              ("İstanbul is LARGE , not small", "i\u0307stanbul IS large, NOT small")]),
    ("Unicode", [("我 喜欢\u3000你 。 ok", "我 喜欢 你 。 ok"), ("naïve café — déjà vu", "naive café — déjà vu"),
                 ("e\u0301 is not é", "é is not é"), ("🙂🙂 🙃 a b c d", "🙂 🙂 🙃 a b c d")]),
]


def damaged(rng, words):
    """The words with some left out, some exchanged, some in another place."""
    out = []
    for word in words:
        draw = rng.random()
        if draw < 0.1:
            continue
        out.append(rng.choice(words) if draw < 0.2 else word)
        if draw > 0.95 and len(out) > 1:
            out[-1], out[-2] = out[-2], out[-1]
    return " ".join(out)


def from_text(rng, lines, count):
    chosen = [line for line in lines if len(line.split()) > 2]
    return [(damaged(rng, line.split()), line) for line in rng.sample(chosen, count)]


def from_nasty(rng, count):
    pairs = []
    for _ in range(count):
        reference = [rng.choice(NASTY) for _ in range(rng.randrange(40))]
        hypothesis = [piece if rng.random() < 0.9 else rng.choice(NASTY) for piece in reference]
        pairs.append(("".join(hypothesis), "".join(reference)))
    return pairs


def scored(name, pairs):
    metric = sacrebleu.BLEU()
    texts = [h for h, _ in pairs], [[r for _, r in pairs]]
    score = metric.corpus_score(*texts)
    return {
        "name": name, "score": score.score, "precisions": score.precisions, "bp": score.bp,
        "correct": score.counts, "total": score.totals, "hypothesis_words": score.sys_len,
        "reference_words": score.ref_len, "pairs": pairs,
        "lower_case": sacrebleu.BLEU(lowercase=True).corpus_score(*texts).score,
        "tokenized": [metric.tokenizer(h.rstrip()) for h, _ in pairs],
    }


def main():
    rng = random.Random(20160)
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    corpora = [scored(name, pairs) for name, pairs in BY_HAND]
    corpora += [scored(f"verses {n}", from_text(rng, lines, n)) for n in (1, 5, 40, 160)]
    corpora += [scored(f"random {i}", from_nasty(rng, n)) for i, n in enumerate((1, 1, 2, 5, 20, 100))]
    with open(os.path.join(HERE, "bleu.json"), "w", encoding="utf-8") as file:
        json.dump({"sacrebleu": sacrebleu.__version__, "corpora": corpora}, file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
