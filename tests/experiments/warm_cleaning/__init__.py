"""Hyper-cleaning by warm implicit hypergradients."""
