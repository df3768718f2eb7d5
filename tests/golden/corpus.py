# SPDX-License-Identifier: MIT
"""Small texts that golden trainings of text use: made of nothing but a seed, so that the test and the
script that makes the goldens have the same. Not a program.

Documents have 3 to 24 words of 200; those of class 1 draw from the second half more often. Classes
take turns, so that the order of training is that of the file. Pairs are sentences of 2 to 19 words and
what another language makes of them: each word has its own there, some are left out, and the order is
the other way round."""
import collections
import os

DOCUMENTS, WORDS, MOST = 320, 200, 24
PAIRS, PAIR_WORDS, PAIR_MOST = 320, 60, 19
SPECIALS = 3  # of a vocabulary of pairs: <unk>, <bos>, <eos>


def numbers(seed):
    """Numbers of 31 bits."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        yield state >> 33


def word(number):
    return "w" + "".join(chr(ord("a") + number // 26 ** i % 26) for i in range(2))


def documents():
    """(label, words) of each."""
    draw = numbers(20)
    result = []
    for i in range(DOCUMENTS):
        label, words = i % 2, []
        for _ in range(3 + next(draw) % (MOST - 2)):
            rare = max(next(draw) % WORDS, next(draw) % WORDS) if label else min(
                next(draw) % WORDS, next(draw) % WORDS)
            words.append(word(rare))
        result.append((label, words))
    return result


def pairs():
    """(words, words of the other language) of each."""
    draw = numbers(21)
    result = []
    for _ in range(PAIRS):
        chosen = [min(next(draw) % PAIR_WORDS, next(draw) % PAIR_WORDS)
                  for _ in range(2 + next(draw) % (PAIR_MOST - 1))]
        said = [(7 * n + 3) % PAIR_WORDS for n in reversed(chosen) if next(draw) % 4]
        result.append(([word(n) for n in chosen], [word(n) for n in said or [0]]))
    return result


def write_documents(folder):
    os.mkdir(folder)
    for split in ("train", "test"):
        with open(f"{folder}/{split}.tsv", "w") as out:
            out.writelines(f"{label}\t{' '.join(words)}\n" for label, words in documents())


def write_pairs(folder):
    os.mkdir(folder)
    for split in ("train", "val", "test"):
        for side, language in enumerate(("de", "en")):
            with open(f"{folder}/{split}.{language}", "w") as out:
                out.writelines(" ".join(pair[side]) + "\n" for pair in pairs())


def ids(texts, specials=1):
    """Texts, each a list of words, as lists of numbers, and how many numbers there are: first specials,
    of which 0 is <unk>, then words by count, those of equal count by their bytes."""
    counts = collections.Counter(w for words in texts for w in words)
    order = sorted(counts, key=lambda w: (-counts[w], w))
    number = {w: i + specials for i, w in enumerate(order)}
    return [[number[w] for w in words] for words in texts], len(order) + specials
