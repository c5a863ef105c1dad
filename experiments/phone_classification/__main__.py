"""`python -m experiments.phone_classification`."""

from experiments.phone_classification.experiment import command_line

command_line()
