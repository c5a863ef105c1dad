"""Readers for the data sets that the experiments use."""
