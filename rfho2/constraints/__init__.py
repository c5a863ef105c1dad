"""Constraint sets for hypers, each with its exact Euclidean projection."""

from rfho2.constraints.sets import (
    Box,
    BoxL1Ball,
    Constraint,
    L1Ball,
    L2Ball,
    NonNegative,
    Simplex,
    SymmetricNonNegative,
)

__all__ = ["Box", "BoxL1Ball", "Constraint", "L1Ball", "L2Ball", "NonNegative", "Simplex", "SymmetricNonNegative"]
