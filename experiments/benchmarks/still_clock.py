"""Runs a module while the clock stands still: python -m experiments.benchmarks.still_clock SECONDS MODULE FLAGS.

The time of day is that many seconds before the start, and stays so.
"""

from __future__ import annotations

import runpy
import sys
import time


def stop(back: float) -> None:
    """Stops the clocks that Python code reads; timeouts, which use the system's own, still work."""
    wall, elapsed = time.time() - back, time.perf_counter()
    time.time = lambda: wall
    time.time_ns = lambda: int(wall * 1e9)
    time.perf_counter = lambda: elapsed


if __name__ == "__main__":
    stop(float(sys.argv.pop(1)))
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
