"""Section 5.3 of the paper: phone classification with real-time hyperparameter optimisation."""
