# SPDX-License-Identifier: MIT
"""LARS and LAMB by their papers, in PyTorch's arithmetic: PyTorch has neither.

LARS: You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", 2017, algorithm 1, with the
rate applied after momentum, as torch.optim.SGD does.
LAMB: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2019, algorithm
2, with phi the identity.
A parameter with one extent (a bias, or of a normalization) has no decay and a ratio of 1.
"""
import torch


def _ratio(weight, moves):
    return weight / moves if weight > 0 and moves > 0 else 1.0


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum, weight_decay, trust):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                adapts, decay, ratio = p.dim() > 1, 0.0, 1.0
                if adapts:
                    decay = group["weight_decay"]
                    w, g = p.norm().item(), p.grad.norm().item()
                    if w > 0 and g > 0:
                        ratio = group["trust"] * w / (g + decay * w)
                d = ratio * (p.grad + decay * p)
                state = self.state[p]
                state["m"] = d if "m" not in state else group["momentum"] * state["m"] + d
                p -= group["lr"] * state["m"]


class LAMB(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                t = state["t"] = state.get("t", 0) + 1
                state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * p.grad
                state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * p.grad ** 2
                d = state["m"] / (1 - beta1 ** t) / ((state["v"] / (1 - beta2 ** t)).sqrt() + group["eps"])
                ratio = 1.0
                if p.dim() > 1:
                    d = d + group["weight_decay"] * p
                    ratio = _ratio(p.norm().item(), d.norm().item())
                p -= group["lr"] * ratio * d
