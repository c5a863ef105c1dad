"""Tuning a Keras model in real time or offline, and cleaning its data."""
