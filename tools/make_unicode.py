#!/usr/bin/env python3
"""Writes src/data/unicode_table.c: what characters are, as ranges, for the tokenizers.

    tools/make_unicode.py > src/data/unicode_table.c

Letters, numbers and white space are what the regular expressions of tiktoken (PyPI) take for them, as GPT-2's
tokenizer is to agree with that to the last character. Lower case is Python's own.
"""
import unicodedata

import tiktoken

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
PER_LINE = 5


def matcher(pattern):
    one_a_byte = {bytes([i]): i for i in range(256)}
    encoding = tiktoken.Encoding("class", pat_str=pattern, mergeable_ranks=one_a_byte, special_tokens={})
    return lambda code: len(encoding.encode_ordinary(chr(code))) > 0


def ranges(is_in):
    out = []
    for code in CODES:
        if not is_in(code):
            continue
        if out and out[-1][1] == code - 1:
            out[-1][1] = code
        else:
            out.append([code, code])
    return out


def makes_final(before, after):
    """Does a capital sigma between these two become one that ends a word?"""
    return (before + "\u03a3" + after).lower()[-1 - len(after.lower())] == "\u03c2"


def is_cased(code):
    """Cased and not skipped over when a sigma looks around itself."""
    return makes_final(chr(code), "")


def is_skipped(code):
    return makes_final("A" + chr(code), "") and not is_cased(code)


def lower_runs():
    """Runs of characters, `step` apart, whose lower case lies `delta` further."""
    out = []
    for code in CODES:
        low = chr(code).lower()
        if len(low) != 1 or ord(low) == code:
            continue
        delta = ord(low) - code
        if out and out[-1][3] == delta:
            first, last, step, _ = out[-1]
            if code - last in (1, 2) and (first == last or step == code - last):
                out[-1] = [first, code, code - last, delta]
                continue
        out.append([code, code, 1, delta])
    return out


def lines(items, per_line):
    for i in range(0, len(items), per_line):
        print("    " + " ".join(items[i : i + per_line]))


def print_ranges(name, is_in):
    rows = ranges(is_in)
    print(f"\nstatic const struct range {name}[] = {{")
    lines([f"{{ 0x{a:x}, 0x{b:x} }}," for a, b in rows], PER_LINE)
    print("};")
    print(f"const struct unicode_set unicode_{name} = {{ {name}, sizeof {name} / sizeof *{name} }};")


print(f"""/* SPDX-License-Identifier: MIT */
/* unicode_table.c - what characters are, as ranges. Written by tools/make_unicode.py.
 *
 * Letters, numbers and spaces are those of Unicode 16, cases those of Unicode {unicodedata.unidata_version}.
 */
#include "data/unicode.h"

/* clang-format off */""")
print_ranges("letters", matcher(r"\p{L}"))
print_ranges("numbers", matcher(r"\p{N}"))
print_ranges("spaces", matcher(r"\s"))
print_ranges("cased", is_cased)
print_ranges("skipped", is_skipped)
print("\nconst struct unicode_lower unicode_lowers[] = {")
runs = lower_runs()
lines([f"{{ 0x{a:x}, 0x{b:x}, {step}, {delta} }}," for a, b, step, delta in runs], PER_LINE - 1)
print("};\nconst size_t unicode_n_lowers = sizeof unicode_lowers / sizeof *unicode_lowers;")
