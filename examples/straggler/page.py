#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""page.py FOLDER MODE... - a table (straggler.md) and a page with curves (straggler.html) of the runs that
run.sh made: FOLDER/MODE-healthy and FOLDER/MODE-slowed."""
import html
import json
import pathlib
import statistics
import sys

WIDTH, HEIGHT, MARGIN = 760, 360, 52
COLOURS = ("#1b6ca8", "#d1495b", "#3c8d5a", "#8a5fb4", "#c98a1b", "#4a4a4a", "#17a2a2", "#b05f8c")


def lines_of(run):
    """The metrics of a run that are numbers, in order."""
    text = (run / "metrics.jsonl").read_text()
    return [m for m in map(json.loads, text.splitlines()) if m["kind"] in ("train", "eval")]


def rate_of(run, batch):
    """Steps of the whole batch a second, over all workers, but for the first interval and the last, in which worker 0
    waits for the others' end. What workers that do not wait have done comes in lumps, so it is a mean."""
    lines = [m for m in lines_of(run) if m["kind"] == "train" and "samples_per_s" in m][:-1]
    spans = [b["seconds"] - a["seconds"] for a, b in zip(lines, lines[1:])]
    done = sum(m["samples_per_s"] * s for m, s in zip(lines[1:], spans))
    return done / sum(spans) / batch


def row_of(folder, mode):
    runs = {how: folder / f"{mode}-{how}" for how in ("healthy", "slowed")}
    summaries = {how: json.loads((run / "summary.json").read_text()) for how, run in runs.items()}
    rates = {how: rate_of(run, summaries[how]["batch"]) for how, run in runs.items()}
    return {"mode": mode, "rates": rates, "kept": rates["slowed"] / rates["healthy"],
            "seconds": {how: s["seconds"] for how, s in summaries.items()},
            "val_loss": {how: s["val_loss"] for how, s in summaries.items()},
            "accuracy": {how: s["val_accuracy"] for how, s in summaries.items()},
            "curve": [(m["seconds"], m["train_loss"]) for m in lines_of(runs["slowed"])
                      if m["kind"] == "train" and "train_loss" in m]}


def table(rows):
    base = next((r for r in rows if r["mode"] == "step"), rows[0])["rates"]["healthy"]
    out = ["| mode | steps/s, healthy | steps/s, one worker 4× slower | of its own healthy rate | of step's healthy rate "
           "| seconds to the end | validation loss, healthy | validation loss, slowed | accuracy, slowed |",
           "|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        out.append(f"| {r['mode']} | {r['rates']['healthy']:.1f} | {r['rates']['slowed']:.1f} | {100 * r['kept']:.0f}% "
                   f"| {100 * r['rates']['slowed'] / base:.0f}% | {r['seconds']['slowed']:.1f} "
                   f"| {r['val_loss']['healthy']:.4f} | {r['val_loss']['slowed']:.4f} "
                   f"| {100 * r['accuracy']['slowed']:.2f}% |")
    return "\n".join(out) + "\n"


def smoothed(curve, span=5):
    return [(curve[i][0], statistics.mean(v for _, v in curve[max(0, i - span + 1):i + 1]))
            for i in range(len(curve))]


def plot(rows):
    curves = [(r["mode"], smoothed(r["curve"])) for r in rows]
    most_s = max(c[-1][0] for _, c in curves if c)
    losses = [v for _, c in curves for _, v in c]
    low, high = min(losses), max(losses)

    def at(second, loss):
        x = MARGIN + (WIDTH - 2 * MARGIN) * second / most_s
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (loss - low) / ((high - low) or 1)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="training loss over seconds">',
             f'<path d="M{MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}" fill="none" stroke="#888"/>']
    for i in range(5):
        second, loss = most_s * i / 4, low + (high - low) * i / 4
        x, y = at(second, low).split(",")[0], at(0, loss).split(",")[1]
        parts.append(f'<text x="{x}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{second:.3g} s</text>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y}" text-anchor="end">{loss:.2f}</text>')
    for i, (mode, curve) in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f'<polyline points="{" ".join(at(*p) for p in curve)}" fill="none" stroke="{colour}" '
                     'stroke-width="1.6"/>')
        parts.append(f'<text x="{WIDTH - MARGIN - 110}" y="{MARGIN + 15 * i}" fill="{colour}">{html.escape(mode)}</text>')
    return "\n".join(parts + ["</svg>"])


def as_html(text):
    """The table of pipes as one of HTML."""
    rows = [[c.strip() for c in line.strip("|\n").split("|")] for line in text.splitlines()]
    head = "".join(f"<th>{html.escape(c)}</th>" for c in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in r) + "</tr>\n" for r in rows[2:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def main():
    folder, modes = pathlib.Path(sys.argv[1]), sys.argv[2:]
    if not modes:
        sys.exit("page.py: no mode has run")
    rows = [row_of(folder, m) for m in modes]
    text = table(rows)
    (folder / "straggler.md").write_text("One of four workers is four times as slow (`--slow rank=2,factor=4`).\n\n" + text)
    (folder / "straggler.html").write_text(
        "<!doctype html><html lang=en><meta charset=utf-8><title>A straggler</title><style>body{font:15px/1.5 "
        "system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;"
        "font-variant-numeric:tabular-nums}th,td{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:right}"
        "th:first-child,td:first-child{text-align:left}svg text{font:11px system-ui,sans-serif}</style>"
        "<h1>One of four workers is four times as slow</h1><p>Training loss over time with the slow worker (mean of five "
        f"intervals):</p>{plot(rows)}{as_html(text)}</html>\n")
    print(text, end="")


if __name__ == "__main__":
    main()
