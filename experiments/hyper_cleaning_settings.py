"""`python -m experiments.hyper_cleaning_settings`: see `experiments/data_hyper_cleaning/settings_study.py`."""

from experiments.data_hyper_cleaning.settings_study import command_line

if __name__ == "__main__":
    command_line()
