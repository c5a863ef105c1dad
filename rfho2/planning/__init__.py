"""Predicts the time and memory of each engine, and picks one."""

from rfho2.planning.plan import Plan, auto, plan

__all__ = ["Plan", "auto", "plan"]
