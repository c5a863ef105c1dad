"""Data hyper-cleaning compared with what users do instead, where trusted digits are few, different or unbalanced."""
