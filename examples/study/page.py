#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""page.py RUNS [PAGE] - PAGE/study.md, whole, from RUNS/study.jsonl, with the plots of RUNS/study.html as files in PAGE/study.

PAGE is RUNS where it is not given. Every sentence about results is made of the figures: nothing is to be added by hand.
"""
import json
import os
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

HEAD = """# The study: single, data parallel, hybrid

The slides on distributed training methods that tutti grew from train VGG11, an MLP, a CNN, NBoW, Seq2Seq and a convolutional autoencoder on one device and
distributed, and call each figure improved, unchanged or worse, without numbers or seeds; a paper does the same with MobileNetV2 on four nodes. This page repeats
the experiment with several seeds and a verdict that knows the noise. All of it, text included, is made by

    examples/study/run.sh build/tutti runs/study docs

*single* is one rank with one thread; *data-parallel* gives the same batch to two ranks; *data-parallel-2x* a batch twice as large, with the learning rate scaled,
which is what users get who give every worker the batch they had; *hybrid* is two replicas of two pipeline stages on four ranks. All have four
logical shards. "Better" and "worse" are differences beyond the noise among seeds (Welch's test at 5 %, and not negligible; `tutti compare`); curves are
means over seeds. Sizes are small, so that all of it runs on two cores in half an hour: accuracies are those of short training. `FULL=1` takes whole data sets.
"""


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


def words_of(items):
    return ", ".join(items[:-1]) + " and " + items[-1] if len(items) > 1 else "".join(items)


def same_bits(models):
    """Which ways had the weights of one rank, for which models."""
    ways = [g["group"] for g in next(iter(models.values())) if g["group"] in ("data-parallel", "hybrid")]
    whole = [m for m, groups in models.items() if all(g["same_weights"] for g in groups if g["group"] in ways)]
    others = [f"`{m}`" for m in models if m not in whole]
    text = f"**Distribution by itself {'changed something' if others else 'changes nothing'}**: "
    text += f"{words_of(ways)} runs on the same shards had the weights of one rank to the last bit for {len(whole)} of {len(models)} models"
    return text + (f", not for {words_of(others)}." if others else ". Where the sources report better or worse accuracy, "
                   "something else changed: the batch, its order, or the seed.")


def larger_batch(models):
    """What a batch twice as large made better or worse, by model."""
    found, quiet, unknown = [], [], []
    for model, groups in models.items():
        group = next((g for g in groups if g["group"] == "data-parallel-2x"), {})
        told = {f[1]: group[f[0]]["verdict"] for f in FIGURES if f[0] in group and f[0] != "epoch_seconds"}
        changes = [f"{words_of([n for n, v in told.items() if v == verdict])} {verdict}"
                   for verdict in ("better", "worse") if verdict in told.values()]
        into = unknown if "unknown" in told.values() else quiet
        found.append(f"`{model}`: {'; '.join(changes)}") if changes else into.append(f"`{model}`")
    parts = [". ".join(found)] if found else []
    parts += [f"{words_of(quiet)}: within the noise"] if quiet else []
    parts += [f"{words_of(unknown)}: too few seeds to tell"] if unknown else []
    return ". ".join(parts) + "."


def speeds(models, way):
    told = [(g["speedup"], m) for m, groups in models.items() for g in groups
            if g["group"] == way and g["speedup"] is not None]
    return f"{min(told)[0]:.2f} (`{min(told)[1]}`) to {max(told)[0]:.2f} (`{max(told)[1]}`)" if told else "nothing"


def machine():
    """The processor's name, and how many of its cores this process may use."""
    name = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return f"{len(os.sched_getaffinity(0))} cores of {name.group(1) if name else 'a processor without a name'}"


def seconds_of(folder):
    """What all runs took by their own accounts."""
    return sum(json.loads(path.read_text())["seconds"] for path in folder.glob("*/summary.json"))


def head(folder, models):
    seeds = max(g["runs"] for groups in models.values() for g in groups)
    return [HEAD, f"Measured on {machine()}, with {seeds} seeds a way; all runs together took {seconds_of(folder) / 60:.0f} minutes.", "",
            "What is to be seen:", "",
            f"- {same_bits(models)}",
            f"- **A larger batch may change results.** {larger_batch(models)}",
            f"- **Time**: the same batch on two ranks ran {speeds(models, 'data-parallel')} times as fast as on one, a hybrid of four "
            f"ranks {speeds(models, 'hybrid')} times; where there are fewer cores than ranks it shows that it works, not how it scales.", ""]


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


def main(runs, page=None):
    runs = pathlib.Path(runs)
    page = pathlib.Path(page or runs)
    (page / "study").mkdir(parents=True, exist_ok=True)
    models = {}
    for line in (runs / "study.jsonl").read_text().splitlines():
        group = json.loads(line)
        models.setdefault(group["model"], []).append(group)
    html = (runs / "study.html").read_text()
    out = head(runs, models)
    for model, groups in models.items():
        out += section(model, groups, plots_of(page, html, f"{model} on {groups[0]['data']}", model))
    (page / "study.md").write_text("\n".join(out))
    print(page / "study.md")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
