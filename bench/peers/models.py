# SPDX-License-Identifier: MIT
"""tutti's models written in PyTorch, for comparison and as the oracle of tests/golden.

ZOO maps a model's name to a function that makes a Case:
  model              the module; its parameters have the names and shapes of tutti's checkpoints
  batch(n, device)   n synthetic samples, as the tuple that loss takes after the model
  loss(model, ...)   the scalar that training minimizes
  tokens_per_sample  1 for images
OPTIMIZER names the optimizer of the models that are not trained with SGD.
"""
from typing import Callable, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


class Case(NamedTuple):
    model: nn.Module
    batch: Callable
    loss: Callable
    tokens_per_sample: int


class MLP(nn.Module):
    """784 -> 250 -> 100 -> 10 with ReLU between."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(28 * 28, 250)
        self.fc2 = nn.Linear(250, 100)
        self.fc3 = nn.Linear(100, 10)

    def forward(self, x):
        x = F.relu(self.fc1(x.flatten(1)))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class CNN(nn.Module):
    """1x28x28 -> conv 3x3 -> 32x14x14 -> conv 3x3 -> 64x7x7 -> 128 -> 10.

    Each convolution pads by 1 and is followed by ReLU and a 2x2 max pool. Dropout of 0.25 acts
    on the 128 hidden units.
    """

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(self.drop(x))


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pools: 1x28x28 -> 6x12x12 -> 16x4x4 -> 120 -> 84 -> 10."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 4 * 4, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


def grey_images(n, device="cpu"):
    images = torch.randn(n, 1, 28, 28, device=device)
    labels = torch.randint(10, (n,), device=device)
    return images, labels


def cross_entropy(model, images, labels):
    return F.cross_entropy(model(images), labels)


def image_case(make):
    return lambda: Case(make(), grey_images, cross_entropy, 1)


ZOO = {
    "mlp": image_case(MLP),
    "cnn": image_case(CNN),
    "lenet": image_case(LeNet),
}
OPTIMIZER = {}
