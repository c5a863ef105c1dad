"""The experiments, one package per section of the paper, and the benchmarks: `python -m experiments.<name>`."""
