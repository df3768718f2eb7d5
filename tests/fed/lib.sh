# lib.sh - for the scripts in this folder: a federation of processes on this machine. $1 program, $2 sources, $3 build.
. "$(dirname "${BASH_SOURCE[0]}")/../cli/lib.sh"
"$tutti" fed 2>&1 | grep -q 'built without' && skip "this program was built without federated learning"

declare -A pids # processes by name

# enrol NAME...: an authority for this machine, and members
enrol() {
    local name
    "$tutti" fed keys init >/dev/null || complain "keys init"
    for name in "$@"; do
        "$tutti" fed keys enrol "$name" >/dev/null || complain "keys enrol $name"
    done
}

# lead STATE FLAGS...: starts a coordinator and waits until it listens; $url is its address. A started one keeps its port.
lead() {
    local state=$1 log=$1.log
    shift
    : >"$log"
    "$tutti" fed coordinator --state "$state" --listen "127.0.0.1:${port:-0}" --linger 20 "$@" 2>>"$log" &
    pids[$state]=$!
    for _ in $(seq 500); do
        port=$(sed -n 's|^listening on https://127.0.0.1:\([0-9]*\),.*|\1|p' "$log")
        [ -z "$port" ] || break
        kill -0 "${pids[$state]}" 2>/dev/null || break
        sleep 0.02
    done
    url=https://127.0.0.1:$port
    [ -n "$port" ] || complain "$state: does not listen: $(cat "$log")"
}

# join NAME FLAGS...: starts a participant
join() {
    local name=$1
    shift
    "$tutti" fed join "$url" --cert "federation/$name/cert.pem" "$@" 2>>"$name.log" &
    pids[$name]=$!
}

# ends NAME [CODE]: waits for it
ends() {
    wait "${pids[$1]}"
    local code=$?
    unset "pids[$1]"
    [ $code = "${2:-0}" ] || complain "$1: exit $code: $(tail -3 "$1.log")"
}

# die NAME: kill -9
die() {
    kill -KILL "${pids[$1]}" 2>/dev/null
    wait "${pids[$1]}" 2>/dev/null
    unset "pids[$1]"
}

# as NAME CURL-ARGUMENTS...: curl with a member's certificate
as() {
    local name=$1
    shift
    curl -sS --max-time 20 --cacert federation/authority.pem --cert "federation/$name/cert.pem" \
        --key "federation/$name/key.pem" "$@"
}

# sql STATE QUERY: rows of a coordinator's database, columns separated by |
sql() {
    python3 - "$1/federation.sqlite3" "$2" <<'PY'
import sqlite3
import sys
for row in sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True).execute(sys.argv[2]):
    print("|".join(str(column) for column in row))
PY
}

# logged STATE PATTERN: the audit log has a line like it
logged() {
    for _ in $(seq 100); do
        sql "$1" "SELECT client || ' ' || what FROM audit" >audit.txt
        grep -q -- "$2" audit.txt && return
        sleep 0.05
    done
    complain "$1: no '$2' in the audit log: $(tail -20 audit.txt)"
}

# weights STATE: of the last model
weights() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }
