#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains models with PyTorch from tutti's initial weights, on tutti's batches, and writes what came
of it beside this file: losses.json has mlp and cnn, vision.json the vision zoo, text.json classifiers
of text and translation. README.md says what is in them.

  make_goldens.py [NAME ...]            writes; NAME is `losses` or a model of the other files
  make_goldens.py --check [NAME ...]    compares with the files instead
  make_goldens.py --against TUTTI [NAME ...]
                                        trains and evaluates the vision zoo with the program TUTTI
                                        and compares all elements of all tensors
"""
import argparse
import hashlib
import json
import pathlib
import sys

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "peers"))
import adaptive  # noqa: E402
import models  # noqa: E402
import start  # noqa: E402
import text  # noqa: E402
import vision  # noqa: E402

SEED = 7
STEPS = 50
BATCH = 64
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 5e-4}),
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}),
    "lars": (adaptive.LARS, {"momentum": 0.9, "weight_decay": 1e-4, "trust": 1e-3}),
    "lamb": (adaptive.LAMB, {"betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01}),
}
# cnn's rates are low so that its losses do not hang on rounding; README.md has the numbers.
RUNS = (("mlp", "sgd", 0.05), ("mlp", "adamw", 1e-3), ("cnn", "sgd", 3e-3), ("cnn", "adamw", 1e-4),
        ("mlp", "lars", 2), ("mlp", "lamb", 5e-3), ("cnn", "lars", 0.05), ("cnn", "lamb", 5e-4))
NUDGES = 6        # trainings from weights one unit in the last place away
TOLERANCE = 1e-5  # how far losses in float64, after a nudge or of another machine may be


def training_batches():
    """Images (STEPS, BATCH, 1, 28, 28), normalized in float32, and labels (STEPS, BATCH)."""
    images, labels = start.samples("fashion-mnist", "train", STEPS * BATCH)
    return images.reshape(STEPS, BATCH, 1, 28, 28), labels.reshape(STEPS, BATCH)


def initial_weights(net):
    return start.drawn_weights(net, start.initial_ranges(net), SEED)


def train(run, batches, dtype=torch.float32, nudge=None):
    """The loss of each step's batch, before that step's update."""
    model, optimizer, rate = run
    case = models.ZOO[model]()
    net = case.model.eval()  # no dropout; these models have nothing else that differs
    weights = initial_weights(net)
    if nudge is not None:
        weights = start.nudged(weights, nudge)
    start.load(net, weights)
    net.to(dtype)
    make, options = OPTIMIZERS[optimizer]
    update = make(net.parameters(), lr=rate, **options)
    losses = []
    for images, labels in zip(*batches):
        update.zero_grad()
        loss = case.loss(net, images.to(dtype), labels)
        loss.backward()
        update.step()
        losses.append(loss.item())
    return np.array(losses)


def fingerprints(model):
    result = {}
    for name, w in initial_weights(models.ZOO[model]().model).items():
        result[name] = {"shape": list(w.shape),
                        "first": [float(f"{v:.9g}") for v in w.reshape(-1)[:4]],
                        "sha256": hashlib.sha256(w.astype("<f4").tobytes()).hexdigest()}
    return result


def largest_difference(a, b):
    return float(np.max(np.abs(np.array(a) - b) / np.abs(b)))


def golden_run(run, batches):
    """A run's losses, unless they hang on rounding: then no other implementation can meet them."""
    model, optimizer, rate = run
    losses = train(run, batches)
    in_double = largest_difference(losses, train(run, batches, torch.float64))
    after_nudge = max(largest_difference(train(run, batches, nudge=n), losses)
                      for n in range(NUDGES))
    print(f"{model} {optimizer}: loss {losses[0]:.6f} -> {losses[-1]:.6f}; relative difference "
          f"to float64 {in_double:.1e}, after a nudge {after_nudge:.1e}")
    if max(in_double, after_nudge) > TOLERANCE:
        sys.exit(f"make_goldens: {model} {optimizer}: rounding alone moves the losses")
    return {"model": model, "optimizer": optimizer, "lr": rate, **OPTIMIZERS[optimizer][1],
            "losses": [float(f"{v:.8g}") for v in losses]}


def make():
    batches = training_batches()
    return {
        "made_by": "tests/golden/make_goldens.py", "torch": torch.__version__.split("+")[0],
        "seed": SEED, "steps": STEPS, "batch": BATCH,
        "first_batch": {"sum": round(float(batches[0][0].double().sum()), 4),
                        "labels": batches[1][0, :8].tolist()},
        "initial": {m: fingerprints(m) for m in ("mlp", "cnn")},
        "runs": [golden_run(r, batches) for r in RUNS],
    }


def compact(golden):
    """JSON with one line a parameter and one a run."""
    def line(x):
        return json.dumps(x, separators=(",", ":"))

    def block(items, brackets, indent):
        pad = " " * indent
        inner = ",\n".join(pad + " " + i for i in items)
        return f"{brackets[0]}\n{inner}\n{pad}{brackets[1]}"

    initial = [f'"{m}": ' + block([f'"{k}": {line(v)}' for k, v in ps.items()], "{}", 2)
               for m, ps in golden["initial"].items()]
    items = [f'"{k}": {line(v)}' for k, v in golden.items() if k not in ("initial", "runs")]
    items.append('"initial": ' + block(initial, "{}", 1))
    items.append('"runs": ' + block([line(r) for r in golden["runs"]], "[]", 1))
    return block(items, "{}", 0) + "\n"


def check(golden, stored):
    if golden["initial"] != stored["initial"] or golden["first_batch"] != stored["first_batch"]:
        sys.exit("make_goldens: initial weights or batches differ from losses.json")
    for ours, theirs in zip(golden["runs"], stored["runs"], strict=True):
        difference = largest_difference(ours["losses"], theirs["losses"])
        if difference > TOLERANCE:
            sys.exit(f"make_goldens: {ours['model']} {ours['optimizer']}: losses differ from "
                     f"losses.json by {difference:.1e}")
    print("losses.json agrees")


def make_losses(only_check):
    path, golden = HERE / "losses.json", json.loads(compact(make()))
    if only_check:
        check(golden, json.loads(path.read_text()))
    else:
        path.write_text(compact(golden))


def make_models(kind, path, only_check, names):
    """vision.json or text.json: the models that are named, beside those it has."""
    golden = kind.make(names)
    stored = json.loads(path.read_text()) if path.exists() else {"models": {}}
    if only_check:
        kind.check(golden, stored)
        return
    merged = {**stored["models"], **golden["models"]}
    golden["models"] = {r.model: merged[r.model] for r in kind.RUNS if r.model in merged}
    path.write_text(vision.compact(golden))


def main():
    known = ["losses"] + [r.model for r in vision.RUNS + text.RUNS]
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("names", nargs="*", metavar="NAME", help="one of " + ", ".join(known))
    p.add_argument("--check", action="store_true")
    p.add_argument("--against", metavar="TUTTI")
    args = p.parse_args()
    names = args.names or known
    for name in names:
        if name not in known:
            p.error(f"unknown name {name}")
    torch.set_num_threads(1)
    start.check_philox()
    if args.against:
        vision.against(args.against, names)
        return
    if "losses" in names:
        make_losses(args.check)
    for kind, file in ((vision, "vision.json"), (text, "text.json")):
        if any(r.model in names for r in kind.RUNS):
            make_models(kind, HERE / file, args.check, names)


if __name__ == "__main__":
    main()
