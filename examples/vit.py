"""A small vision transformer on the handwritten digits that come with scikit-learn (8 x 8 pixels, 10 classes)."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PATCH = 2
PATCHES = (8 // PATCH) ** 2
CLASSES = 10
BATCH = 64
HEAD = 16
_HELD_OUT = 360


class Block(nn.Module):
    """PyTorch's own attention and a two-layer network, each on a normalised copy and added to the stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, width // HEAD, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, features: Tensor) -> Tensor:
        """From and to features of shape (batch, patches, width)."""
        normed = self.norm1(features)
        features = features + self.attention(normed, normed, normed, need_weights=False)[0]
        return features + self.mlp(self.norm2(features))


class ViT(nn.Module):
    """Patches, learnt positions, blocks, a mean over the patches, and a readout."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.positions = nn.Parameter(0.02 * torch.randn(1, PATCHES, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape (batch, classes), from images of shape (batch, 1, 8, 8)."""
        features = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            features = block(features)
        return self.readout(self.norm(features).mean(dim=1))


def make_model(width: int, depth: int) -> ViT:
    """The model of some size."""
    return ViT(width, depth)


@cache
def _digits() -> tuple[Tensor, Tensor]:
    """Images, standardised, and classes, in a fixed random order."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(found.images, dtype=torch.float32)[order][:, None]
    return (images - images.mean()) / images.std(), torch.tensor(found.target)[order]


def data(step: int, seed: int) -> tuple[Tensor, Tensor]:
    """A batch of images and classes; held-out ones for negative steps."""
    images, classes = _digits()
    low, high = (0, _HELD_OUT) if step < 0 else (_HELD_OUT, len(classes))
    random = torch.Generator().manual_seed(1_000_003 * (seed + 1) + step)
    chosen = torch.randint(low, high, (BATCH,), generator=random)
    return images[chosen], classes[chosen]


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy, in nats."""
    images, classes = batch
    return F.cross_entropy(model(images), classes)
