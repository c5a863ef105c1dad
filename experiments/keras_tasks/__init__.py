"""Fifteen small Keras tasks: a learning rate tuned in real time, compared with what users do instead."""
