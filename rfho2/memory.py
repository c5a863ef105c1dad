"""`rfho2.memory.keep_freed`, under the name by which the documentation knows it."""

from rfho2.planning.memory import keep_freed

__all__ = ["keep_freed"]
