"""Constraint sets for hypers, each with its exact Euclidean projection."""
