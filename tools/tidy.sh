#!/usr/bin/env bash
# tidy.sh BUILD - clang-tidy over the product's sources (.clang-tidy says what it looks for).
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files 'src/*.c' | grep -vE '_test(ing)?\.c' | xargs -P "$(nproc)" -n 8 clang-tidy --quiet -p "$1" 2>/dev/null
