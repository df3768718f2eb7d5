#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""page.py FOLDER - study.md from FOLDER/study.jsonl, with the plots of FOLDER/study.html as files beside it."""
import json
import pathlib
import re
import sys

FIGURES = (("val_accuracy", "validation accuracy", 100, "%"), ("val_loss", "validation loss", 1, ""),
           ("train_accuracy", "training accuracy", 100, "%"), ("train_loss", "training loss", 1, ""),
           ("epoch_seconds", "time of an epoch", 1, " s"))
# What the slides report of "distributed" against "single": accuracy and loss, time (no numbers are given there).
REPORTED = {"vgg11": ("improved", "improved"), "mlp": ("improved", "improved"), "cnn": ("worse", "improved"),
            "nbow": ("unchanged", "improved"), "seq2seq": ("unchanged", "improved"),
            "conv_autoencoder": ("unchanged", "improved"),
            "mobilenet_v2": ("0.81-0.82 to 0.83-0.85 after 10 epochs", "7,250 s to 1,451 s on four nodes")}


def cell(figure, scale, unit, is_base):
    if not figure:
        return "–"
    text = f"{figure['mean'] * scale:.4g}{unit}"
    if figure["deviation"] is not None:
        text += f" ± {figure['deviation'] * scale:.2g}"
    return text if is_base else f"{text}: **{figure['verdict']}**"


def section(model, groups, plots):
    told = [f for f in FIGURES if any(f[0] in g for g in groups)]
    out = [f"## {model} on {groups[0]['data']}", ""]
    out += ["| | runs | " + " | ".join(f[1] for f in told) + " | speed-up |", "|---" * (len(told) + 3) + "|"]
    for g in groups:
        cells = [cell(g.get(key), scale, unit, g["is_baseline"]) for key, _, scale, unit in told]
        bits = ", same bits" if g["same_weights"] else ""
        speedup = f"{g['speedup']:.2f}" if g["speedup"] is not None else "–"
        out.append(f"| {g['group']}{bits} | {g['runs']} | " + " | ".join(cells) + f" | {speedup} |")
    accuracy, time = REPORTED.get(model, ("–", "–"))
    out += ["", f"The sources report for distributed against single: accuracy and loss {accuracy}; time {time}.", ""]
    out += [" ".join(f"![{title}](study/{name})" for title, name in plots), ""]
    return out


def plots_of(folder, page, heading, model):
    """Cuts the plots of a section out of the page: each is whole by itself."""
    begin = page.index(heading)
    end = page.find("<section", begin)
    found = []
    for i, svg in enumerate(re.findall(r"<svg.*?</svg>", page[begin:end if end > 0 else None], re.S)):
        title = re.search(r"<title>(.*?)</title>|<text[^>]*>(.*?)</text>", svg, re.S)
        name = f"{model}-{i}.svg"
        if "xmlns" not in svg[:200]:
            svg = svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
        (folder / "study" / name).write_text(svg)
        found.append((next(filter(None, title.groups())) if title else name, name))
    return found


def main(folder):
    folder = pathlib.Path(folder)
    (folder / "study").mkdir(exist_ok=True)
    groups = [json.loads(line) for line in (folder / "study.jsonl").read_text().splitlines()]
    page = (folder / "study.html").read_text()
    out = []
    for model in dict.fromkeys(g["model"] for g in groups):
        mine = [g for g in groups if g["model"] == model]
        out += section(model, mine, plots_of(folder, page, f"{model} on {mine[0]['data']}", model))
    (folder / "study.md").write_text("\n".join(out))
    print(folder / "study.md")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
