"""The training of a Keras model as an inner problem: losses, optimizers and what can be tuned."""
