"""A weight for each training example, learned while one network trains."""
