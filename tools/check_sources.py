#!/usr/bin/env python3
"""Rules of the sources that no compiler knows: banned functions, licence lines, documented flags."""
import pathlib
import re
import subprocess
import sys

BANNED = {  # function: the only files (prefixes) that may call it
    "strcpy": (), "strcat": (), "sprintf": (), "vsprintf": (), "strtok": (), "gets": (), "rand": (), "srand": (), "system": (),
    "popen": (), "alloca": (),
    "malloc": ("src/base/mem.c",), "calloc": ("src/base/mem.c",), "realloc": ("src/base/mem.c",), "strdup": (),
    "free": ("src/base/mem.c",), "aligned_alloc": ("src/base/mem.c",), "posix_memalign": ("src/base/mem.c",),
    "exit": ("src/cli/",), "abort": ("src/base/status.c",),
}
CALL = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"", re.S)


def tracked(root, *patterns):
    out = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
                         capture_output=True, text=True, check=True).stdout
    return [p for p in out.split("\n") if p]


def main(root):
    bad = 0

    def complain(text):
        nonlocal bad
        print(text)
        bad = 1

    for name in tracked(root, "*.c", "*.h", "*.cu", "*.cuh", "*.cc"):
        path = pathlib.Path(root, name)
        if not path.exists():
            continue
        text = path.read_text()
        if "SPDX-License-Identifier: MIT" not in text[:200]:
            complain(f"{name}: no SPDX line at the top")
        if name.startswith("src/") and not name.endswith(("_test.c", "base/test.c")):
            code = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text)
            for match in CALL.finditer(code):
                if not name.startswith(BANNED[match.group(1)] or ("\0",)):
                    complain(f"{name}:{code.count(chr(10), 0, match.start()) + 1}: {match.group(1)} is banned here")
    manual = pathlib.Path(root, "docs/man/tutti.1")
    page = manual.read_text().replace("\\-", "-") if manual.exists() else ""
    for name in ["src/train/settings.c", *tracked(root, "src/cli/*.c", "src/fed/flags.c")]:
        for flag in re.findall(r'^\s*\{ "([a-z][a-z0-9-]+)", (?:0|\'.\'|NULL|")', pathlib.Path(root, name).read_text(), re.M):
            if f"--{flag}" not in page:
                complain(f"docs/man/tutti.1: --{flag} ({name}) is missing")
    options = page.partition("\n.SS Options of models\n")[2].partition("\n.SH ")[0]
    blocks = {}  # model: what the manual says of its options
    for block in options.split("\n.TP\n.B ")[1:]:
        head, _, rest = block.partition("\n")
        blocks.update((model, rest) for model in re.sub(r"\\f[RP]|,", " ", head).split())
    for name in tracked(root, "src/model/*.c"):
        if name.endswith("_test.c"):
            continue
        # Options stand in the model's row; those of a macro before the rows are all rows'.
        shared, *rows = re.split(r'^    \.name = "', pathlib.Path(root, name).read_text(), flags=re.M)
        for row in rows:
            model = row.partition('"')[0]
            for option in sorted(set(re.findall(r"\[OPTION_(\w+)\] =", shared + row))):
                if f"--{option.lower()}" not in blocks.get(model, ""):
                    complain(f"docs/man/tutti.1: --{option.lower()} of the model {model} ({name}) is missing")
    for command in re.findall(r'\.name = "(\w+)",\n    \.usage', "".join(pathlib.Path(root, n).read_text() for n in tracked(root, "src/cli/*.c"))):
        if f"tutti {command}" not in page and f"tutti fed {command}" not in page:
            complain(f"docs/man/tutti.1: the command {command} is missing")
    return bad


sys.exit(main(sys.argv[1]))
