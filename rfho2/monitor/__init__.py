"""Callbacks that show and record a run."""
