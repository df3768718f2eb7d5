#!/usr/bin/env python3
"""Fail if a source folder includes a header of a folder above it or beside it, or a foreign header away from its home."""
import pathlib
import re
import sys

# Lowest first. A folder may include only folders on earlier lines, never its neighbours.
LAYERS = ["base", "tensor transport report", "kernel graph data", "comm optim model", "pass", "sched", "exec ps", "train", "fed", "cli"]
LEVEL = {name: n for n, line in enumerate(LAYERS) for name in line.split()}
# Where headers of other projects may be included.
HOMES = {"dnnl": "kernel/cpu", "cblas": "kernel/cpu", "mpi": "transport/mpi", "nccl": "kernel/cuda", "cuda": "kernel/cuda",
         "cudnn": "kernel/cuda", "cublas": "kernel/cuda", "zlib": "data", "curl/": ("data", "fed"), "png": "data",
         "jpeglib": "data", "cmocka": "base", "sodium": "fed", "sqlite3": "fed", "microhttpd": "fed", "gnutls/": "fed"}
OWN = re.compile(r'^\s*#\s*include\s*"([a-z_0-9]+)/', re.M)
FOREIGN = re.compile(r'^\s*#\s*include\s*<([^>]+)>', re.M)


def main(root):
    bad = 0
    for path in sorted(pathlib.Path(root).rglob("*.[ch]*")):
        relative = path.relative_to(root)
        here, text = relative.parts[0], path.read_text()
        for there in OWN.findall(text):
            if here != there and LEVEL.get(there, 99) >= LEVEL.get(here, -1):
                print(f"{path}: {here}/ may not include {there}/")
                bad = 1
        for header in FOREIGN.findall(text):
            for name, home in HOMES.items():
                if header.startswith(name) and not str(relative).startswith(home):
                    print(f"{path}: <{header}> belongs in {home if isinstance(home, str) else ' or '.join(home)}/")
                    bad = 1
        if re.search(r'#\s*include\s*"\.\.', text):
            print(f"{path}: includes are written from src/, never from ..")
            bad = 1
    return bad


sys.exit(main(sys.argv[1]))
