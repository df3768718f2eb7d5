#!/usr/bin/env bash
# keys.sh - the authority, by openssl's judgement: what it makes is valid, for its purpose, until it is revoked.
. "$(dirname "$0")/lib.sh"
command -v openssl >/dev/null || skip "openssl is not here"

enrol one two
"$tutti" fed keys enrol watcher --viewer >/dev/null || complain "keys enrol --viewer"
for name in coordinator one two watcher; do
    purpose=sslclient
    [ $name = coordinator ] && purpose=sslserver
    openssl verify -purpose $purpose -x509_strict -CAfile federation/authority.pem federation/$name/cert.pem >out.txt 2>&1 ||
        complain "$name: $(cat out.txt)"
    [ "$(openssl x509 -in federation/$name/cert.pem -noout -pubkey)" = "$(openssl pkey -in federation/$name/key.pem -pubout)" ] ||
        complain "$name: key and certificate do not belong together"
    [ "$(stat -c %a federation/$name/key.pem)" = 600 ] || complain "$name: others may read its key"
done
[ "$(stat -c %a federation/authority-key.pem)" = 600 ] || complain "others may read the authority's key"
openssl x509 -in federation/coordinator/cert.pem -noout -ext subjectAltName | grep -q 'DNS:localhost, IP Address:127.0.0.1' ||
    complain "the coordinator's names"
# The certificate names the key that signs.
public=$(openssl pkey -in federation/one/identity.pem -pubout -outform DER | tail -c 32 | od -An -tx1 | tr -d ' \n')
openssl x509 -in federation/one/cert.pem -noout -ext subjectAltName | grep -q "URI:urn:tutti:ed25519:$public" ||
    complain "the certificate names another key"

# A participant makes its keys itself; the authority gives the name.
"$tutti" fed keys request three >/dev/null || complain "keys request"
"$tutti" fed keys enrol other --request three/request.pem >/dev/null || complain "keys enrol --request"
[ ! -e federation/other/key.pem ] || complain "the authority made a key for a request"
openssl x509 -in federation/other/cert.pem -noout -subject | grep -q 'CN = other, OU = participant' || complain "name of a request"

"$tutti" fed keys revoke one >/dev/null || complain "keys revoke"
openssl verify -crl_check -CRLfile federation/revoked.pem -CAfile federation/authority.pem federation/one/cert.pem >out.txt 2>&1 &&
    complain "a revoked certificate is valid"
openssl verify -crl_check -CRLfile federation/coordinator/revoked.pem -CAfile federation/authority.pem federation/two/cert.pem \
    >out.txt 2>&1 || complain "two: $(cat out.txt)"
"$tutti" fed keys list >list.txt || complain "keys list"
grep -q '^one .*revoked' list.txt && grep -q '^two .*valid' list.txt && grep -q '^watcher .*viewer' list.txt ||
    complain "keys list: $(cat list.txt)"
[ "$("$tutti" fed keys list --json | grep -c '"valid": true')" = 3 ] || complain "keys list --json"

refused 2 'enrolled' "$tutti" fed keys enrol two
refused 1 'revoked' "$tutti" fed keys revoke one
refused 1 'not enrolled' "$tutti" fed keys revoke nobody
refused 2 'a name has' "$tutti" fed keys enrol ../three
refused 2 'taken' "$tutti" fed keys enrol coordinator
refused 2 'not replaced' "$tutti" fed keys init
refused 1 'no authority' "$tutti" fed keys enrol one --folder nowhere
refused 2 'at least 1' "$tutti" fed keys enrol one --days 0
refused 2 'init, enrol NAME' "$tutti" fed keys
refused 2 'did you mean keys' "$tutti" fed kyes
finish
