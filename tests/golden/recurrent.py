#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""LSTM, GRU and Bahdanau's attention as PyTorch computes them in float64, and their gradients, written
to recurrent.json beside this file: problems as kernels see them (kernel/kernel.h), their inputs and
outputs in memory order. `null` stands for an output that PyTorch does not show.

Steps that are over are PyTorch's packed sequences. The cells are written out below to reach what a
module hides (gates as they come out); each is first compared with the module itself.
"""
import json
import pathlib

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

N, T, D, H = 3, 5, 4, 6
S, A, E = 4, 5, 7
LENGTHS = [5, 3, 4]
torch.manual_seed(7)
torch.set_default_dtype(torch.float64)


def rounded(*shape):
    """Numbers that float32 has, too."""
    return (torch.rand(*shape) * 2 - 1).float().double()


def ids_of(lengths, steps):
    return torch.tensor([[1 if t < n else -1 for t in range(steps)] for n in lengths])


def over(ids, t, new, old):
    return torch.where(ids[:, t:t + 1] < 0, old, new)


def lstm_step(a, c):
    i, f, g, o = a.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * c + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], 1)


def run(gates, w, b, ids, state, kind, attend=None):
    """y, last, acts, kept, before and, with attention, what it made."""
    h, c = state[:, :H], state[:, H:]
    made = {name: [] for name in ("y", "acts", "kept", "before", "context", "weights", "query")}
    for t in range(gates.shape[1]):
        made["before"].append(h)
        if kind == "gru":
            x, q = gates[:, t].chunk(3, 1), (h @ w.T + b).chunk(3, 1)
            r, z = (x[0] + q[0]).sigmoid(), (x[1] + q[1]).sigmoid()
            n = (x[2] + r * q[2]).tanh()
            after, acts, kept = (1 - z) * n + z * h, torch.cat([r, z, n], 1), q[2]
        else:
            a, kept = gates[:, t] + h @ w.T + b, c
            if attend:
                query, weights, context = attend(h)
                made["query"].append(query)
                made["weights"].append(weights)
                made["context"].append(context)
                a = a + context @ attend.w_context.T
            after, after_c, acts = lstm_step(a, c)
            c = over(ids, t, after_c, c)
        made["y"].append(over(ids, t, after, torch.zeros_like(after)))
        made["acts"].append(acts)
        made["kept"].append(kept)
        h = over(ids, t, after, h)
    last = h if kind == "gru" else torch.cat([h, c], 1)
    return {"last": last, **{k: torch.stack(v, 1) for k, v in made.items() if v}}


def numbers(x):
    return None if x is None else [round(float(v), 9) for v in x.detach().reshape(-1)]


def case(op, inputs, outputs, arrow=False):
    """A line of the problem and its tensors; weights lie output innermost."""
    def shape(x):
        return "x".join(str(n) for n in x.shape)

    def memory(x):
        is_weight = x.dim() == 2 and getattr(x, "is_weight", False)
        return numbers(x.T if is_weight else x)
    line = " ".join([op] + [shape(x) for x in inputs])
    if arrow:
        line += " -> " + " ".join(shape(x) for x in outputs)
    return {"problem": line, "in": [memory(x) for x in inputs],
            "out": [None if x is None else numbers(x) for x in outputs]}


def weight(*shape):
    w = rounded(*shape).requires_grad_()
    w.is_weight = True
    return w


def recurrent(kind):
    """A forward and a backward problem, after a comparison with PyTorch's module."""
    n_gates, states = (4, 2) if kind == "lstm" else (3, 1)
    net = (nn.LSTM if kind == "lstm" else nn.GRU)(D, H, batch_first=True)
    for p in net.parameters():
        p.data = rounded(*p.shape)
    x, state = rounded(N, T, D), rounded(N, states * H).requires_grad_()
    ids = ids_of(LENGTHS, T)
    first = tuple(s.unsqueeze(0).contiguous() for s in state.split(H, 1))
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    y, last = net(packed, first if kind == "lstm" else first[0])
    y = pad_packed_sequence(y, batch_first=True, total_length=T)[0]
    last = torch.cat([s[0] for s in last], 1) if kind == "lstm" else last[0]
    dy, dlast = rounded(N, T, H), rounded(N, states * H)
    theirs = torch.autograd.grad((y * dy).sum() + (last * dlast).sum(),
                                 [net.weight_hh_l0, net.bias_hh_l0, state])

    gates = (x @ net.weight_ih_l0.T + net.bias_ih_l0).detach().float().double().requires_grad_()
    w, b = net.weight_hh_l0, net.bias_hh_l0
    w.is_weight = True
    ours = run(gates, w, b, ids, state, kind)
    grads = torch.autograd.grad((ours["y"] * dy).sum() + (ours["last"] * dlast).sum(),
                                [gates, state, w, b])
    for a, c in zip([y, last, *theirs], [ours["y"], ours["last"], grads[2], grads[3], grads[1]]):
        assert torch.allclose(a, c, atol=1e-5), (kind, (a - c).abs().max())
    forward = case(kind, [gates, w, b, ids, state], [ours["y"], ours["last"], ours["acts"],
                                                   ours["kept"], ours["before"]])
    inputs = [ours["acts"], w, ids, ours["kept"]] + ([ours["before"]] if kind == "gru" else [])
    outputs = [grads[0], grads[1]]
    backward = case(kind + "_grad", inputs + [dy, dlast], outputs, True) if kind == "lstm" else None
    if kind == "gru":
        backward = case("gru_grad", inputs + [dy, dlast], [grads[0], grads[0], grads[1]], True)
        backward["out"][1] = None
    return [forward, backward]


class Attention(nn.Module):
    """score_s = v . tanh(W_query h + keys_s), softmax over places that exist, context of the memory."""
    def __init__(self):
        super().__init__()
        self.w_context, self.w_query = nn.Parameter(rounded(4 * H, E)), nn.Parameter(rounded(A, H))
        self.v = nn.Parameter(rounded(A))
        self.keys, self.memory = nn.Parameter(rounded(N, S, A)), nn.Parameter(rounded(N, S, E))
        self.source = ids_of([4, 2, 3], S)

    def forward(self, h):
        query = h @ self.w_query.T
        scores = (self.keys + query.unsqueeze(1)).tanh() @ self.v
        weights = scores.masked_fill(self.source < 0, float("-inf")).softmax(1)
        return query, weights, (weights.unsqueeze(1) @ self.memory).squeeze(1)


def attending():
    a = Attention()
    gates, w, b = rounded(N, T, 4 * H).requires_grad_(), weight(4 * H, H), rounded(4 * H)
    state, ids, dy = rounded(N, 2 * H).requires_grad_(), ids_of(LENGTHS, T), rounded(N, T, H)
    made = run(gates, w, b, ids, state, "lstm", a)
    a.w_context.is_weight = a.w_query.is_weight = True
    grads = torch.autograd.grad((made["y"] * dy).sum(), [gates, state, a.keys, a.memory, a.v])
    outputs = [made[k] for k in ("y", "last", "acts", "kept", "before", "context", "weights", "query")]
    forward = case("lstm_attend", [gates, w, b, ids, state, a.w_context, a.w_query, a.v, a.keys,
                                   a.memory, a.source], outputs)
    inputs = [made["acts"], w, ids, made["kept"], a.w_context, a.w_query, a.v, a.keys, a.memory,
              made["query"], made["weights"], dy]
    backward = case("lstm_attend_grad", inputs, [*grads[:4], made["query"], grads[4]], True)
    backward["out"][4] = None
    return [forward, backward]


if __name__ == "__main__":
    cases = recurrent("lstm") + recurrent("gru") + attending()
    path = pathlib.Path(__file__).resolve().parent / "recurrent.json"
    path.write_text(json.dumps({"cases": cases}, indent=None, separators=(",", ":")) + "\n")
