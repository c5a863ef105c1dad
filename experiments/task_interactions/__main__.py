"""`python -m experiments.task_interactions`."""

from experiments.task_interactions.experiment import command_line

command_line()
