#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a small GPT-2 and a small BERT of Hugging Face's transformers in float64, on weights and tokens
that are a function of names and numbers, and writes transformers.json beside this file: losses of 20
steps of SGD, and of the first step a fingerprint of the logits and of each parameter's gradient.
tests/transformer_test.c makes the same with tutti's graphs.

Needs torch and transformers. A fingerprint is the norm, and the sum of products with drawn numbers."""
import json
import pathlib

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

SAMPLES, TOKENS, VOCAB, WIDTH, HEADS, LAYERS, CONTEXT = 4, 20, 67, 48, 3, 2, 24
STEPS, RATE = 20, 0.1


def drawn(name, count):
    """Numbers in [-0.5, 0.5): a hash of the name and the number of each."""
    p = 2166136261
    for byte in name.encode():
        p = (p ^ byte) * 16777619 & 0xFFFFFFFF
    h = (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(p)) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 2246822519), (13, 3266489917)):
        h ^= h >> np.uint64(shift)
        h = h * np.uint64(factor) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    return h.astype(np.float64) / 2**32 - 0.5


def weight(name, shape):
    is_norm = name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight", "LayerNorm.weight"))
    values = (1 if is_norm else 0) + (0.2 if is_norm or name.endswith("bias") else 0.4) * drawn(name, int(np.prod(shape)))
    return torch.from_numpy(values.astype(np.float32).reshape(shape)).double()


def tokens(name):
    return torch.from_numpy(((drawn(name, SAMPLES * TOKENS) + 0.5) * VOCAB).astype(np.int64).reshape(SAMPLES, TOKENS))


def fingerprint(name, tensor):
    flat = tensor.detach().double().numpy().reshape(-1)
    return [float(np.linalg.norm(flat)), float(flat @ drawn("dot." + name, flat.size))]


def gpt():
    net = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                                     resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    return net, {"input_ids": tokens("ids")}, tokens("labels")


def bert():
    """Some tokens are hidden, and sequence n ends 3n tokens early."""
    net = BertForMaskedLM(BertConfig(vocab_size=VOCAB, max_position_embeddings=CONTEXT, hidden_size=WIDTH,
                                     num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH,
                                     hidden_dropout_prob=0, attention_probs_dropout_prob=0))
    there = torch.arange(TOKENS)[None, :] < TOKENS - 3 * torch.arange(SAMPLES)[:, None]
    hidden = torch.from_numpy(drawn("hidden", SAMPLES * TOKENS).reshape(SAMPLES, TOKENS) < -0.2)
    labels = torch.where(there & hidden, tokens("labels"), -100)
    return net, {"input_ids": torch.where(there, tokens("ids"), 0), "attention_mask": there.long()}, labels


def outcome(make, prefix):
    net, inputs, labels = make()
    net = net.double().eval()
    names = {name.removeprefix(prefix): p for name, p in net.named_parameters()}
    with torch.no_grad():
        for name, p in names.items():
            p.copy_(weight(name, p.shape))
    update = torch.optim.SGD(net.parameters(), lr=RATE)
    result = {"losses": []}
    for step in range(STEPS):
        update.zero_grad()
        logits = net(**inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=-100)
        loss.backward()
        result["losses"].append(float(f"{loss.item():.9g}"))
        if step == 0:
            seen = inputs.get("attention_mask", torch.ones_like(labels))[:, :, None]
            result["logits"] = fingerprint("logits", logits * seen)
            result["gradients"] = {name: fingerprint(name, p.grad) for name, p in names.items()}
        update.step()
    return result


def main():
    golden = {"made_by": "tests/golden/transformers.py", "samples": SAMPLES, "tokens": TOKENS, "vocab": VOCAB,
              "width": WIDTH, "heads": HEADS, "layers": LAYERS, "context": CONTEXT, "steps": STEPS, "rate": RATE,
              "models": {"gpt": outcome(gpt, "transformer."), "bert": outcome(bert, "")}}
    path = pathlib.Path(__file__).resolve().parent / "transformers.json"
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
