"""Ten small Keras tasks: a learning rate tuned in real time, compared with the usual alternatives."""
