#!/usr/bin/env python3
"""translate.py - a CUDA source as C++ that a CPU's compiler takes: launches become calls, shared memory of no length a pointer, and
what a source has for itself stays its own. Lines stay where they are.

    translate.py IN.cu OUT.cc
    translate.py IN.cuh OUT.cuh
"""
import re
import sys


def closing(text, at, open_, close):
    """Where the bracket at `at` is closed."""
    depth = 0
    while True:
        if text[at] == open_:
            depth += 1
        elif text[at] == close:
            depth -= 1
            if depth == 0:
                return at
        at += 1


def callee_before(text, end):
    """Where the name that ends at `end` begins, with its template arguments."""
    at = end
    while text[at - 1].isspace():
        at -= 1
    if text[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += {">": 1, "<": -1}.get(text[at], 0)
            if depth == 0:
                break
    while text[at - 1].isalnum() or text[at - 1] in "_:":
        at -= 1
    return at


def split_arguments(text):
    """At commas outside of brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    return parts + [text[last:]]


def launches(text):
    while "<<<" in text:
        begin = text.index("<<<")
        end = text.index(">>>", begin)
        first = callee_before(text, begin)
        callee = text[first:begin]
        how = split_arguments(text[begin + 3:end])
        how += [" 0"] * (4 - len(how))
        open_ = text.index("(", end)
        close = closing(text, open_, "(", ")")
        arguments = text[open_ + 1:close]
        name = " ".join(callee.split()).replace("\\", "")
        kernel = "NULL" if how[2].strip() == "0" else f"(const void *){name}"
        call = (f'machine_launch_kernel("{name}", {kernel}, [](auto... a) {{ {callee}(a...); }},'
                f'{",".join(how)}, {arguments})')
        text = text[:first] + call + text[close + 1:]
    return text


FOR_OTHERS = re.compile(r'extern "C"|(void|bool|int|float|double|unsigned|size_t|int64_t|enum \w+) \*?\w+\(')


def apart(lines):
    """What is not for others is in a namespace without a name: sources may use the same words for different things."""
    last = max(i for i, line in enumerate(lines) if line.startswith("#include"))
    inside = False
    for i, line in enumerate(lines):
        if i == last:
            lines[i] = line + "\nnamespace {\n#line %d" % (i + 2)
        begins = i > last and FOR_OTHERS.match(line)
        if begins:
            lines[i] = "} " + line
            inside = True
        if inside and (line.startswith("}") or begins and line.endswith(";")):
            lines[i] += " namespace {"
            inside = False
    return lines + ["}"]


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];",
                  r"\1 *const \2 = (\1 *)machine_shared();", text)
    text = re.sub(r"(?<!extern )__shared__ [^;]*?(\w+)((?:\[[^\]]*\])*);", r"\g<0> machine_static(&\1, sizeof \1);", text)
    lines = launches(text).split("\n")
    if sys.argv[1].endswith(".cu"):
        lines = apart(lines)
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write('#line 1 "%s"\n' % sys.argv[1] + "\n".join(lines) + "\n")


main()
