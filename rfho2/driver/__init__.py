"""The outer loop: hypergradients in, updated hypers out, with checkpoints, recovery and clean interruption."""
