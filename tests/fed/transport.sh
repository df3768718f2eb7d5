#!/usr/bin/env bash
# transport.sh - strangers, liars and dawdlers at a coordinator's door: refused, logged, and the round goes on.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
for program in openssl curl; do
    command -v $program >/dev/null || skip "$program is not here"
done

enrol one two gone
"$tutti" fed keys enrol watcher --viewer >/dev/null || complain "keys enrol --viewer"
lead state --model mlp --limit 100 --rounds 2 --min-participants 2 --request-timeout 2 --batch 20 --seed 7
host=127.0.0.1:$port

# refuses PATTERN CODES COMMAND...: the command gets none of the codes of HTTP that the list has not, and the log says why
refuses() {
    local pattern=$1 codes=$2 got
    shift 2
    got=$("$@" -o reply.txt -w '%{http_code}' 2>err.txt)
    [[ " $codes " = *" $got "* ]] || complain "$pattern: HTTP $got instead of $codes: $(cat err.txt)"
    logged state "$pattern"
}
plain() { curl -sS --max-time 20 --cacert federation/authority.pem "$@"; }

refuses 'no certificate' 000 plain "$url/"
refuses 'no TLS.*plain HTTP' 000 plain "http://$host/"

# Another authority, of the same names.
mkdir other && (cd other && "$tutti" fed keys init >/dev/null && "$tutti" fed keys enrol one >/dev/null) || complain "other"
refuses 'not of this federation' 000 plain --cert other/federation/one/cert.pem --key other/federation/one/key.pem "$url/"
# An expired one, signed by the right authority.
mkdir ca && : >ca/index.txt && echo 01 >ca/serial
cat >ca/conf <<'CONF'
[ca]
default_ca = it
[it]
database = ca/index.txt
serial = ca/serial
new_certs_dir = ca
default_md = sha256
policy = any
x509_extensions = member
[any]
organizationalUnitName = supplied
commonName = supplied
[member]
basicConstraints = CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
CONF
openssl ecparam -genkey -name prime256v1 -noout -out old-key.pem
openssl req -new -key old-key.pem -subj '/OU=participant/CN=late' -out old.csr
openssl ca -batch -notext -config ca/conf -cert federation/authority.pem -keyfile federation/authority-key.pem -in old.csr \
    -startdate 20200101000000Z -enddate 20200201000000Z -out old.pem 2>ca/log || complain "openssl ca: $(cat ca/log)"
refuses 'late.*has expired' 000 plain --cert old.pem --key old-key.pem "$url/"
# A revoked one.
[ "$(as gone "$url/terms" -o /dev/null -w '%{http_code}')" = 200 ] || complain "gone is not let in before it is revoked"
"$tutti" fed keys revoke gone >/dev/null || complain "revoke"
refuses 'gone.*has been revoked' '000 403' as gone "$url/terms"
# TLS 1.1 is none any more.
plain --tls-max 1.1 --cert federation/one/cert.pem --key federation/one/key.pem "$url/" >out.txt 2>&1 &&
    complain "TLS 1.1 was spoken"

# hello CLIENT: a message as bytes
hello() { printf 'tfed\002\001\003\000\000\000%s\144\000\000\000\000\000\000\000\002\000\000\000{}' "$1"; }
hello two >two.bin
as one "$url/message" --data-binary @two.bin -o reply.bin || complain "a lie about the name"
grep -q refused <(strings -n 4 reply.bin) || grep -aq 'certificate\|another' reply.bin || complain "the lie was believed: $(strings reply.bin)"
logged state '^one.*\(two\|another\|name\)'
# Malformed messages.
head -c 200 /dev/urandom >junk.bin
as one "$url/message" --data-binary @junk.bin -o reply.bin || complain "junk"
head -c 12 two.bin >short.bin
as one "$url/message" --data-binary @short.bin -o reply.bin || complain "a short message"
logged state '^one.*message'
# Too large, with and without saying so.
head -c 20000000 /dev/zero >large.bin
refuses 'one.*body is larger' '413 000' as one "$url/message" --data-binary @large.bin
refuses 'one.*body is larger' '413 000 100' as one "$url/message" -H 'Transfer-Encoding: chunked' --data-binary @large.bin
# What is not there, methods that are not, and who may look but not speak.
[ "$(as one "$url/etc/passwd" -o /dev/null -w '%{http_code}')" = 404 ] || complain "a path that is not there"
refuses 'one.*method' 405 as one -X DELETE "$url/message"
refuses 'watcher.*no participant' 403 as watcher "$url/message" --data-binary @two.bin
[ "$(as watcher "$url/" -o page.html -w '%{http_code}')" = 200 ] || complain "a viewer sees nothing"

# A participant's own door: terms outside of its policy, certificates that are not for it.
asks() { "$tutti" fed join "$url" --data fashion-mnist --limit 100 "$@"; }
echo '{"secure": true}' >strict.json
refused 1 'no secure aggregation' asks --cert federation/one/cert.pem --policy strict.json
echo '{"max_epochs": 0}' >strict.json
refused 1 'epochs a round 1, the policy allows 0' asks --cert federation/one/cert.pem --policy strict.json
echo '{"max_epoch": 1}' >strict.json
refused 1 'did you mean max_epochs' asks --cert federation/one/cert.pem --policy strict.json
refused 2 'certificate of a viewer' asks --cert federation/watcher/cert.pem
refused 1 'not the key that' asks --cert federation/one/cert.pem --identity federation/two/identity.pem
refused 1 'no such file\|not there\|No such file' asks --cert federation/nobody/cert.pem
refused 1 'nobody.pem.*no such file\|nobody.pem.*No such file\|nobody.pem.*not there' asks --cert nobody.pem
refused 2 'two/key.pem: is not the key of federation/one/cert.pem' asks --cert federation/one/cert.pem --key federation/two/key.pem
refused 2 'nowhere/state: the state cannot be kept' asks --cert federation/one/cert.pem --state nowhere/state
refused 2 'out nowhere/model' asks --cert federation/one/cert.pem --out nowhere/model
refused 2 'URL --cert' "$tutti" fed join
refused 2 'begins with https' "$tutti" fed join "http://$host" --cert federation/one/cert.pem
# One process a state.
flock federation/one/state.lock "$tutti" fed join "$url" --data fashion-mnist --cert federation/one/cert.pem 2>err.txt
[ $? = 2 ] && grep -q 'federation/one/state: another participant runs on this state' err.txt ||
    complain "a second participant on one state: $(cat err.txt)"
[ ! -e federation/one/state ] || complain "a refusal left a state"

# Slow ones: a handshake that never comes, a header that never ends, a body that trickles. All are cut off.
trickle() { while printf '%s' "$1" 2>/dev/null; do sleep 0.2; done; }
dawdle() { # FIRST: says it, then goes on byte by byte
    (printf "$1"; trickle x) | timeout 30 openssl s_client -quiet -connect "$host" -CAfile federation/authority.pem \
        -cert federation/one/cert.pem -key federation/one/key.pem >/dev/null 2>&1
}
header='GET / HTTP/1.1\r\nX-Slow: '
body='POST /message HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n'
began=$SECONDS
(exec 3<>"/dev/tcp/127.0.0.1/$port" && timeout 30 cat <&3 >/dev/null) &
slow=($!)
for first in "$header" "$body"; do
    dawdle "$first" &
    slow+=($!)
done
wait "${slow[@]}"
[ $((SECONDS - began)) -lt 25 ] || complain "slow connections were kept for $((SECONDS - began)) s"
logged state 'no handshake within'

# While others dawdle the round goes on.
for first in "$header" "$body"; do dawdle "$first" & done
join one --data fashion-mnist --limit 100 --part 1/2
join two --data fashion-mnist --limit 100 --part 2/2
ends one
ends two
ends state

# One that is revoked while a round waits for it: the others go on.
"$tutti" fed keys enrol six >/dev/null || complain "enrol six"
port=
lead second --model mlp --limit 100 --rounds 2 --min-participants 2 --batch 20
hello six >six.bin
as six "$url/message" --data-binary @six.bin -o reply.bin || complain "hello of six"
for name in one two; do join $name --data fashion-mnist --limit 100 --quiet; done
logged second 'begins with [23]'
[ "$(sql second 'SELECT count(*) FROM round_state')" = 0 ] || complain "a round did not wait for six"
"$tutti" fed keys revoke six >/dev/null || complain "revoke six"
for name in one two second; do ends $name; done
grep -q 'six: has been revoked' second.log || complain "nobody says that six is gone: $(cat second.log)"
grep -q 'round 2 of 2 is done' second.log || complain "rounds done are not told: $(cat second.log)"
[ -s state/model.safetensors ] || complain "no model"
[ "$(sql state 'SELECT count(*) FROM round_state')" = 2 ] || complain "rounds: $(sql state 'SELECT * FROM round_state')"
finish
