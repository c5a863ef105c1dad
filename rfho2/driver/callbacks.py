"""What the driver needs to know about callbacks: whether they can be called, and whether they read the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

EVENTS = ("on_start", "on_hyper_iteration", "on_end", "on_norms")


def checked_callbacks(callbacks: Sequence[Any]) -> tuple[Any, ...]:
    """The callbacks, unless one of them could never be called."""
    if not isinstance(callbacks, Sequence):
        raise TypeError(f"callbacks is {type(callbacks).__name__}; pass a list, such as [rf.ProgressBar()].")
    for callback in callbacks:
        name = type(callback).__name__
        if isinstance(callback, type):
            raise TypeError(f"callbacks has the class {callback.__name__}; pass an object, {callback.__name__}(...).")
        if any(cls.__module__.partition(".")[0] == "keras" for cls in type(callback).__mro__):
            raise TypeError(
                f"callbacks has {name}, a Keras callback, which is for RealTimeTuner.fit. Pass rfho2's: rf.ProgressBar(), "
                f"rf.TensorBoard(logdir), rf.CSVLogger(path), or a subclass of rf.Callback."
            )
        if not any(hasattr(callback, event) for event in EVENTS):
            raise TypeError(
                f"callbacks has {callback!r:.80}, which has none of the methods {', '.join(EVENTS)}. Pass a subclass of "
                f"rf.Callback, such as rf.ProgressBar()."
            )
    return tuple(callbacks)


def needs_state(callback: Any) -> bool:
    """Whether a callback may read the state: yes, unless the class with `on_hyper_iteration`, or a subclass, denies it."""
    for cls in type(callback).__mro__:
        if "needs_state" in vars(cls):
            return vars(cls)["needs_state"]
        if "on_hyper_iteration" in vars(cls):
            return True
    return hasattr(callback, "on_hyper_iteration")
