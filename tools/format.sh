#!/usr/bin/env bash
# format.sh - lay out all sources; with --check only say what would change.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cc')
if [ "${1:-}" = --check ]; then
    clang-format --dry-run -Werror "${files[@]}"
else
    clang-format -i "${files[@]}"
fi
