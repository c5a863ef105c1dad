"""`python -m experiments.report`."""

from experiments.report.page import command_line

command_line()
