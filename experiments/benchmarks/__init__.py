"""Benchmarks: costs as ratios measured in one run, comparisons with other frameworks, and endurance."""
