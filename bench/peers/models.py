# SPDX-License-Identifier: MIT
"""tutti's models written in PyTorch, for comparison and as the oracle of tests/golden.

ZOO maps a model's name to a function that makes a Case:
  model              the module; its parameters have the names and shapes of tutti's checkpoints
  batch(n, device)   n synthetic samples, as the tuple that loss takes after the model
  loss(model, ...)   the scalar that training minimizes
  tokens_per_sample  1 for images and documents
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


class VGG11(nn.Module):
    """torchvision's vgg11 with a head for 32x32 images: 512 -> 4096 -> 4096 -> 10."""

    WIDTHS = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")

    def __init__(self, norm=False):
        super().__init__()
        layers, channels = [], 3
        for width in self.WIDTHS:
            if width == "pool":
                layers.append(nn.MaxPool2d(2))
                continue
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            layers += [nn.BatchNorm2d(width)] if norm else []
            layers.append(nn.ReLU())
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 10))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where extents change."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet18(nn.Module):
    """torchvision's resnet18 with a stem for 32x32 images: one 3x3 convolution, no pool."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def conv_norm_relu6(inputs, outputs, kernel, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


class InvertedResidual(nn.Module):
    """1x1 to `expand` times the channels, depthwise 3x3, 1x1 back; a shortcut where extents stay."""

    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        hidden = inputs * expand
        up = [conv_norm_relu6(inputs, hidden, 1)] if expand != 1 else []
        self.conv = nn.Sequential(*up, conv_norm_relu6(hidden, hidden, 3, stride, hidden),
                                  nn.Conv2d(hidden, outputs, 1, bias=False),
                                  nn.BatchNorm2d(outputs))
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.has_shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    """torchvision's mobilenet_v2 for 32x32 images: stride 1 in the first convolution and in the
    stage of 24 channels."""

    # expand, channels, blocks, stride
    STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
              (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self):
        super().__init__()
        layers, inputs = [conv_norm_relu6(3, 32, 3)], 32
        for expand, channels, blocks, stride in self.STAGES:
            for number in range(blocks):
                layers.append(InvertedResidual(inputs, channels, stride if number == 0 else 1,
                                               expand))
                inputs = channels
        layers.append(conv_norm_relu6(inputs, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 10))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class ConvAutoencoder(nn.Module):
    """1x28x28 -> 16x14x14 -> 32x7x7 -> 64 numbers, and the same way back to pixels of [0, 1]."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(32, 64, 7))
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(64, 32, 7), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 3, 2, 1, 1), nn.Sigmoid())

    def forward(self, x):
        return self.decoder(self.encoder(x))


def grey_images(n, device="cpu"):
    images = torch.randn(n, 1, 28, 28, device=device)
    labels = torch.randint(10, (n,), device=device)
    return images, labels


def colour_images(n, device="cpu"):
    images = torch.randn(n, 3, 32, 32, device=device)
    labels = torch.randint(10, (n,), device=device)
    return images, labels


def grey_pixels(n, device="cpu"):
    images = torch.rand(n, 1, 28, 28, device=device)
    return images, images


def cross_entropy(model, images, labels):
    return F.cross_entropy(model(images), labels)


def mean_squares(model, images, targets):
    return F.mse_loss(model(images), targets)


class NBoW(nn.Module):
    """The mean of a text's words, one linear layer. With `padded`, places with an id below 0 are left
    out; without, there are none, which is faster."""

    def __init__(self, vocab=25000, dim=100, classes=2, padded=False):
        super().__init__()
        self.padded = padded
        self.embedding = nn.Embedding(vocab, dim)
        self.fc = nn.Linear(dim, classes)

    def forward(self, ids):
        if not self.padded:
            return self.fc(self.embedding(ids).mean(1))
        there = (ids >= 0).unsqueeze(2)
        words = self.embedding(ids.clamp(min=0)) * there
        return self.fc(words.sum(1) / there.sum(1))


class TextCNN(nn.Module):
    """Filters over 3, 4 and 5 words, the largest of each along the text, one linear layer. With
    `padded`, an id below 0 is a row of zeros."""

    def __init__(self, vocab=25000, dim=100, filters=100, sizes=(3, 4, 5), classes=2, dropout=0.25,
                 padded=False):
        super().__init__()
        self.padded = padded
        self.embedding = nn.Embedding(vocab, dim)
        self.convs = nn.ModuleList(nn.Conv1d(dim, filters, k) for k in sizes)
        self.fc = nn.Linear(filters * len(sizes), classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        words = self.embedding(ids.clamp(min=0)) if self.padded else self.embedding(ids)
        if self.padded:
            words = words * (ids >= 0).unsqueeze(2)
        x = self.dropout(words).transpose(1, 2)
        found = [F.relu(conv(x)).amax(2) for conv in self.convs]
        return self.fc(self.dropout(torch.cat(found, 1)))


class Seq2Seq(nn.Module):
    """Two LSTMs or GRUs of two layers: the first reads a sentence, the second begins with its states and,
    given the translation so far, says the next word. With `padded`, a source is over where its ids are
    below 0; without, there are none such."""

    def __init__(self, source=8000, target=6000, width=256, hidden=512, layers=2, dropout=0.5,
                 cell=nn.LSTM, padded=False):
        super().__init__()
        self.padded = padded
        self.encoder_embedding = nn.Embedding(source, width)
        self.decoder_embedding = nn.Embedding(target, width)
        options = dict(num_layers=layers, dropout=dropout, batch_first=True)
        self.encoder = cell(width, hidden, **options)
        self.decoder = cell(width, hidden, **options)
        self.fc = nn.Linear(hidden, target)
        self.dropout = nn.Dropout(dropout)

    def read(self, source):
        if not self.padded:
            return self.dropout(self.encoder_embedding(source))
        words = self.dropout(self.encoder_embedding(source.clamp(min=0)))
        return nn.utils.rnn.pack_padded_sequence(words, (source >= 0).sum(1), batch_first=True,
                                                 enforce_sorted=False)

    def forward(self, source, target):
        _, state = self.encoder(self.read(source))
        known = target.clamp(min=0) if self.padded else target
        words, _ = self.decoder(self.dropout(self.decoder_embedding(known)), state)
        return self.fc(words)


def causal_attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)  # before PyTorch 2
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        parts = self.c_attn(self.ln_1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = causal_attention(*parts)
        x = x + self.c_proj(seen.transpose(1, 2).reshape(n, t, width))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 without dropout; the head is the table of words."""

    SIZES = {"char": (6, 6, 384), "124m": (12, 12, 768), "350m": (24, 16, 1024),
             "774m": (36, 20, 1280), "1558m": (48, 25, 1600)}

    def __init__(self, size="char", vocab=65, context=256):
        super().__init__()
        layers, heads, width = self.SIZES[size]
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def translate(model, source, target):
    said = model(source, target[:, :-1])
    return F.cross_entropy(said.flatten(0, 1), target[:, 1:].flatten())


def next_token(model, ids, following):
    return F.cross_entropy(model(ids).flatten(0, 1), following.flatten())


def tokens(vocabs, length):
    return lambda n, device="cpu": tuple(torch.randint(0, v, (n, length), device=device) for v in vocabs)


def gpt_case(size, vocab, length):
    return lambda: Case(GPT(size, vocab, length), tokens((vocab, vocab), length), next_token, length)


def texts(n, device="cpu", vocab=25000, length=256):
    return (torch.randint(0, vocab, (n, length), device=device),
            torch.randint(0, 2, (n,), device=device))


def image_case(make, batch=grey_images, loss=cross_entropy):
    return lambda: Case(make(), batch, loss, 1)


class Logistic(nn.Module):
    """Logistic regression of a table's rows."""

    def __init__(self, inputs=32, classes=2):
        super().__init__()
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.fc(x)


class Tabular(nn.Module):
    """A perceptron of a table's rows."""

    def __init__(self, inputs=32, hidden=16, classes=2):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


def table_rows(n, device="cpu"):
    return torch.randn(n, 32, device=device), torch.randint(0, 2, (n,), device=device)


ZOO = {
    "mlp": image_case(MLP),
    "cnn": image_case(CNN),
    "lenet": image_case(LeNet),
    "vgg11": image_case(VGG11, colour_images),
    "vgg11_bn": image_case(lambda: VGG11(norm=True), colour_images),
    "resnet18": image_case(ResNet18, colour_images),
    "mobilenet_v2": image_case(MobileNetV2, colour_images),
    "conv_autoencoder": image_case(ConvAutoencoder, grey_pixels, mean_squares),
    "logistic": image_case(Logistic, table_rows),
    "tabular": image_case(Tabular, table_rows),
    "nbow": image_case(NBoW, texts),
    "textcnn": image_case(TextCNN, texts),
    "seq2seq": lambda: Case(Seq2Seq(), tokens((8000, 6000), 25), translate, 50),
    "gpt": gpt_case("char", 65, 256),
    "gpt-124m": gpt_case("124m", 50257, 64),
    "gpt-124m-1024": gpt_case("124m", 50304, 1024),
    "gpt-350m-1024": gpt_case("350m", 50304, 1024),
}
OPTIMIZER = {"nbow": "adam", "textcnn": "adam", "seq2seq": "adam", **{m: "adamw" for m in ZOO if m.startswith("gpt")}}
