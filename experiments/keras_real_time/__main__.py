"""`python -m experiments.keras_real_time`."""

from experiments.keras_real_time.experiment import command_line

command_line()
