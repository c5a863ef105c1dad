"""A pool of processes that has none: what is submitted is computed at once."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any


class Pool:
    """Stands for `concurrent.futures.ProcessPoolExecutor`."""

    def __init__(self, *_: Any, **__: Any):
        self.submitted: list[Any] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(self, function: Callable[..., Any], *args: Any) -> concurrent.futures.Future[Any]:
        """The finished computation."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.set_result(function(*args))
        self.submitted.append(args)
        return future
