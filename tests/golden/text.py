# SPDX-License-Identifier: MIT
"""Models of text in PyTorch on the texts of corpus.py: losses of 20 steps of SGD with momentum, with
dense updates and with such that leave rows of the embeddings alone which do not occur, and the gradients
of the first step. README.md says what is in text.json. Not a program; make_goldens.py uses it."""
import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import corpus
import models
import start
import vision

STEPS, BATCH, SEED, MOMENTUM = 20, 16, 7, 0.9
NUDGES = 6
WIDTH, HIDDEN = 24, 40  # of translations


class Run(NamedTuple):
    model: str
    rate: float
    words: tuple  # how the program is asked for it
    data: str     # its texts


SMALL = ("--hidden", str(HIDDEN), "--embedding", str(WIDTH), "--dropout", "0", "--min-count", "1")
RUNS = (Run("nbow", 0.5, ("nbow",), "documents"),
        Run("textcnn", 0.05, ("textcnn", "--dropout", "0"), "documents"),
        Run("seq2seq", 1.0, ("seq2seq", *SMALL), "pairs"),
        Run("seq2seq-gru", 1.0, ("seq2seq", "--cell", "gru", *SMALL), "pairs"))
CELLS = {"seq2seq": nn.LSTM, "seq2seq-gru": nn.GRU}


class Step(NamedTuple):
    inputs: tuple
    target: torch.Tensor
    seen: dict  # name of a table -> the ids that occur


def padded(rows):
    """Rows (N, T), filled up with -1; T is a multiple of 4."""
    length = -(-max(map(len, rows)) // 4) * 4
    return torch.tensor([row + [-1] * (length - len(row)) for row in rows])


def document_steps():
    """Each step, and how many ids there are."""
    documents = corpus.documents()
    numbers, vocab = corpus.ids([words for _, words in documents])
    steps = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        ids = padded(numbers[part])
        labels = torch.tensor([label for label, _ in documents[part]])
        steps.append(Step((ids,), labels, {"embedding.weight": ids}))
    return steps, (vocab,)


def pair_steps():
    """The same of pairs: the decoder sees <bos> and the target, and is to say the target and <eos>."""
    unknown, begin, end = range(corpus.SPECIALS)
    sources, vocab = corpus.ids([source for source, _ in corpus.pairs()], corpus.SPECIALS)
    targets, target_vocab = corpus.ids([target for _, target in corpus.pairs()], corpus.SPECIALS)
    steps = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        source, seen = padded(sources[part]), padded([[begin] + t for t in targets[part]])
        steps.append(Step((source, seen), padded([t + [end] for t in targets[part]]),
                          {"encoder_embedding.weight": source, "decoder_embedding.weight": seen}))
    return steps, (vocab, target_vocab)


STEPS_OF = {"documents": document_steps, "pairs": pair_steps}


def begin_ranges(net):
    """Name -> (center, bound): as start.initial_ranges, but words in +-1, and recurrent layers as
    PyTorch draws them."""
    ranges = start.initial_ranges(net)
    for name in ranges:
        if name.endswith("embedding.weight"):
            ranges[name] = (0, 1)
        elif name.startswith(("encoder.", "decoder.")):
            ranges[name] = (0, float(np.float32(1 / HIDDEN ** 0.5)))
    return ranges


def make_net(run, vocabs):
    if run.model in CELLS:
        return models.Seq2Seq(*vocabs, WIDTH, HIDDEN, dropout=0, cell=CELLS[run.model], padded=True)
    net = {"nbow": models.NBoW, "textcnn": models.TextCNN}[run.model](*vocabs, padded=True)
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0
    return net


@torch.no_grad()
def update(net, momenta, rate, seen, lazy):
    for name, p in net.named_parameters():
        rows = torch.unique(seen[name][seen[name] >= 0]) if lazy and name in seen else slice(None)
        momenta[name][rows] = MOMENTUM * momenta[name][rows] + p.grad[rows]
        p[rows] -= rate * momenta[name][rows]


def loss_of(net, step):
    said = net(*step.inputs)
    return F.cross_entropy(said.flatten(0, -2), step.target.flatten(), ignore_index=-1)


def train(run, dtype, lazy=False, nudge=None):
    """Losses, and the gradients of the first step."""
    steps, vocabs = STEPS_OF[run.data]()
    net = make_net(run, vocabs)
    weights = start.drawn_weights(net, begin_ranges(net), SEED)
    start.load(net, weights if nudge is None else start.nudged(weights, nudge))
    net.to(dtype)
    momenta = {k: torch.zeros_like(p) for k, p in net.named_parameters()}
    losses, gradients = [], {}
    for number, step in enumerate(steps):
        net.zero_grad()
        loss = loss_of(net, step)
        loss.backward()
        losses.append(loss.item())
        if number == 0:
            gradients = {k: p.grad.double().numpy().copy() for k, p in net.named_parameters()}
        update(net, momenta, run.rate, step.seen, lazy)
    return np.array(losses), gradients


def golden_run(run):
    losses, gradients = train(run, torch.float64)
    lazy, _ = train(run, torch.float64, lazy=True)
    net = make_net(run, STEPS_OF[run.data]()[1])
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
    return {"words": run.words, "data": run.data, "lr": run.rate, "losses": [vision.digits(v) for v in losses],
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
