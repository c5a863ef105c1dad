"""Sizes, weights and tokens of the transformer benchmark: NumPy alone, because TensorFlow and JAX run in separate processes.

A decoder-only transformer (GPT-2's: learned positions, layer norm before attention and before the MLP, tied output weights)
is trained by AdamW with clipped gradients on random tokens from eight sources. The hypers are a weight for the loss of each
source and the learning rate; the objective is the loss of the first source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

SOURCES = 8
LEARNING_RATE, WEIGHT_DECAY, CLIP = 3e-4, 0.1, 1.0
BETAS, EPSILON = (0.9, 0.95), 1e-8
NORM_EPSILON = 1e-5


class Size(NamedTuple):
    """A network and its batches."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    context: int
    batch: int

    @property
    def weights(self) -> int:
        """How many there are."""
        return sum(int(np.prod(shape)) for shape in shapes(self).values())


SIZES = {
    "tiny": Size(64, 16, 2, 2, 8, 8),
    "1M": Size(1_024, 128, 4, 4, 64, 8),
    "10M": Size(8_192, 320, 6, 5, 256, 16),
    "50M": Size(16_384, 640, 8, 10, 512, 8),
    "124M": Size(50_304, 768, 12, 12, 1_024, 8),
    "774M": Size(50_304, 1_280, 36, 20, 1_024, 8),
    "1010M": Size(50_304, 2_048, 18, 16, 1_024, 8),
}


def shapes(size: Size) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights by name; those of block i begin with "i/"."""
    d = size.width
    block = {"norm": (d,), "qkv": (d, 3 * d), "out": (d, d), "mlp_norm": (d,), "up": (d, 4 * d), "down": (4 * d, d)}
    blocks = {f"{i}/{name}": shape for i in range(size.layers) for name, shape in block.items()}
    return {"tokens": (size.vocabulary, d), "positions": (size.context, d), "norm": (d,), **blocks}


def initial_params(size: Size, dtype: Any = np.float32, stacked: bool = False) -> dict[str, np.ndarray]:
    """Normal weights as in GPT-2; scales of norms are 1. If stacked, "blocks/qkv" has those of all blocks, and so on."""
    rng = np.random.default_rng(0)
    params = {}
    for name, shape in shapes(size).items():
        deviation = 0.02 / np.sqrt(2 * size.layers) if name.endswith(("out", "down")) else 0.02
        params[name] = np.ones(shape, dtype) if len(shape) == 1 else (deviation * rng.normal(size=shape)).astype(dtype)
    if not stacked:
        return params
    of_first = [name.removeprefix("0/") for name in params if name.startswith("0/")]
    blocks = {f"blocks/{name}": np.stack([params[f"{i}/{name}"] for i in range(size.layers)]) for name in of_first}
    return {name: w for name, w in params.items() if "/" not in name} | blocks


def within(params: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The params whose names begin with "prefix/", by the rest of their names."""
    return {name.removeprefix(f"{prefix}/"): w for name, w in params.items() if name.startswith(f"{prefix}/")}


class Text(NamedTuple):
    """Batches: tokens [batches, batch, context + 1] and sources [batches, batch]; the first is for validation."""

    tokens: np.ndarray
    sources: np.ndarray


def text(size: Size, batches: int) -> Text:
    """Random tokens; source s prefers tokens that are s modulo the number of sources."""
    rng = np.random.default_rng(1)
    sources = rng.integers(0, SOURCES, (batches, size.batch)).astype(np.int32)
    sources[0] = 0
    tokens = rng.integers(0, size.vocabulary, (batches, size.batch, size.context + 1))
    typical = rng.random(tokens.shape) < 0.5
    tokens = np.where(typical, tokens // SOURCES * SOURCES + sources[..., None], tokens)
    return Text(np.minimum(tokens, size.vocabulary - 1).astype(np.int32), sources)


def hypers(dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """The values at which the hypergradient is computed."""
    return {"sources": np.linspace(0.5, 1.5, SOURCES).astype(dtype), "rate": np.asarray(LEARNING_RATE, dtype)}
