"""Wall-clock times of calls, interleaved so that a busy moment of the machine affects all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import tensorflow as tf
from tqdm import tqdm

Key = TypeVar("Key", bound=Hashable)
Call = Callable[[], Any]


def seconds_of(call: Call) -> float:
    """Seconds until the numbers that a call returns are in NumPy: TensorFlow may return before they are computed."""
    began = time.perf_counter()
    tf.nest.map_structure(lambda x: x.numpy() if tf.is_tensor(x) else x, call())
    return time.perf_counter() - began


def interleaved(
    calls: Mapping[Key, Call], rounds: int, title: str | None = None, clock: Callable[[Any], float] | None = None
) -> dict[Key, list[float]]:
    """Seconds of each call in each round; a round makes every call once.

    Args:
      title: of a progress bar over the rounds; None shows none.
      clock: makes a call and returns its seconds; None means `seconds_of`.
    """
    seconds: dict[Key, list[float]] = {name: [] for name in calls}
    for _ in tqdm(range(rounds), desc=title, disable=title is None):
        for name, call in calls.items():
            seconds[name].append((clock or seconds_of)(call))
    return seconds


def best_times(
    calls: Mapping[Key, Call], rounds: int, warm_up: bool = True, clock: Callable[[Any], float] | None = None
) -> dict[Key, float]:
    """The fewest seconds that each call took in several interleaved rounds.

    Args:
      warm_up: make each call once before, untimed: the first call compiles.
      clock: as for `interleaved`.
    """
    if warm_up:
        for call in calls.values():
            call()
    return {name: min(seconds) for name, seconds in interleaved(calls, rounds, clock=clock).items()}
