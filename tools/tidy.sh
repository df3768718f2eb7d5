#!/usr/bin/env bash
# tidy.sh BUILD - clang-tidy over the product's sources (.clang-tidy says what it looks for).
set -euo pipefail
cd "$(dirname "$0")/.."
# Sources of the plug-in for CUDA only where the toolkit is, so that they are compiled.
without='_test(ing)?\.c'
grep -q kernel/cuda/plugin.c "$1/compile_commands.json" || without="$without|kernel/cuda/"
git ls-files 'src/*.c' | grep -vE "$without" | xargs -P "$(nproc)" -n 8 clang-tidy --quiet -p "$1" 2>/dev/null
