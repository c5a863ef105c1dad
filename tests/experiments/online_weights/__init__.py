"""Weights of examples learned online."""
