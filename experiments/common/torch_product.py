"""A matrix product in PyTorch that keeps a transposed copy, as `rf.fixed_product` does, for fair comparisons."""

from __future__ import annotations

from typing import Any


def transposed_product(x: Any) -> Any:
    """w -> x w, differentiable as often as needed, whose derivative multiplies by a contiguous transpose."""
    import torch

    def linear(m: Any, mt: Any) -> Any:
        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, w: Any) -> Any:
                return m @ w

            @staticmethod
            def backward(ctx: Any, up: Any) -> Any:
                return linear(mt, m)(up)

        return Product.apply

    return linear(x, x.T.contiguous())
