"""What `fit` accepts, as batches: arrays, and datasets."""
