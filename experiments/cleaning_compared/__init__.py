"""Data hyper-cleaning compared with its alternatives, where trusted digits are few, different or unbalanced."""
