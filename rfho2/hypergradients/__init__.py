"""Hypergradient methods: each is one file with one function that returns an engine."""
