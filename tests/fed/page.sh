#!/usr/bin/env bash
# page.sh - the status page in a real browser: curves are drawn, nothing else is asked for, and a certificate is.
#
# Headless Chromium has no way to choose a certificate, so a small forwarder shows it ours; without it, it sees nothing.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
browser=
for program in chromium chromium-browser google-chrome; do
    command -v $program >/dev/null && browser=$program && break
done
[ -n "$browser" ] || skip "no Chromium is here"
command -v curl >/dev/null || skip "curl is not here"

enrol one two
"$tutti" fed keys enrol watcher --viewer >/dev/null || complain "keys enrol --viewer"
lead state --model mlp --data fashion-mnist --limit 100 --rounds 5000 --min-participants 2 --batch 20
join one --data fashion-mnist --limit 100 --part 1/2 --tell-labels
join two --data fashion-mnist --limit 100 --part 2/2
for _ in $(seq 300); do # two rounds make a curve
    "$tutti" fed status "$url" --cert federation/watcher/cert.pem --json >status.json 2>err.txt
    python3 -c 'import json, sys; sys.exit(len(json.load(open("status.json"))["history"]) < 2)' 2>/dev/null && break
    sleep 0.1
done
"$tutti" fed status "$url" --cert federation/watcher/cert.pem >status.txt || complain "fed status"
grep -q '^rounds  *[0-9]* of 5000' status.txt && grep -q 'participants  one .* 50 samples' status.txt || complain "fed status: $(cat status.txt)"

for name in one two; do kill -STOP "${pids[$name]}"; done # what they did is enough to be seen

grep -q '"labels": \[[0-9]' status.json || complain "labels that participant one tells are not shown"

# The page as it is sent: self-contained, and its policy forbids everything but its style.
as watcher -D headers.txt -o page.html "$url/" || complain "the page"
grep -qi "content-security-policy: default-src 'none'; style-src 'unsafe-inline'" headers.txt || complain "policy: $(cat headers.txt)"
grep -qi '^refresh: 3' headers.txt || complain "the page does not load itself anew"
! grep -qE '<script|src=|href=' page.html || complain "the page asks for something: $(grep -oE '<script|src=[^ ]*|href=[^ ]*' page.html | head -3)"

# forward FILE: a plain port on this machine that speaks to the coordinator with a viewer's certificate; FILE notes what is asked.
cat >forward.py <<'PY'
import http.client, http.server, ssl, sys
context = ssl.create_default_context(cafile="federation/authority.pem")
context.load_cert_chain("federation/watcher/cert.pem", "federation/watcher/key.pem")
class Forward(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open("asked.txt", "a") as out:
            out.write(self.path + "\n")
        there = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), context=context)
        there.request("GET", self.path)
        reply = there.getresponse()
        body = reply.read()
        self.send_response(reply.status)
        for name in ("Content-Type", "Content-Security-Policy"):
            self.send_header(name, reply.getheader(name))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forward)
print(server.server_port, flush=True)
server.serve_forever()
PY
python3 forward.py "$port" >forward.txt &
pids[forward]=$!
for _ in $(seq 100); do
    [ -s forward.txt ] && break
    sleep 0.05
done

look() { # ADDRESS FILE: the page as the browser has it when it has drawn
    timeout 20 $browser --headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run \
        --user-data-dir="$work/profile" --host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1' \
        --window-size=1280,1600 --screenshot="$work/page.png" --dump-dom "$1" >"$2" 2>browser.txt
}
look "http://127.0.0.1:$(cat forward.txt)/" seen.html
grep -q '</html>' seen.html || complain "the browser shows nothing: $(tail -3 browser.txt)"
[ "$(grep -o '<svg' seen.html | wc -l)" -ge 4 ] || complain "$(grep -o '<svg' seen.html | wc -l) plots instead of four or more"
grep -qE '<(path|polyline)[^>]* (d|points)="M?[0-9]' seen.html || complain "no curve is drawn"
for text in '>Loss<' '>Accuracy<' '>one<' '>two<' 'gave train of round'; do
    grep -q "$text" seen.html || complain "no $text in the page"
done
! grep -qiE 'refused to|content security policy' browser.txt || complain "the browser complains: $(cat browser.txt)"
[ -z "$(grep -v '^/$\|^/favicon.ico$' asked.txt)" ] || complain "it asked for: $(sort -u asked.txt)"
# Without a certificate there is no page.
look "$url/" nothing.html
! grep -q '>Loss<' nothing.html || complain "the page is shown without a certificate"

for name in forward one two state; do die $name; done
finish
