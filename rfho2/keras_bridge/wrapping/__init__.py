"""A Keras model as a pure function, with correct derivatives."""
