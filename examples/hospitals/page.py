# SPDX-License-Identifier: MIT
"""page.py RESULTS MODEL ROUNDS EPOCHS - hospitals.md and hospitals.html from the lines that run.sh wrote. Exits 1 if federated
training is not as good as it should be."""
import html
import json
import math
import sys

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
NAMES = {"pooled": "pooled", "federated": "federated", "alone": "alone, mean of four", "cleveland": "Cleveland alone",
         "hungarian": "Budapest alone", "switzerland": "Switzerland alone", "va": "Long Beach alone"}
PLACES = {"cleveland": "Cleveland", "hungarian": "Budapest", "switzerland": "Switzerland", "va": "Long Beach"}
KEYS = {"accuracy": "val_accuracy", "AUC": "val_auc", "calibration error": "val_calibration_error"}
MARGIN = 0.02


def figures(lines, who, on, key):
    """One number a fold; of `alone` the mean of the four."""
    if who == "alone":
        each = [figures(lines, hospital, on, key) for hospital in HOSPITALS]
        return [sum(fold) / len(fold) for fold in zip(*each)]
    return [line["result"].get(key, math.nan) for line in lines if line["who"] == who and line["on"] == on]


def mean(numbers):
    numbers = [n for n in numbers if not math.isnan(n)]
    return sum(numbers) / len(numbers) if numbers else math.nan


def deviation(numbers):
    middle = mean(numbers)
    return math.sqrt(sum((n - middle) ** 2 for n in numbers) / (len(numbers) - 1)) if len(numbers) > 1 else 0


def verdicts(lines):
    """What should hold, and whether it does."""
    for name in ("accuracy", "AUC"):
        pooled, federated, alone = (mean(figures(lines, who, "heart-disease", KEYS[name])) for who in ("pooled", "federated", "alone"))
        yield (f"{name}: federated {federated:.3f} is no more than {MARGIN} below pooled {pooled:.3f}", federated >= pooled - MARGIN)
        yield (f"{name}: federated {federated:.3f} is above the mean of alone {alone:.3f}", federated > alone)


def all_patients(lines):
    rows = [["", *KEYS]]
    for who in ("pooled", "federated", "alone", *HOSPITALS):
        cells = [figures(lines, who, "heart-disease", key) for key in KEYS.values()]
        rows.append([NAMES[who], *(f"{mean(c):.3f} ± {deviation(c):.3f}" for c in cells)])
    return rows


def own_patients(lines):
    rows = [["accuracy on patients of", "pooled", "federated", "that hospital alone"]]
    for hospital in HOSPITALS:
        on = "heart-disease/" + hospital
        rows.append([PLACES[hospital], *(f"{mean(figures(lines, who, on, 'val_accuracy')):.3f}" for who in ("pooled", "federated", hospital))])
    return rows


def markdown(rows):
    head, *rest = rows
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rest)])


def table(rows):
    head, *rest = [[html.escape(cell) for cell in row] for row in rows]
    return "<table><tr>" + "".join(f"<th>{c}</th>" for c in head) + "</tr>" + "".join(
        "<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rest) + "</table>"


def bars(lines, name):
    """A bar a way, with a whisker of one deviation over folds."""
    ways, low, width = ("pooled", "federated", "alone", *HOSPITALS), 0, 420
    x = lambda value: 170 + (max(low, min(1, value)) - low) / (1 - low) * (width - 170)
    parts = [f'<svg viewBox="0 0 {width + 60} {len(ways) * 30 + 50}" role="img" aria-label="{name}"><text x="0" y="16" class="title">{name} on all patients</text>']
    for i, who in enumerate(ways):
        numbers = figures(lines, who, "heart-disease", KEYS[name])
        middle, spread, y = mean(numbers), deviation(numbers), 32 + 30 * i
        colour = {"pooled": "#0072b2", "federated": "#d55e00"}.get(who, "#999999")
        parts.append(f'<text x="160" y="{y + 13}" text-anchor="end">{NAMES[who]}</text><rect x="170" y="{y}" width="{x(middle) - 170:.1f}" height="18" fill="{colour}"/>'
                     f'<line x1="{x(middle - spread):.1f}" x2="{x(middle + spread):.1f}" y1="{y + 9}" y2="{y + 9}" stroke="#222" stroke-width="1.5"/>'
                     f'<text x="{width + 8}" y="{y + 13}">{middle:.3f}</text>')
    parts.append(f'<text x="170" y="{len(ways) * 30 + 45}">{low}</text><text x="{width}" y="{len(ways) * 30 + 45}" text-anchor="end">1</text></svg>')
    return "".join(parts)


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{border-bottom:1px solid #ccc;padding:.3em .8em;text-align:right}
td:first-child,th:first-child{text-align:left}svg{width:500px;max-width:100%;font-size:13px}.title{font-weight:600;font-size:15px}
.plots{display:flex;flex-wrap:wrap}.no{color:#b00020}"""


def main():
    path, model, rounds, epochs = sys.argv[1:]
    lines = [json.loads(line) for line in open(path)]
    folds = len({line["fold"] for line in lines})
    about = (f"Model {model}, {folds} folds of 920 patients of four hospitals, each tested once; means over folds ± one standard deviation. Federated: {rounds} rounds of "
             f"{epochs} epochs after one for statistics, over mutual TLS and by secure aggregation. Every way is tested on the same patients of all hospitals; a hospital alone standardizes by "
             "its own patients.")
    checks = list(verdicts(lines))
    with open("hospitals.md", "w") as out:
        out.write(f"{about}\n\n{markdown(all_patients(lines))}\n\n{markdown(own_patients(lines))}\n\n")
        out.writelines(f"- {text}: {'yes' if holds else 'NO'}\n" for text, holds in checks)
    with open("hospitals.html", "w") as out:
        out.write(f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Hospitals</title><style>{STYLE}</style><h1>Four hospitals, one model</h1>'
                  f"<p>{html.escape(about)}</p><div class=plots>{bars(lines, 'accuracy')}{bars(lines, 'AUC')}</div>{table(all_patients(lines))}{table(own_patients(lines))}<ul>"
                  + "".join(f"<li class={'yes' if holds else 'no'}>{html.escape(text)}: {'yes' if holds else 'no'}</li>" for text, holds in checks) + "</ul></html>\n")
    print(open("hospitals.md").read())
    sys.exit(not all(holds for _, holds in checks))


if __name__ == "__main__":
    main()
