#!/usr/bin/env bash
# terminal.sh - what a person sees: the first line of a run, words, JSON on a terminal, a bar on one that is resized.
. "$(dirname "$0")/lib.sh"
need_data fashion-mnist
command -v python3 >/dev/null || skip "no python3"

"$tutti" train mlp --epochs 1 --limit 300 --threads 1 -n 2 --strategy mirrored --shards 4 --out run >out.txt 2>err.txt || complain "$(cat err.txt)"
head -n 1 err.txt | grep -Eqx 'mlp \([0-9,]+ parameters\) on fashion-mnist \(300 samples, 10 classes\): mirrored, 2 ranks x 1 thread, 4 shards, batch 64, 5 steps' ||
    complain "the first line is: $(head -n 1 err.txt)"
grep -q '^epoch 1 .*  validation loss' err.txt || complain "no validation loss in: $(cat err.txt)"
grep -q 'validation accuracy .*validation loss' out.txt || complain "no validation accuracy in: $(cat out.txt)"
grep -qi 'test \(loss\|accuracy\)' out.txt err.txt run/report.html && complain "one split has two names"

# As little as there can be: no number that cannot be, and none that is no number.
"$tutti" train mlp --steps 2 --limit 2 --batch 2 -n 2 --threads 1 --strategy asgd --log-every 1 --out little >out.txt 2>err.txt || complain "$(cat err.txt)"
"$tutti" train mlp --steps 1 --limit 1 --batch 1 --log-every 1 --out least >>out.txt 2>>err.txt || complain "$(cat err.txt)"
"$tutti" bench comm -n 1 --bytes 262144 >>out.txt || complain "bench comm of one rank"
"$tutti" bench scale mlp --ranks 1,2 --batch 2 --rounds 1 --windows 1 --strong >scale.txt || complain "bench scale"
grep -Eq 'serial share (100\.00|[0-9]{1,2}\.[0-9]+)%|^no fit' scale.txt || complain "the serial share: $(cat scale.txt)"
grep -Eiw 'nan|inf' out.txt err.txt little/metrics.jsonl least/metrics.jsonl && complain "a number that is none"
python3 - <<'PY' || complain "a share that cannot be"
import re
texts = [open(f).read() for f in ("out.txt", "err.txt")]
texts += [" ".join(re.findall(r">([^<]*%)<", open(f).read())) for f in ("little/report.html", "least/report.html")]
for text in texts:
    for sign, share in re.findall(r"([-\u2212]?)(\d+(?:\.\d+)?)%", text):
        assert not sign and float(share) <= 100, (share, text)
PY

cat >terminal.py <<'PY'
"""Runs a program on a terminal; its width goes through the numbers given. Prints what came."""
import fcntl, os, pty, select, struct, sys, termios
widths, words = [int(w) for w in sys.argv[1].split(",")], sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.execv(words[0], words)
got = b""
while True:
    width = widths.pop(0) if len(widths) > 1 else widths[0]
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    if select.select([fd], [], [], 0.15)[0]:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        got += data
status = os.waitpid(pid, 0)[1]
sys.stdout.buffer.write(got)
sys.exit(os.waitstatus_to_exitcode(status))
PY
python3 terminal.py 120 "$tutti" train mlp --epochs 2 --limit 2000 --log-every 5 --threads 1 --json --out json >seen.txt || complain "--json on a terminal: $(cat seen.txt)"
python3 - <<'PY' || complain "a line of JSON on a terminal has something beside it: $(head -c 800 seen.txt)"
import json
lines = open("seen.txt", newline="").read().replace("\r\n", "\n").split("\n")
kinds = [json.loads(line)["kind"] for line in lines if line]
assert kinds.count("eval") == 2 and kinds[-1] == "summary" and kinds.count("train") > 3, kinds
PY

# A bar is never longer than the terminal was when it was drawn, and what is left of a longer one goes before the next.
TERM=xterm LC_ALL=C NO_COLOR=1 python3 terminal.py 130,130,100,60,40,50,120 "$tutti" train mlp --epochs 6 --limit 3000 --threads 1 --out bar >seen.txt || complain "on a terminal: $(cat seen.txt)"
python3 - <<'PY' || complain "the bar on a terminal: $(head -c 800 seen.txt)"
import re
text = open("seen.txt", newline="").read()
bars = re.findall(r"\r([^\r\n\x1b]*%[^\r\n\x1b]*)\x1b\[J\r", text)
assert bars and max(map(len, bars)) < 130, bars
assert "\x1b[K" not in text
PY
finish
