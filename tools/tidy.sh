#!/usr/bin/env bash
# tidy.sh BUILD [deep] - clang-tidy over the product's sources (.clang-tidy says what it looks for).
# Its analyzer follows calls only with `deep`, which takes five times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
how=(--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=mode=shallow)
[ "${2:-}" != deep ] || how=()
git ls-files 'src/*.c' | grep -vE '_test(ing)?\.c' |
    xargs -P "$(nproc)" -n 8 clang-tidy --quiet -p "$1" "${how[@]}" 2>/dev/null
