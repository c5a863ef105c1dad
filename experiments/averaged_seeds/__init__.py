"""Hypers tuned on one random seed, and on the average over several."""
