#!/usr/bin/env python3
"""Run nvcc, and fail if ptxas spills registers beyond those known or serializes wgmma instructions.

    check_ptxas.py spills.txt NVCC ARGUMENT...

CMake puts it before nvcc (TUTTI_CHECK_PTXAS), so that a build is the check. ptxas only remarks that wgmma instructions wait for
each other, and a kernel that spills works: nobody sees either but in times. Spills depend on the toolkit and the
architecture; spills.txt says for which they are known. With others, and of sources that it does not name, they are printed
as lines for spills.txt, and the build goes on.
"""
import os
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(sm_\w+)'")
SPILL = re.compile(r"(\d+) bytes spill stores")
LOSS = re.compile(r"Potential Performance Loss|serialized", re.I)
CHATTER = re.compile(r"^\s*(ptxas info|\d+ bytes stack frame)")


def read_known(path):
    """First line: toolkit and architectures; then a source, a kernel and its bytes, or a source none of whose kernels spills.
    Gives (release, architectures, sources, {(source, kernel): bytes})."""
    lines = [line.split() for line in open(path) if line.strip() and not line.startswith("#")]
    known = {(line[0], line[1]): int(line[2]) for line in lines[1:] if len(line) == 3}
    return lines[0][0], lines[0][1:], {line[0] for line in lines[1:]}, known


def base_name(symbol):
    """The kernel's own name, whatever its template arguments: _Z8key_gradIfLi8EEvPf is key_grad."""
    start = re.match(r"_Z(N?)L?", symbol)
    rest, name = symbol[start.end():] if start else "", symbol
    while (digits := re.match(r"L?(\d+)", rest)):
        end = digits.end() + int(digits[1])
        name, rest = rest[digits.end():end], rest[end:] if start[1] else ""
    return name


def release_of(nvcc):
    found = re.search(r"release ([0-9.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout)
    return found[1] if found else "unknown"


def main(known_path, *command):
    compiled = "-c" in command
    source = next((os.path.basename(a) for a in command if a.endswith(".cu")), "")
    done = subprocess.run([*command, *(["-Xptxas=-v"] if compiled else [])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace")
    losses, spills, kernel, arch = [], {}, "", ""
    for line in done.stdout.splitlines():
        if (entry := ENTRY.search(line)):
            kernel, arch = base_name(entry[1]), entry[2]
        if (spill := SPILL.search(line)) and int(spill[1]) > 0:
            spills[arch, kernel] = max(int(spill[1]), spills.get((arch, kernel), 0))
        if LOSS.search(line):
            losses.append(line.strip())
        elif not CHATTER.match(line):
            print(line)
    if done.returncode or not compiled:
        return done.returncode

    release, archs, sources, known = read_known(known_path)
    is_known = release == release_of(next(a for a in command if os.path.basename(a) == "nvcc")) if spills else False
    failures = 0
    for line in losses:
        print(f"{source}: {line}")
        failures += 1
    for (arch, kernel), count in sorted(spills.items()):
        most = known.get((source, kernel), 0)
        if count <= most:
            continue
        fails = is_known and arch in archs and source in sources
        print(f"{source} {kernel} {count} # spills on {arch}, "
              + (f"{most} bytes are known: use fewer registers, or change {known_path}" if fails
                 else f"which is no failure: {known_path} is for {release} on {' '.join(archs)}, and {len(sources)} sources"))
        failures += fails
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
