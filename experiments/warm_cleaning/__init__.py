"""Data hyper-cleaning by implicit hypergradients that continue one training."""
