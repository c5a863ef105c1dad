"""`python -m experiments.data_hyper_cleaning`."""

from experiments.data_hyper_cleaning.experiment import command_line

command_line()
