"""A Keras model as a pure function, with derivatives that are right."""
