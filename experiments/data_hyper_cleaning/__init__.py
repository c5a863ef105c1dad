"""Section 5.1 of the paper: data hyper-cleaning."""
