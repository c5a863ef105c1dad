"""A Keras CNN tuned in real time, compared with random search."""
