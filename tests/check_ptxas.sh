#!/usr/bin/env bash
# check_ptxas.sh ROOT - tools/check_ptxas.py fails on spills that are not known and on serialized wgmma, and passes on the rest.
set -uo pipefail
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

# An nvcc that says what is in a file.
cat >nvcc <<'END'
#!/usr/bin/env bash
[ "$1" != --version ] || { echo "Cuda compilation tools, release ${RELEASE:-13.0}, V13.0.88"; exit; }
cat said.txt
exit "${CODE:-0}"
END
chmod +x nvcc
printf '# Comment.\n13.0 sm_90a\nproduct.cu product 88\n' >spills.txt
# said BYTES [ARCHITECTURE]: what ptxas says of one kernel
said() {
    cat >said.txt <<END
product.cu(3): warning: a variable is not used
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z7product14CUtensorMap_st5headsPf' for '${2:-sm_90a}'
ptxas info    : Function properties for _Z7product14CUtensorMap_st5headsPf
    64 bytes stack frame, $1 bytes spill stores, 116 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 64 bytes cumulative stack size
END
}
# ends CODE PATTERN TEXT: of a build; PATTERN is in what it prints, and ptxas's chatter is not
ends() {
    python3 "$root/tools/check_ptxas.py" spills.txt ./nvcc -c product.cu -o product.o >out.txt 2>&1
    local code=$?
    [ $code = "$1" ] && grep -q -- "$2" out.txt && ! grep -q 'Used 255' out.txt || {
        echo "FAILED: $3: exit $code: $(cat out.txt)"
        failures=1
    }
}
said 0 && ends 0 'is not used' "no spills"
said 88 && ends 0 'is not used' "known spills"
said 92 && ends 1 'product.cu product 92 # spills on sm_90a, 88 bytes are known' "more than known"
said 92 sm_80 && ends 0 'no failure' "another architecture"
said 92 && RELEASE=12.4 ends 0 'no failure: spills.txt is for 13.0 on sm_90a' "another toolkit"
said 0 && CODE=2 ends 2 'is not used' "an error of the compiler"
sed -i 's/^product.cu.*/product.cu/' spills.txt && said 4 && ends 1 '0 bytes are known' "a kernel that did not spill"
said 0 && ends 0 'is not used' "a source without spills"
sed -i 's/^product.cu.*/other.cu/' spills.txt && said 4 && ends 0 'no failure' "a source that nobody looked at"
said 0 && echo "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to \
insufficient register resources for the wgmma pipeline in the function '_Z7product14CUtensorMap_st5headsPf'" >>said.txt &&
    RELEASE=12.4 ends 1 'product.cu: .*serialized' "serialized products"
for source in "$root"/src/kernel/cuda/*.cu; do
    grep -q "^${source##*/}\( \|$\)" "$root/src/kernel/cuda/spills.txt" ||
        { echo "FAILED: src/kernel/cuda/spills.txt does not name ${source##*/}"; failures=1; }
done
exit $failures
