#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Local SGD of mlp as PyTorch computes it, written to local.json beside this file: two workers, each with a
net and an optimizer of its own, on the halves of every batch of 64; three rounds of four steps, after each of which
both take the average or, with an outer optimizer, where torch.optim.SGD takes the average's difference (DiLoCo).

  local.py            writes local.json; needs PyTorch
  local.py --check    compares with it instead
"""
import argparse
import json
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "peers"))
import models  # noqa: E402
import start  # noqa: E402

SEED, BATCH, WORKERS, INTERVAL, ROUNDS = 7, 64, 2, 4, 3
STEPS = INTERVAL * ROUNDS
TOLERANCE = 1e-5
RUNS = (
    {"optimizer": "sgd", "lr": 0.05, "momentum": 0.9, "outer_lr": 1.0, "outer_momentum": 0.0},
    {"optimizer": "sgd", "lr": 0.05, "momentum": 0.9, "outer_lr": 0.7, "outer_momentum": 0.9},
    {"optimizer": "adamw", "lr": 0.001, "outer_lr": 0.7, "outer_momentum": 0.9},
)


def new_net():
    net = models.ZOO["mlp"]().model
    start.load(net, start.drawn_weights(net, start.initial_ranges(net), SEED))
    return net


def inner(run, net):
    if run["optimizer"] == "sgd":
        return torch.optim.SGD(net.parameters(), lr=run["lr"], momentum=run["momentum"])
    return torch.optim.AdamW(net.parameters(), lr=run["lr"], weight_decay=0.01)


def meet(nets, center, outer):
    """The center goes along the way to the average, and all nets go there."""
    for param, *others in zip(center.parameters(), *(n.parameters() for n in nets)):
        param.grad = param.data - torch.stack([o.data for o in others]).mean(0)
    outer.step()
    for net in nets:
        net.load_state_dict(center.state_dict())


def train(run):
    """The loss of each step's batch, each half by its worker's parameters before that step's update."""
    images, labels = start.samples("fashion-mnist", "train", STEPS * BATCH)
    images, labels = images.reshape(STEPS, BATCH, 1, 28, 28), labels.reshape(STEPS, BATCH)
    case, nets, center = models.ZOO["mlp"](), [new_net() for _ in range(WORKERS)], new_net()
    updates = [inner(run, n) for n in nets]
    outer = torch.optim.SGD(center.parameters(), lr=run["outer_lr"], momentum=run["outer_momentum"],
                            nesterov=run["outer_momentum"] > 0)
    losses = []
    for s in range(STEPS):
        own = []
        for net, update, x, y in zip(nets, updates, images[s].chunk(WORKERS), labels[s].chunk(WORKERS)):
            update.zero_grad()
            loss = case.loss(net, x, y)
            loss.backward()
            update.step()
            own.append(loss.item())
        losses.append(sum(own) / WORKERS)
        if (s + 1) % INTERVAL == 0:
            meet(nets, center, outer)
    return [float(f"{v:.8g}") for v in losses]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    golden = {"made_by": "tests/golden/local.py", "torch": torch.__version__.split("+")[0], "seed": SEED,
              "batch": BATCH, "workers": WORKERS, "interval": INTERVAL, "steps": STEPS,
              "runs": [{**run, "losses": train(run)} for run in RUNS]}
    path = HERE / "local.json"
    if not args.check:
        path.write_text(json.dumps(golden, indent=1).replace("\n   ", "").replace("\n  ]", "]") + "\n")
        return
    stored = json.loads(path.read_text())
    worst = max(abs(a - b) / b for ours, theirs in zip(golden["runs"], stored["runs"], strict=True)
                for a, b in zip(ours["losses"], theirs["losses"], strict=True))
    sys.exit(f"local.py: losses differ by {worst:.1e}" if worst > TOLERANCE else None)


if __name__ == "__main__":
    main()
