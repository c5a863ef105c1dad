"""Graphs that TensorFlow does not optimise: quick tests trace many, and optimising takes up to a quarter of their time."""

import os

PLAIN = "RFHO2_TESTS_WITH_PLAIN_GRAPHS"  # set in the processes of the quick tests, and in those that they start


def plain() -> None:
    """Switches the optimisation of graphs off, here and in processes that are started from now on."""
    import tensorflow as tf

    os.environ[PLAIN] = "1"
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
