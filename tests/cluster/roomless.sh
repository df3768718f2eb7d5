#!/usr/bin/env bash
# roomless.sh - where namespaces are not permitted, scripts that need no hosts run all the same, and see what they leave behind;
# others are skipped.
room=wanted
. "$(dirname "$0")/lib.sh"
need_mpi
lacking=()
if [ "$(id -u)" = 0 ]; then
    command -v setpriv >/dev/null || skip "setpriv (util-linux) is not installed"
    lacking=(setpriv --bounding-set -sys_admin --inh-caps -sys_admin)
    "${lacking[@]}" true 2>/dev/null || lacking=() # it is lacking already
    "${lacking[@]}" unshare --mount true 2>/dev/null && skip "namespaces cannot be forbidden here"
fi

cat >small.sh <<END
[ "\${5:-}" != needed ] && room=wanted
. "$here/lib.sh"
need_mpi
sleep 0.5 &
[ -n "\$(others)" ] || complain "a process that is there is not seen"
wait \$!
\$starter -n 2 "\$tutti" bench comm \$patient --bytes 1024 --json >comm.txt || complain "bench comm"
[ "\$(grep -c '"ranks": 2' comm.txt)" = 1 ] || complain "bench comm: \$(cat comm.txt)"
nothing_left "\$kind"
finish
END
run_small() { env -u CLUSTER_ROOM -u CLUSTER_MARK "${lacking[@]}" bash small.sh "$tutti" "$root" "$build" "$kind" "$@" 2>&1; }
out=$(run_small) || complain "without namespaces: exit $?: $out"
[[ $out == *"among other processes"*"all as expected"* ]] || complain "without namespaces: $out"
out=$(run_small needed)
code=$?
[ $code = 77 ] && [[ $out == skipped:* ]] || complain "one that needs hosts: exit $code: $out"
finish
