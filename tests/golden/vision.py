# SPDX-License-Identifier: MIT
"""The vision zoo in PyTorch, from tutti's initial weights on tutti's batches: losses of 20 steps,
gradients of the first, running averages after the last, and outputs of drawn weights. README.md says
what is in vision.json. Not a program; make_goldens.py uses it."""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
from typing import NamedTuple

import numpy as np
import torch

import models
import start

STEPS = 20
SEED, EVALUATION_SEED = 7, 8
MOMENTUM = 0.9
EVALUATED = 64  # samples of the test split
# How far float32 and a nudge may move things: a part of what tutti may differ.
LOSS_TOLERANCE, TENSOR_TOLERANCE = 2e-4, 3e-5
# How far tutti may be from float64, with direct kernels.
LOSS_LIMIT, TENSOR_LIMIT, WINOGRAD_LIMIT = 1e-3, 1e-4, 1e-3


class Run(NamedTuple):
    model: str
    data: str
    batch: int
    rate: float
    nudges: int  # trainings from weights one unit in the last place away


# Rates at which losses do not hang on rounding; README.md has the numbers.
RUNS = (Run("lenet", "fashion-mnist", 32, 0.05, 6),
        Run("conv_autoencoder", "fashion-mnist", 32, 1.0, 6),
        Run("vgg11", "cifar-10", 8, 0.05, 1),
        Run("vgg11_bn", "cifar-10", 8, 1e-4, 1),
        Run("resnet18", "cifar-10", 8, 1e-4, 1),
        Run("mobilenet_v2", "cifar-10", 8, 1e-4, 1))


class Outcome(NamedTuple):
    losses: np.ndarray
    gradients: dict  # after step 1
    averages: dict   # after the last step


def make_net(model):
    """The case, its network without dropout."""
    case = models.ZOO[model]()
    for module in case.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0
    return case, case.model


def is_reconstruction(run):
    return run.model == "conv_autoencoder"


def read(run, split, count, dtype):
    """Inputs and what the loss compares with."""
    x, y = start.samples(run.data, split, count, is_reconstruction(run))
    x = x.to(dtype)
    return x, x if is_reconstruction(run) else y


def begin_ranges(net):
    """Where training begins: tutti's initial weights, but with batch norms that send nearly all of a
    ReLU's inputs to one side, so that rounding decides few signs."""
    ranges = start.initial_ranges(net)
    for layer in start.norms(net):
        ranges[layer + ".weight"], ranges[layer + ".bias"] = (1, 0.1), (3, 0.1)
    return ranges


def train(run, dtype, nudge=None, steps=STEPS):
    case, net = make_net(run.model)
    weights = start.drawn_weights(net, begin_ranges(net), SEED)
    start.load(net, weights if nudge is None else start.nudged(weights, nudge))
    net.to(dtype).train()
    update = torch.optim.SGD(net.parameters(), lr=run.rate, momentum=MOMENTUM)
    x, y = read(run, "train", STEPS * run.batch, dtype)
    losses, gradients = [], {}
    for step in range(steps):
        part = slice(step * run.batch, (step + 1) * run.batch)
        update.zero_grad()
        loss = case.loss(net, x[part], y[part])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {k: p.grad.double().numpy().copy() for k, p in net.named_parameters()}
        update.step()
    averages = {k: v.double().numpy().copy() for k, v in net.named_buffers()
                if not k.endswith(".num_batches_tracked")}
    return Outcome(np.array(losses), gradients, averages)


# Evaluation of weights that come from elsewhere -----------------------------------------------

def evaluation_ranges(net):
    """Ranges of weights with which every layer tells: variances stay about 1 through the layers,
    and averages are not those of a beginning."""
    ranges, of_norms = {}, start.norms(net)
    norm = {"weight": (1, 0.5), "bias": (0, 0.5), "running_mean": (0, 0.3), "running_var": (1, 0.5)}
    for name, value in start.saved_values(net).items():
        layer, kind = name.rsplit(".", 1)
        if layer in of_norms:
            ranges[name] = norm[kind]
        elif kind == "weight":
            ranges[name] = (0, round(math.sqrt(6 / math.prod(value.shape[1:])), 6))
        else:
            ranges[name] = (0, 0.1)
    return ranges


def evaluate(run, dtype):
    """Outputs of EVALUATED samples."""
    _, net = make_net(run.model)
    start.load(net, start.drawn_weights(net, evaluation_ranges(net), EVALUATION_SEED))
    net.to(dtype)
    with torch.no_grad():
        return net.eval()(read(run, "test", EVALUATED, dtype)[0]).double().numpy()


# Comparing ------------------------------------------------------------------------------------

def largest_loss_error(losses, truth):
    return float(np.max(np.abs(losses - truth) / np.abs(truth)))


def scales(gradients):
    """Name -> what errors of a gradient are measured by: its norm. A bias in front of a batch norm has
    no gradient but rounding; it is measured by its weight's."""
    size = {k: float(np.linalg.norm(g)) for k, g in gradients.items()}
    result = {}
    for name, norm in size.items():
        weight = size.get(name.removesuffix(".bias") + ".weight", norm)
        result[name] = weight if norm < 1e-9 * weight else norm
    return result


def errors(tensors, truth, scale=None):
    """Name -> norm of the difference over the norm."""
    return {k: float(np.linalg.norm(tensors[k] - t)) / (scale[k] if scale else float(np.linalg.norm(t)))
            for k, t in truth.items()}


def worst(of):
    name = max(of, key=of.get, default="none")
    return (of[name] if of else 0.0), name


def differences(outcome, truth):
    return (largest_loss_error(outcome.losses, truth.losses[:len(outcome.losses)]),
            worst(errors(outcome.gradients, truth.gradients, scales(truth.gradients))),
            worst(errors(outcome.averages, truth.averages)))


def show(run, what, of):
    loss, (gradient, where), (average, _) = of
    print(f"{run.model:16s} {what:28s} loss {loss:.1e}  gradients {gradient:.1e} ({where})  "
          f"averages {average:.1e}", flush=True)


# Making ---------------------------------------------------------------------------------------

def digits(number):
    return float(f"{number:.9g}")


def printed(tensors, numbers, scale=None):
    result = {}
    for name, values in tensors.items():
        norm, sums = start.fingerprint(values, numbers[name])
        result[name] = {"number": numbers[name], "scale": digits(scale[name] if scale else norm),
                        "norm": digits(norm), "sums": [digits(s) for s in sums]}
    return result


def golden_evaluation(run):
    outputs, rounded = evaluate(run, torch.float64), evaluate(run, torch.float32)
    error = float(np.linalg.norm(rounded - outputs) / np.linalg.norm(outputs))
    print(f"{run.model:16s} outputs: float32 {error:.1e}", flush=True)
    if error > TENSOR_TOLERANCE:
        sys.exit(f"make_goldens: {run.model}: rounding alone moves the outputs")
    return {"seed": EVALUATION_SEED, "samples": EVALUATED,
            "outputs": printed({"outputs": outputs}, {"outputs": 0})}


def golden_tensors(net, numbers):
    """What is drawn for which use."""
    evaluation, begin = evaluation_ranges(net), begin_ranges(net)
    result = {}
    for name, value in start.saved_values(net).items():
        result[name] = {"number": numbers[name], "shape": list(value.shape),
                        "evaluation": evaluation[name]}
        if start.norms(net):
            result[name]["begin"] = begin[name]
    return result


def initial_loss(run):
    """Of the first batch with tutti's initial weights."""
    case, net = make_net(run.model)
    start.load(net, start.drawn_weights(net, start.initial_ranges(net), SEED))
    with torch.no_grad():
        return case.loss(net.double().train(), *read(run, "train", run.batch, torch.float64)).item()


def golden_run(run):
    """What a run gives in float64, unless it hangs on rounding: then nothing else can meet it."""
    truth = train(run, torch.float64)
    show(run, f"{truth.losses[0]:.5f} -> {truth.losses[-1]:.5f}: float32",
         differences(rounded := train(run, torch.float32), truth))
    outcomes = [rounded] + [train(run, torch.float32, n) for n in range(run.nudges)]
    of = [differences(o, truth) for o in outcomes]
    most = max(d[0] for d in of), max(d[1] for d in of), max(d[2] for d in of)
    show(run, "float32, nudged", most)
    if most[0] > LOSS_TOLERANCE or max(most[1][0], most[2][0]) > TENSOR_TOLERANCE:
        sys.exit(f"make_goldens: {run.model}: rounding alone moves the results")
    _, net = make_net(run.model)
    numbers = {k: n for n, k in enumerate(start.saved_values(net))}
    golden = {"data": run.data, "batch": run.batch, "lr": run.rate,
              "initial_loss": digits(initial_loss(run)),
              "losses": [digits(v) for v in truth.losses],
              "gradients": printed(truth.gradients, numbers, scales(truth.gradients)),
              "averages": printed(truth.averages, numbers),
              "evaluation": golden_evaluation(run),
              "counts": [k for k in net.state_dict() if k.endswith(".num_batches_tracked")],
              "tensors": golden_tensors(net, numbers)}
    if start.norms(net):
        golden["begin"] = {"seed": SEED}
    return golden


def make(names):
    return {"made_by": "tests/golden/make_goldens.py", "torch": torch.__version__.split("+")[0],
            "seed": SEED, "steps": STEPS, "momentum": MOMENTUM,
            "models": {r.model: golden_run(r) for r in RUNS if r.model in names}}


def compact(golden):
    """JSON with one line a tensor."""
    def text(value, indent):
        if not isinstance(value, dict) or not any(isinstance(v, (dict, list)) for v in value.values()):
            return json.dumps(value, separators=(",", ":"))
        if "sums" in value or "shape" in value:
            return json.dumps(value, separators=(",", ":"))
        pad = "\n" + " " * (indent + 1)
        inner = ("," + pad).join(f'"{k}": {text(v, indent + 1)}' for k, v in value.items())
        return "{" + pad + inner + "\n" + " " * indent + "}"

    return text(golden, 0) + "\n"


def fingerprint_error(ours, theirs):
    """The estimate of golden_compare.c."""
    sums = np.linalg.norm(np.subtract(ours["sums"], theirs["sums"])) / math.sqrt(start.SIGNS)
    return max(sums, abs(ours["norm"] - theirs["norm"])) / theirs["scale"]


def check(golden, stored):
    for model, ours in golden["models"].items():
        theirs = stored["models"][model]
        most = largest_loss_error(np.array(ours["losses"]), np.array(theirs["losses"]))
        pairs = [(ours[s], theirs[s]) for s in ("gradients", "averages")]
        pairs.append((ours["evaluation"]["outputs"], theirs["evaluation"]["outputs"]))
        for a, b in pairs:
            assert a.keys() == b.keys(), model
            most = max([most] + [fingerprint_error(a[k], b[k]) for k in a])
        if most > 1e-6 or json.loads(json.dumps(ours["tensors"])) != theirs["tensors"]:
            sys.exit(f"make_goldens: {model}: differs from vision.json by {most:.1e}")
    print("vision.json agrees")


# tutti itself, element by element ---------------------------------------------------------------

def read_tensors(path):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "I32": "<i4"}
    return {k: np.frombuffer(data, types[v["dtype"]], math.prod(v["shape"]),
                             8 + size + v["data_offsets"][0]).reshape(v["shape"])
            for k, v in header.items()}


def write_tensors(path, tensors):
    """As PyTorch's users write a state_dict."""
    types = {"float32": "F32", "int64": "I64"}
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": types[str(values.dtype)], "shape": list(values.shape),
                        "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            f.write(np.ascontiguousarray(values).tobytes())


def write_state(path, net, ranges, seed):
    """Drawn weights in a file of torchvision's names."""
    counts = {k: np.array(STEPS, np.int64) for k in net.state_dict()
              if k.endswith(".num_batches_tracked")}
    write_tensors(path, {**counts, **start.drawn_weights(net, ranges, seed)})


def tutti_train(tutti, run, steps, folder, extra):
    _, net = make_net(run.model)
    if start.norms(net):
        write_state(folder.with_suffix(".begin"), net, begin_ranges(net), SEED)
        extra = [*extra, "--init", folder.with_suffix(".begin")]
    flags = ["--data", run.data, "--no-shuffle", "--shards", "1", "--seed", str(SEED), "--batch",
             str(run.batch), "--steps", str(steps), "--limit", str(STEPS * run.batch),
             "--log-every", "1", "--lr",
             str(run.rate), "--momentum", str(MOMENTUM), "--weight-decay", "0", *extra]
    if any(isinstance(m, torch.nn.Dropout) for m in net.modules()):
        flags += ["--dropout", "0"]
    subprocess.run([tutti, "train", run.model, *flags, "--quiet", "--out", folder], check=True)
    lines = [json.loads(line) for line in open(folder / "metrics.jsonl")]
    losses = np.array([line["train_loss"] for line in lines if line["kind"] == "train"])
    checkpoint = folder / "checkpoint" / f"step-{steps:012d}"
    return (losses, read_tensors(checkpoint / "weights.safetensors"),
            read_tensors(checkpoint / "optimizer.safetensors"))


def tutti_outputs(tutti, run, folder, extra):
    _, net = make_net(run.model)
    write_state(folder / "torch.safetensors", net, evaluation_ranges(net), EVALUATION_SEED)
    subprocess.run([tutti, "eval", run.model, "--data", run.data, "--weights",
                    folder / "torch.safetensors", "--limit", str(EVALUATED), "--outputs", folder / "outputs.safetensors",
                    *extra], check=True, stdout=subprocess.DEVNULL)
    return read_tensors(folder / "outputs.safetensors")["outputs"]


def ways(tutti):
    """Flags for direct kernels, and for the usual ones where they are others."""
    told = subprocess.run([tutti, "train", "--help"], check=True, capture_output=True, text=True)
    if "--exact" in told.stdout:
        return [((), WINOGRAD_LIMIT), (("--exact",), TENSOR_LIMIT)]
    return [((), TENSOR_LIMIT)]


def compare_run(tutti, run, extra, limit, truth, outputs):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _, _, state = tutti_train(tutti, run, 1, folder / "one", extra)
        losses, weights, _ = tutti_train(tutti, run, STEPS, folder / "all", extra)
        ours = tutti_outputs(tutti, run, folder, extra)
    gradients = {k.removesuffix(".momentum"): v for k, v in state.items()}
    assert gradients.keys() == truth.gradients.keys()
    of = differences(Outcome(losses, gradients, weights), truth)
    output = float(np.linalg.norm(ours - outputs) / np.linalg.norm(outputs))
    show(run, "tutti " + " ".join(extra), of)
    print(f"{run.model:16s} outputs {output:.1e}", flush=True)
    return of[0] <= LOSS_LIMIT and max(of[1][0], of[2][0]) <= limit and output <= 1e-4


def against(tutti, names):
    """Trains and evaluates with the program `tutti`; all elements of all tensors are compared."""
    good = True
    for run in RUNS:
        if run.model not in names:
            continue
        truth, outputs = train(run, torch.float64), evaluate(run, torch.float64)
        show(run, "PyTorch, float32", differences(train(run, torch.float32), truth))
        for extra, limit in ways(tutti):
            good = compare_run(tutti, run, extra, limit, truth, outputs) and good
    if not good:
        sys.exit(f"make_goldens: {tutti} differs from PyTorch")
