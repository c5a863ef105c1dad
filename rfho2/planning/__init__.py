"""Predicts the time and memory of each engine, and picks one."""
