#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains mlp and cnn with PyTorch from tutti's initial weights, on tutti's batches, and writes the
training losses to losses.json beside this file. README.md says what is in it.

  make_goldens.py [--check]     --check compares with losses.json instead of writing it
"""
import argparse
import gzip
import hashlib
import json
import math
import os
import pathlib
import sys

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "peers"))
import models  # noqa: E402

SEED = 7
STEPS = 50
BATCH = 64
INIT_STREAM = 0x1717  # counter word 3 of the draws that make initial weights
PIXEL_MEAN, PIXEL_DEVIATION = 0.2860, 0.3530
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 5e-4}),
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}),
}
# cnn's rates are low so that its losses do not hang on rounding; README.md has the numbers.
RUNS = (("mlp", "sgd", 0.05), ("mlp", "adamw", 1e-3), ("cnn", "sgd", 3e-3), ("cnn", "adamw", 1e-4))
NUDGES = 6        # trainings from weights one unit in the last place away
TOLERANCE = 1e-5  # how far losses in float64, after a nudge or of another machine may be


def philox4x32_10(counter, key):
    """Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. counter is an array
    of shape (n, 4), key a pair; the result has counter's shape. All words are 32 bits wide."""
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    c0, c1, c2, c3 = (counter[:, i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    for _ in range(10):
        product0 = np.uint64(0xD2511F53) * c0
        product1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = ((product1 >> shift) ^ c1 ^ np.uint64(k0), product1 & low,
                          (product0 >> shift) ^ c3 ^ np.uint64(k1), product0 & low)
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def check_philox():
    """The known answers of the authors' library Random123."""
    ones = 0xFFFFFFFF
    cases = (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones, ones), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    )
    for counter, key, answer in cases:
        got = philox4x32_10(np.array([counter], np.uint64), key)[0]
        assert tuple(got) == answer, f"Philox of {counter}, {key} is wrong"


def uniform(count, parameter, seed):
    """count float32 numbers of [0, 1), multiples of 2^-24; i is word i % 4 of block i / 4."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    counter = np.stack([blocks & np.uint64(0xFFFFFFFF), blocks >> np.uint64(32),
                        np.full_like(blocks, parameter), np.full_like(blocks, INIT_STREAM)], 1)
    words = philox4x32_10(counter, (seed & 0xFFFFFFFF, seed >> 32)).reshape(-1)[:count]
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0 ** -24)


def initial_value(shape, fan_in, parameter):
    bound = np.float32(1 / math.sqrt(fan_in))
    u = uniform(math.prod(shape), parameter, SEED)
    return ((np.float32(2) * u - np.float32(1)) * bound).reshape(shape)


def initial_weights(net):
    """Name -> float32 array, in order of creation; a bias has the fan-in of its weight."""
    weights, fan_in = {}, None
    for number, (name, p) in enumerate(net.named_parameters()):
        if name.endswith(".weight"):
            fan_in = math.prod(p.shape[1:])
        weights[name] = initial_value(tuple(p.shape), fan_in, number)
    return weights


def data_folder():
    own = os.environ.get("TUTTI_DATA")
    candidates = [pathlib.Path(own) / "fashion-mnist"] if own else []
    candidates.append(pathlib.Path("/usr/share/datasets/fashion-mnist"))
    for folder in candidates:
        if folder.is_dir():
            return folder
    sys.exit("make_goldens: no Fashion-MNIST: apt-get install dataset-fashion-mnist, "
             "or set TUTTI_DATA")


def read_idx(folder, name, header_bytes, count):
    """The first count bytes behind the header of name or name.gz."""
    plain = folder / name
    opened = plain.open("rb") if plain.exists() else gzip.open(folder / (name + ".gz"))
    with opened as f:
        f.seek(header_bytes)
        return np.frombuffer(f.read(count), np.uint8)


def training_batches():
    """Images (STEPS, BATCH, 1, 28, 28), normalized in float32, and labels (STEPS, BATCH)."""
    folder, n = data_folder(), STEPS * BATCH
    pixels = read_idx(folder, "train-images-idx3-ubyte", 16, n * 28 * 28)
    labels = read_idx(folder, "train-labels-idx1-ubyte", 8, n)
    x = pixels.astype(np.float32) / np.float32(255)
    x = (x - np.float32(PIXEL_MEAN)) / np.float32(PIXEL_DEVIATION)
    return (torch.from_numpy(x.reshape(STEPS, BATCH, 1, 28, 28)),
            torch.from_numpy(labels.astype(np.int64).reshape(STEPS, BATCH)))


def nudged(weights, trial):
    """The weights, each moved to one of its two neighbours in float32."""
    rng = np.random.default_rng(trial)
    ends = np.array([-np.inf, np.inf], np.float32)
    return {k: np.nextafter(w, rng.choice(ends, w.shape)) for k, w in weights.items()}


def train(run, batches, dtype=torch.float32, nudge=None):
    """The loss of each step's batch, before that step's update."""
    model, optimizer, rate = run
    case = models.ZOO[model]()
    net = case.model.eval()  # no dropout; these models have nothing else that differs
    weights = initial_weights(net)
    if nudge is not None:
        weights = nudged(weights, nudge)
    net.load_state_dict({k: torch.from_numpy(w) for k, w in weights.items()})
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


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)
    check_philox()
    path, golden = HERE / "losses.json", make()
    golden = json.loads(compact(golden))
    if args.check:
        check(golden, json.loads(path.read_text()))
    else:
        path.write_text(compact(golden))


if __name__ == "__main__":
    main()
