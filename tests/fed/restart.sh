#!/usr/bin/env bash
# restart.sh - kill -9 of the coordinator and of participants at any instant: the federation ends with the model of one that
# nobody disturbed, and no update counted twice or was lost. TUTTI_FED_KILLS (2) times in a run of TUTTI_FED_ROUNDS (2);
# TUTTI_FAULTS_SEED repeats a sequence.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
kills=${TUTTI_FED_KILLS:-2} rounds=${TUTTI_FED_ROUNDS:-2}
seed=${TUTTI_FAULTS_SEED:-$$}
RANDOM=$seed
names=(one two three)
terms=(--model mlp --limit 90 --rounds "$rounds" --min-participants 3 --batch 15 --seed 7)

enrol "${names[@]}"
number() { case $1 in one) echo 1 ;; two) echo 2 ;; three) echo 3 ;; esac; }
participate() { join "$1" --data fashion-mnist --limit 90 --part "$(number "$1")/3" --quiet; }

# federation STATE FLAGS...: from beginning to end, undisturbed
federation() {
    local name state=$1
    rm -f federation/*/state
    port=
    lead "$@"
    for name in "${names[@]}"; do participate "$name"; done
    for name in "${names[@]}" "$state"; do ends "$name"; done
}

# disturbed STATE FLAGS...: with kills
disturbed() {
    local name state=$1 i victim done_=0
    rm -f federation/*/state
    port=
    lead "$@"
    for name in "${names[@]}"; do participate "$name"; done
    for i in $(seq "$kills"); do
        sleep "0.$(printf '%03d' $((RANDOM % 600)))"
        victim=("$state" "${names[@]}")
        victim=${victim[RANDOM % 4]}
        # Whoever has come to its end is not brought back.
        kill -0 "${pids[$victim]}" 2>/dev/null || continue
        die "$victim"
        done_=$((done_ + 1))
        if [ "$victim" = "$state" ]; then lead "$state"; else participate "$victim"; fi
    done
    for name in "${names[@]}" "$state"; do ends "$name"; done
    echo "$state: $done_ kills (seed $seed)"
}

# counted STATE STAGES: every participant gave once in every stage of every round, and no round was lost
counted() {
    local state=$1 stages=$2 bad
    bad=$(sql "$state" "SELECT round, client, kind, count(*) FROM record WHERE round >= 0 AND client <> '' AND kind < 100
        GROUP BY round, client, kind HAVING count(*) <> 1")
    [ -z "$bad" ] || complain "$state: counted not once: $bad"
    [ "$(sql "$state" "SELECT count(*) FROM record WHERE round >= 0 AND client <> '' AND kind < 100")" = $((rounds * 3 * stages)) ] ||
        complain "$state: $(sql "$state" "SELECT round, kind, count(*) FROM record GROUP BY round, kind")"
    [ "$(sql "$state" 'SELECT count(*) FROM round_state')" = "$rounds" ] || complain "$state: rounds were lost"
    [ "$(sql "$state" 'SELECT count(*) FROM record WHERE round >= 0 AND length(bytes) > 0')" = 0 ] ||
        complain "$state: updates are kept"
    # What was acknowledged is what was counted.
    [ "$(sql "$state" "SELECT count(*) FROM audit WHERE what LIKE 'gave %'")" -ge $((rounds * 3 * stages)) ] ||
        complain "$state: the audit log lacks updates"
}
same_model() {
    [ -n "$(weights "$2")" ] && [ "$(weights "$1")" = "$(weights "$2")" ] ||
        complain "$2 has weights $(weights "$2"), $1 has $(weights "$1")"
}

federation calm "${terms[@]}"
counted calm 1
disturbed wild "${terms[@]}"
counted wild 1
same_model calm wild
disturbed masked "${terms[@]}" --secure
counted masked 5
[ -n "$(weights masked)" ] || complain "no model of secure rounds"
if [ "$kills" -gt 2 ]; then # sums in the ring are exact, so masks leave nothing behind
    federation masked-calm "${terms[@]}" --secure
    same_model masked-calm masked
fi

# Ctrl-C is kind, and terms do not change.
rm -f federation/*/state
port=
lead stopped "${terms[@]}"
kill -INT "${pids[stopped]}"
ends stopped 130
grep -q 'stopped in round' stopped.log || complain "Ctrl-C: $(cat stopped.log)"
refused 2 'other terms' "$tutti" fed coordinator --state stopped --listen 127.0.0.1:0 "${terms[@]}" --rounds 99
for flag in --secure '--dp central' '--lr 0.5' '--rounds 10' '--batch 32' --full-batch; do
    refused 2 "${flag%% *}: stopped has .*other terms" \
        "$tutti" fed coordinator --state stopped --listen 127.0.0.1:0 $flag
done
refused 2 'other terms' "$tutti" fed coordinator --state stopped --listen 127.0.0.1:0 --no-shuffle
lead stopped --rounds "$rounds" --batch 15
kill -INT "${pids[stopped]}"
ends stopped 130
refused 2 'is new' "$tutti" fed coordinator --state other --listen 127.0.0.1:0
# What cannot begin leaves nothing.
lead stopped
begins() { "$tutti" fed coordinator --state other --listen 127.0.0.1:0 "${terms[@]}" "$@"; }
refused 2 'nosuch' begins --model nosuch
refused 2 'sum alone' begins --secure --aggregate median
refused 1 'no-keys' begins --keys no-keys
refused 1 'cannot listen there' begins --listen "127.0.0.1:$port"
[ ! -e other ] || complain "a federation that did not begin left $(ls other)"
kill -INT "${pids[stopped]}"
ends stopped 130
finish
