# SPDX-License-Identifier: MIT
"""Text classifiers in PyTorch on the documents of corpus.py: losses of 20 steps of SGD with momentum, with
dense updates and with such that leave rows of the embedding alone which do not occur, and the gradients of
the first step. README.md says what is in text.json. Not a program; make_goldens.py uses it."""
import functools
import sys
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

import corpus
import models
import start
import vision

STEPS, BATCH, SEED, MOMENTUM = 20, 16, 7, 0.9
NUDGES = 6


class Run(NamedTuple):
    model: str
    rate: float


RUNS = (Run("nbow", 0.5), Run("textcnn", 0.05))
MODELS = {"nbow": functools.partial(models.NBoW, padded=True),
          "textcnn": functools.partial(models.TextCNN, padded=True)}


def batches():
    """Ids (BATCH, T) and labels of each step; T is a multiple of 4, and -1 fills the rest."""
    documents = corpus.documents()
    numbers, vocab = corpus.ids(documents)
    result = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        length = -(-max(map(len, numbers[part])) // 4) * 4
        rows = [n + [-1] * (length - len(n)) for n in numbers[part]]
        result.append((torch.tensor(rows), torch.tensor([label for label, _ in documents[part]])))
    return result, vocab


def begin_ranges(net):
    """Name -> (center, bound): as start.initial_ranges, but words in +-1."""
    return {**start.initial_ranges(net), "embedding.weight": (0, 1)}


def make_net(run, vocab):
    net = MODELS[run.model](vocab)
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0
    return net


@torch.no_grad()
def update(net, momenta, rate, ids, lazy):
    for name, p in net.named_parameters():
        rows = torch.unique(ids[ids >= 0]) if lazy and name == "embedding.weight" else slice(None)
        momenta[name][rows] = MOMENTUM * momenta[name][rows] + p.grad[rows]
        p[rows] -= rate * momenta[name][rows]


def train(run, dtype, lazy=False, nudge=None):
    """Losses, and the gradients of the first step."""
    steps, vocab = batches()
    net = make_net(run, vocab)
    weights = start.drawn_weights(net, begin_ranges(net), SEED)
    start.load(net, weights if nudge is None else start.nudged(weights, nudge))
    net.to(dtype)
    momenta = {k: torch.zeros_like(p) for k, p in net.named_parameters()}
    losses, gradients = [], {}
    for step, (ids, labels) in enumerate(steps):
        net.zero_grad()
        loss = F.cross_entropy(net(ids), labels)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {k: p.grad.double().numpy().copy() for k, p in net.named_parameters()}
        update(net, momenta, run.rate, ids, lazy)
    return np.array(losses), gradients


def golden_run(run):
    losses, gradients = train(run, torch.float64)
    lazy, _ = train(run, torch.float64, lazy=True)
    _, vocab = batches()
    net = make_net(run, vocab)
    numbers = {k: i for i, k in enumerate(net.state_dict())}
    most = 0.0
    for nudge in (None, *range(NUDGES)):
        ours, theirs = train(run, torch.float32, nudge=nudge)
        most = max(most, vision.largest_loss_error(ours, losses),
                   vision.worst(vision.errors(theirs, gradients))[0])
    print(f"{run.model}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, lazy {lazy[-1]:.4f}; rounding moves "
          f"them by {most:.1e}", flush=True)
    if most > vision.TENSOR_TOLERANCE:
        sys.exit(f"make_goldens: {run.model}: rounding alone moves losses or gradients")
    return {"lr": run.rate, "losses": [vision.digits(v) for v in losses],
            "lazy_losses": [vision.digits(v) for v in lazy],
            "gradients": vision.printed(gradients, numbers, vision.scales(gradients)),
            "counts": [], "begin": {"seed": SEED},
            "tensors": {k: {"number": numbers[k], "shape": list(v.shape), "begin": begin_ranges(net)[k]}
                        for k, v in net.state_dict().items()}}


def make(names):
    return {"made_by": "tests/golden/make_goldens.py", "torch": torch.__version__.split("+")[0],
            "seed": SEED, "steps": STEPS, "batch": BATCH, "momentum": MOMENTUM,
            "models": {r.model: golden_run(r) for r in RUNS if r.model in names}}


def check(golden, stored):
    for model, ours in golden["models"].items():
        theirs = stored["models"][model]
        most = max(vision.largest_loss_error(np.array(ours[k]), np.array(theirs[k]))
                   for k in ("losses", "lazy_losses"))
        for name, tensor in ours["gradients"].items():
            most = max(most, vision.fingerprint_error(tensor, theirs["gradients"][name]))
        if most > 1e-6:
            sys.exit(f"make_goldens: {model}: differs from text.json by {most:.1e}")
    print("text.json agrees")
