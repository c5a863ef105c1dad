"""Section 5.2 of the paper: learning task interactions."""
