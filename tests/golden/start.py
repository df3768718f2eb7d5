# SPDX-License-Identifier: MIT
"""What a training of tutti starts from, made with numpy: initial weights and batches. README.md has
the rules. Not a program; make_goldens.py and vision.py use it."""
import gzip
import math
import os
import pathlib
import sys

import numpy as np
import torch

INIT_STREAM = 0x1717  # counter word 3 of the draws that make initial weights
SIGN_STREAM = 0x5160  # the same of the signs of `fingerprint`
SIGNS = 8


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


def words(count, number, seed, stream):
    """count words of 32 bits for tensor `number`; i is word i % 4 of block i / 4."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    counter = np.stack([blocks & np.uint64(0xFFFFFFFF), blocks >> np.uint64(32),
                        np.full_like(blocks, number), np.full_like(blocks, stream)], 1)
    return philox4x32_10(counter, (seed & 0xFFFFFFFF, seed >> 32)).reshape(-1)[:count]


def draw(shape, center, bound, number, seed):
    """float32 numbers of center +- bound."""
    u = (words(math.prod(shape), number, seed, INIT_STREAM) >> np.uint32(8)).astype(np.float32)
    u *= np.float32(2.0 ** -24)
    values = (np.float32(2) * u - np.float32(1)) * np.float32(bound)
    return (np.float32(center) + values).reshape(shape)


def saved_values(net):
    """Name -> tensor of what tutti saves, in its order: parameters and running averages."""
    return {k: v for k, v in net.state_dict().items() if not k.endswith(".num_batches_tracked")}


def norms(net):
    """Names of the batch norms of a network."""
    return {k for k, m in net.named_modules() if isinstance(m, torch.nn.BatchNorm2d)}


def initial_ranges(net):
    """Name -> (center, bound) of initial values; a bias has the fan-in of its weight. Of batch
    norms, weights and variances begin at 1, biases and means at 0."""
    ranges, bound, of_norms = {}, None, norms(net)
    for name, value in saved_values(net).items():
        layer, kind = name.rsplit(".", 1)
        if layer in of_norms:
            ranges[name] = (1 if kind in ("weight", "running_var") else 0, 0)
            continue
        if kind == "weight":
            bound = float(np.float32(1 / math.sqrt(math.prod(value.shape[1:]))))
        ranges[name] = (0, bound)
    return ranges


def drawn_weights(net, ranges, seed):
    """Name -> float32 array, in order of creation."""
    return {name: draw(tuple(value.shape), *ranges[name], number, seed)
            for number, (name, value) in enumerate(saved_values(net).items())}


def nudged(weights, trial):
    """The weights, each moved to one of its two neighbours in float32."""
    rng = np.random.default_rng(trial)
    ends = np.array([-np.inf, np.inf], np.float32)
    return {k: np.nextafter(w, rng.choice(ends, w.shape)) for k, w in weights.items()}


def load(net, weights):
    missing, unexpected = net.load_state_dict(
        {k: torch.from_numpy(w) for k, w in weights.items()}, strict=False)
    assert not unexpected and all(k.endswith(".num_batches_tracked") for k in missing)


def fingerprint(values, number):
    """Norm and SIGNS sums with signs; bit k of element i's word makes its sign in sum k."""
    flat = np.asarray(values, np.float64).reshape(-1)
    bits = words(flat.size, number, 0, SIGN_STREAM)
    sums = [float(np.where((bits >> np.uint32(k)) & np.uint32(1), -flat, flat).sum())
            for k in range(SIGNS)]
    return float(np.linalg.norm(flat)), sums


# Data --------------------------------------------------------------------------------------

FOLDERS = {"fashion-mnist": "fashion-mnist", "cifar-10": "cifar10"}
SCALES = {"fashion-mnist": ((0.2860,), (0.3530,)),
          "cifar-10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))}


def data_folder(name):
    own = os.environ.get("TUTTI_DATA")
    candidates = [pathlib.Path(own) / FOLDERS[name]] if own else []
    candidates.append(pathlib.Path("/usr/share/datasets") / FOLDERS[name])
    for folder in candidates:
        if folder.is_dir():
            return folder
    sys.exit(f"make_goldens: no {name}: set TUTTI_DATA=DIR with DIR/{FOLDERS[name]}/")


def read_idx(folder, name, header_bytes, count):
    """The first count bytes behind the header of name or name.gz."""
    plain = folder / name
    opened = plain.open("rb") if plain.exists() else gzip.open(folder / (name + ".gz"))
    with opened as f:
        f.seek(header_bytes)
        return np.frombuffer(f.read(count), np.uint8)


def read_samples(data, split, count):
    """The first count samples as bytes (count, C, H, W), and their labels."""
    folder = data_folder(data)
    if data == "cifar-10":
        name = "data_batch_1.bin" if split == "train" else "test_batch.bin"
        records = np.fromfile(folder / name, np.uint8, count * 3073).reshape(count, 3073)
        return records[:, 1:].reshape(count, 3, 32, 32), records[:, 0]
    prefix = "train" if split == "train" else "t10k"
    pixels = read_idx(folder, prefix + "-images-idx3-ubyte", 16, count * 28 * 28)
    return (pixels.reshape(count, 1, 28, 28),
            read_idx(folder, prefix + "-labels-idx1-ubyte", 8, count))


def samples(data, split, count, unit_pixels=False):
    """The same as tensors: float32, normalized or in [0, 1], and int64."""
    pixels, labels = read_samples(data, split, count)
    x = pixels.astype(np.float32) / np.float32(255)
    if not unit_pixels:
        mean, deviation = (np.array(v, np.float32).reshape(1, -1, 1, 1) for v in SCALES[data])
        x = (x - mean) / deviation
    return torch.from_numpy(x), torch.from_numpy(labels.astype(np.int64))
