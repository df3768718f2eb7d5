#!/usr/bin/env python3
"""Writes tokens.json: texts, GPT-2's numbers of them by tiktoken, and words by the rules of torchtext's basic_english.

    python3 tokens.py FOLDER > tokens.json        # FOLDER has encoder.json and vocab.bpe; needs tiktoken

tiktoken has its own implementation of the merges and of the expression that cuts words. The words' rules are written
here once more, as replacements over the whole line, from what torchtext's manual says.
"""
import json
import pathlib
import random
import re
import sys

import tiktoken

WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

TEXTS = [
    "Hello, world!", " leading and trailing  ", "don't you'll we've I'm he'd they're it's 'tis 'LL O'Reilly's",
    "tabs\tand\n\nnew lines \n \n  end\n", "   \n   indented\r\n\r\n", "numbers 123456789 3.14159 1,000 ½ ² Ⅷ ٣٤٥",
    "<|endoftext|> is no token here", "Füße, Straße, ÀÉÎÕÜ, İstanbul, ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ΑΣ.ΒΣ", "日本語のテキスト、中文字符。한국어",
    "emoji 😀👩‍👩‍👧‍👦🏳️‍🌈 and ŁódźŚ", "a\u00a0b\u2003c\u3000d\u0085e\u2028f\u200bg", "العربية ‏עברית हिन्दी ไทย",
    'He said "No..." <br /><br />Really?; "yes":(maybe)!', '<BR /> <b"r /> <br/> <br /', "''''  '' \"\"\" ''s", "e\u0301 \u0345\u03a3\u02b0 A\u00ad\u03a3\u00ad",
    "a" * 300, "ab" * 150, "=" * 120, " " * 70 + "x", "x" + "\n" * 9 + "y", "http://example.org/path?query=1&other=%20#part",
    "def f(x):\n    return x ** 2  # comment\n", "\x01\x02\x1b[0m\x7f\x1c\x1f control",
]
RULES = [("'", " ' "), ('"', ""), (r"\.", " . "), ("<br />", " "), (",", " , "), (r"\(", " ( "), (r"\)", " ) "), ("!", " ! "),
         (r"\?", " ? "), (";", " "), (":", " ")]


def random_text(rng):
    def character():
        kind = rng.random()
        if kind < 0.4:
            return chr(rng.randrange(32, 127))
        if kind < 0.6:
            return rng.choice(" \n\t '\u00a0\u2003")
        if kind < 0.8:
            return chr(rng.randrange(0xA0, 0x3000))
        return chr(rng.choice([rng.randrange(0x3000, 0xD800), rng.randrange(0xE000, 0x110000)]))

    return "".join(character() for _ in range(rng.randrange(1, 120)))


def words_of(text):
    text = text.lower()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return text.split()


def gpt2(folder):
    numbers = json.loads((folder / "encoder.json").read_text())
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in seen]
    byte_of = {chr(b): b for b in seen} | {chr(256 + i): b for i, b in enumerate(hidden)}
    end = numbers.pop("<|endoftext|>")
    ranks = {bytes(byte_of[c] for c in token): number for token, number in numbers.items()}
    return tiktoken.Encoding("gpt2", pat_str=WORDS, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": end})


def main():
    encoding = gpt2(pathlib.Path(sys.argv[1]))
    rng = random.Random(4)
    texts = TEXTS + [random_text(rng) for _ in range(60)]
    cases = [{"text": t, "gpt2": encoding.encode_ordinary(t), "words": words_of(t)} for t in texts]
    print('{"cases": [')
    print(",\n".join(json.dumps(case) for case in cases))
    print("]}")


main()
