"""A small GPT on bytes of Python's own documentation, which comes with every Python."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 96  # printable ASCII and the line break
CONTEXT = 32
BATCH = 16
HEAD = 16  # the size of a head stays, their number grows: then the logits' 1/sqrt(HEAD) needs no rule
_HELD_OUT = 0.1


class Attention(nn.Module):
    """Causal self-attention with heads of one size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = width // HEAD, HEAD
        self.queries = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, width, bias=False)
        self.values = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """From and to features of shape (batch, time, width)."""
        batch, time, width = features.shape
        parts = (
            layer(features).view(batch, time, self.num_heads, self.head_dim).transpose(1, 2)
            for layer in (self.queries, self.keys, self.values)
        )
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """Attention and a two-layer network, each on a normalised copy and added to the stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, features: Tensor) -> Tensor:
        """From and to features of shape (batch, time, width)."""
        features = features + self.attention(self.norm1(features))
        return features + self.mlp(self.norm2(features))


class GPT(nn.Module):
    """Embeddings, blocks, norm and an untied readout. Plain PyTorch: it knows nothing of parametrizations."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, VOCABULARY, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                # a readout that starts small: its random part would hide the rest at small widths
                scale = {"tokens": 0.5, "positions": 0.1, "readout": 0.1 * width**-0.5}
                nn.init.normal_(parameter, std=scale.get(name.partition(".")[0], width**-0.5))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits, shape (batch, time, vocabulary), from tokens of shape (batch, time)."""
        features = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            features = block(features)
        return self.readout(self.norm(features))


def make_model(width: int, depth: int) -> GPT:
    """The model of some size."""
    return GPT(width, depth)


@cache
def _text() -> tuple[Tensor, Tensor]:
    """Tokens to train on and held out."""
    from pydoc_data.topics import topics

    text = "\n".join(topics[key] for key in sorted(topics))
    codes = torch.tensor([ord(letter) - 31 if 32 <= ord(letter) < 126 else 0 for letter in text])
    cut = int(len(codes) * (1 - _HELD_OUT))
    return codes[:cut], codes[cut:]


def data(step: int, seed: int) -> Tensor:
    """A batch of tokens, shape (batch, time + 1); held-out ones for negative steps."""
    source = _text()[step < 0]
    random = torch.Generator().manual_seed(1_000_003 * (seed + 1) + step)
    starts = torch.randint(len(source) - CONTEXT - 1, (BATCH,), generator=random)
    return source[starts[:, None] + torch.arange(CONTEXT + 1)]


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    """Mean cross-entropy of the next token, in nats."""
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
