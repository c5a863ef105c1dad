"""The data that `fit` accepts, arrays or datasets, as batches."""
