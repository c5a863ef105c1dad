"""Data hyper-cleaning beside what users do instead, where trusted digits are few, different or unbalanced."""
