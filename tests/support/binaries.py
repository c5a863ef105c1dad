"""Runs a binary of `experiments` inside the test process: a process of its own would import TensorFlow first."""

import contextlib
import io
import runpy
import sys
from typing import NamedTuple
from unittest import mock

from absl import app
from absl.testing import flagsaver

import experiments.common.binary  # noqa: F401  defines a flag, which has to be there before flags are saved


class BinaryResult(NamedTuple):
    """The exit code of a binary, and what it printed."""

    code: int | str
    out: str
    err: str


def run_binary(name: str, *flags: str) -> BinaryResult:
    """Does what `python -m experiments.NAME FLAGS` does. No flag outlives the call."""
    app.define_help_flags()
    out, err, code = io.StringIO(), io.StringIO(), None
    with contextlib.ExitStack() as stack:
        stack.enter_context(flagsaver.flagsaver())
        stack.enter_context(mock.patch.object(sys, "argv", [name, *flags]))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code
    return BinaryResult(0 if code is None else code, out.getvalue(), err.getvalue())
