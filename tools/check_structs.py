#!/usr/bin/env python3
"""Fail if a struct of the engine has too many fields, or if too many files see the definition of one.

A file sees a struct if it includes its header, directly or through others. Headers that another folder
includes are interfaces: only their fields count.
"""
import pathlib
import re
import sys

FOLDERS = ("exec", "sched", "ps")
FIELDS, VIEWERS = 30, 14
# Headers that more files may see, and why.
WIDE = {
    "exec/topology.h": "constants: ranks, lanes, shards",
    "exec/layout.h": "constants: where buckets, records and tables lie",
    "exec/shared.h": "constants: addresses of shared memory",
    "exec/sums.h": "constant pointers, and what reduce.c, rows.c, columns.c and privacy.c do",
    "exec/sum_worker.h": "two small structs: what a thread that sums has of its own",
    "exec/now.h": "read by tasks, written between steps alone",
    "exec/account.h": "whatever waits or communicates counts its time through it",
    "exec/hold.h": "struct hold is hold.c's; in struct exec by value",
    "exec/talk.h": "small structs of tensor-parallel exchanges; a lane has one by value",
    "exec/plan.h": "constants: instructions and places that a plan has",
    "ps/slices.h": "constants: which slices a server owns",
    "ps/block.h": "constants: where slices lie in shared memory; servers and clients have one by value",
    "ps/frame.h": "the messages that all of ps/ exchanges",
    "ps/line.h": "the lines that servers and clients send them through",
}
# The redesign of devices replaces these: neither they nor their fields count until then.
DEVICES = re.compile(r"exec/device_")

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRUCT = re.compile(r"^struct (\w+) \{(.*?)^\}", re.M | re.S)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def without_brackets(text):
    """Declarators of function pointers and arrays have commas of their own."""
    while True:
        shorter = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", text)
        if shorter == text:
            return text
        text = shorter


def count_fields(body):
    declarations = re.sub(r"[{}]", ";", without_brackets(body)).split(";")
    return sum(d.count(",") + 1 for d in declarations if not re.fullmatch(r"\s*(struct|union|enum)?\s*", d))


class Sources:
    def __init__(self, root):
        self.root, self.closures = root, {}

    def text(self, name):
        return (self.root / name).read_text()

    def closure(self, name):
        """The headers that a file includes, itself among them."""
        if name not in self.closures:
            self.closures[name] = {name}
            for other in INCLUDE.findall(self.text(name)):
                if (self.root / other).exists():
                    self.closures[name] |= self.closure(other)
        return self.closures[name]


def is_counted(name):
    return not DEVICES.match(name) and not name.endswith(("_test.c", "_testing.c"))


def main(root):
    sources = Sources(pathlib.Path(root))
    bad = 0
    viewers = {}
    for path in sorted(pathlib.Path(root).rglob("*.c")):
        name = str(path.relative_to(root))
        for header in sources.closure(name) if is_counted(name) else ():
            viewers.setdefault(header, []).append(name)
    for folder in FOLDERS:
        for path in sorted((pathlib.Path(root) / folder).glob("*.h")):
            name = str(path.relative_to(root))
            if DEVICES.match(name) or name.endswith("_testing.h"):
                continue
            seen = viewers.get(name, [])
            structs = STRUCT.findall(COMMENT.sub("", path.read_text()))
            for struct, body in structs:
                fields = count_fields(body)
                if fields > FIELDS:
                    print(f"{path}: struct {struct} has {fields} fields, at most {FIELDS}: group some")
                    bad = 1
            is_public = any(not viewer.startswith(folder + "/") for viewer in seen)
            if structs and not is_public and len(seen) > VIEWERS and name not in WIDE:
                print(f"{path}: {len(seen)} files see struct {structs[0][0]}, at most {VIEWERS}: "
                      f"pass what they need, or name the header in {pathlib.Path(__file__).name}")
                bad = 1
            if name in WIDE and (is_public or len(seen) <= VIEWERS):
                print(f"{path}: {len(seen)} files see it: it needs no exception any more")
                bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
