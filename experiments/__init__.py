"""One binary for each section of the paper: `python -m experiments.<name>`."""
