"""`python -m experiments.complexity`."""

from experiments.complexity.experiment import command_line

command_line()
