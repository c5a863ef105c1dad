"""A learning rate for each of 2,000 steps, learned by hypergradients."""
