"""`python -m experiments.real_time_digits`."""

from experiments.real_time_digits.experiment import command_line

command_line()
