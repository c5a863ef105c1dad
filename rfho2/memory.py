"""The public name of `rfho2.planning.memory.keep_freed`."""

from rfho2.planning.memory import keep_freed

__all__ = ["keep_freed"]
