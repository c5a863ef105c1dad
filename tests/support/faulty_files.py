"""A stand-in for the operating system whose n-th operation on files fails."""

from __future__ import annotations

import errno
import os

COUNTED = (
    "open", "write", "pwrite", "read", "fsync", "close", "replace", "link", "mkdir", "listdir", "unlink", "rmdir", "lstat",
    "fstat", "ftruncate",
)  # fmt: skip


class Crash(BaseException):
    """The process ends here; nothing that would run later may count on it."""


class FaultySystem:
    """`os`, with one fault.

    Args:
      number: the operation that fails, counted from 0; None only counts.
      fault: the name of an errno; "short": half of a write; "crash before", "crash after": the process ends there.

    Attributes:
      log: the names of the operations.
      hit: the name of the one that failed.
    """

    def __init__(self, number: int | None, fault: str):
        self.number, self.fault, self.log, self.hit, self.dead = number, fault, [], "", False

    def __getattr__(self, name: str):
        function = getattr(os, name)
        return (lambda *args: self._operate(name, function, *args)) if name in COUNTED else function

    def _operate(self, name, function, *args):
        if self.dead and name != "close":  # a dead process does nothing; descriptors are closed for it
            raise Crash(name)
        self.log.append(name)
        if len(self.log) - 1 != self.number:
            return function(*args)
        self.hit = name
        if self.fault == "short":
            assert name == "write"
            return function(args[0], args[1][: max(1, len(args[1]) // 2)])
        if self.fault.startswith("crash"):
            result = function(*args) if self.fault == "crash after" else None
            self.dead = True
            if name == "close":
                return result if self.fault == "crash after" else function(*args)
            raise Crash(name)
        if name == "close":  # Linux closes the descriptor also where it reports an error
            function(*args)
        number = getattr(errno, self.fault)
        raise OSError(number, os.strerror(number), str(args[0]))
