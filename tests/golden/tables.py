# SPDX-License-Identifier: MIT
"""Models of tables in PyTorch, on a table made of a seed: standardized by its training rows, missing values and
categories as data/schema.h says. Losses of 20 steps of SGD in float64; of the test rows accuracy, AUC and expected
calibration error after the last. README.md says what is in tables.json, which it
writes."""
import json
import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import start

STEPS, BATCH, SEED, TRAIN, TEST, BINS = 20, 16, 7, 320, 100, 10
KINDS = ("blue", "green", "red")


def rows(count, generator):
    """A line of the file each: two numbers and a category, some missing, and what is to be told."""
    lines = []
    for _ in range(count):
        age, dose = generator.normal(50, 12), generator.normal(0, 2)
        kind = generator.integers(3)
        score = (age - 50) / 12 - dose / 2 + (0.8, -0.5, 0)[kind] + generator.normal(0, 0.8)
        cells = [f"{age:.1f}", KINDS[kind], f"{dose:.3f}", "yes" if score > 0 else "no"]
        for i, share in ((0, 0.15), (1, 0.1)):
            if generator.random() < share:
                cells[i] = ("?", "")[i]
        lines.append(",".join(cells))
    return lines


def make_files():
    generator = np.random.default_rng(SEED)
    head = ["age,kind,dose,sick"]
    return {name: "\n".join(head + rows(count, generator)) + "\n"
            for name, count in (("train.csv", TRAIN), ("test.csv", TEST))}


def read(text):
    cells = [line.split(",") for line in text.splitlines()[1:]]
    number = lambda c: float("nan") if c in ("", "?") else float(c)
    return (np.array([[number(r[0]), number(r[2])] for r in cells]), [r[1] for r in cells],
            torch.tensor([int(r[3] == "yes") for r in cells]))


def features(numbers, kinds, mean, deviation):
    """age, where age is missing, the kinds, dose."""
    z = (numbers - mean) / deviation
    gaps = np.isnan(z)
    z[gaps] = 0
    columns = [z[:, 0], gaps[:, 0]] + [np.array([k == kind for k in kinds]) for kind in KINDS] + [z[:, 1]]
    return torch.tensor(np.stack([np.asarray(c, np.float64) for c in columns], 1))


class Logistic(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.fc = nn.Linear(inputs, 2)

    def forward(self, x):
        return self.fc(x)


class Tabular(nn.Module):
    def __init__(self, inputs, hidden=16):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, hidden), nn.Linear(hidden, 2)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


def auc(score, label):
    ones, zeros = score[label == 1], score[label == 0]
    above = (ones[:, None] > zeros[None, :]).sum() + 0.5 * (ones[:, None] == zeros[None, :]).sum()
    return float(above) / (len(ones) * len(zeros))


def calibration_error(probability, label):
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    return sum(abs(probability[bins == b].sum() - label[bins == b].sum()) for b in range(BINS)) / len(label)


def begin(net):
    for number, (name, value) in enumerate(net.state_dict().items()):
        fan_in = net.get_submodule(name.rsplit(".", 1)[0]).weight.shape[1]
        value.copy_(torch.tensor(start.draw(tuple(value.shape), 0, fan_in ** -0.5, number, SEED)))


def run(make, rate, x, y, test_x, test_y):
    net = make(x.shape[1]).double()
    begin(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    losses = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x[part]), y[part])
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    with torch.no_grad():
        logits = net(test_x)
    score, label = (logits[:, 1] - logits[:, 0]).numpy(), test_y.numpy()
    return {"lr": rate, "losses": losses, "accuracy": float(((score > 0) == label).mean()), "auc": auc(score, label),
            "calibration_error": float(calibration_error(1 / (1 + np.exp(-score)), label))}


def make():
    files = make_files()
    numbers, kinds, y = read(files["train.csv"])
    mean, deviation = np.nanmean(numbers, 0), np.nanstd(numbers, 0)
    test_numbers, test_kinds, test_y = read(files["test.csv"])
    data = (features(numbers, kinds, mean, deviation), y, features(test_numbers, test_kinds, mean, deviation), test_y)
    return {"steps": STEPS, "batch": BATCH, "seed": SEED, "torch": torch.__version__.split("+")[0], "files": files,
            "models": {"logistic": run(Logistic, 0.5, *data), "tabular": run(Tabular, 0.5, *data)}}


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("tables.json")
    path.write_text(json.dumps(make(), indent=1) + "\n")
    print(path, file=sys.stderr)
