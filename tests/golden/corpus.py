# SPDX-License-Identifier: MIT
"""A small labelled text that golden trainings of text use: made of nothing but a seed, so that the test
and the script that makes the goldens have the same. Not a program.

Documents have 3 to 24 words of 200; those of class 1 draw from the second half more often. Classes
take turns, so that the order of training is that of the file."""
import collections

DOCUMENTS, WORDS, MOST = 320, 200, 24


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


def write(path):
    with open(path, "w") as out:
        out.writelines(f"{label}\t{' '.join(words)}\n" for label, words in documents())


def ids(documents):
    """Documents as lists of numbers, and how many numbers there are: 0 is <unk>, then words by
    count, those of equal count by their bytes."""
    counts = collections.Counter(w for _, words in documents for w in words)
    order = sorted(counts, key=lambda w: (-counts[w], w))
    number = {w: i + 1 for i, w in enumerate(order)}
    return [[number[w] for w in words] for _, words in documents], len(order) + 1
