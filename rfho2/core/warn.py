"""Warnings that point at the user's line, however deep in the library they arise."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SKIPPED = (str(PACKAGE) + os.sep, *(os.path.join("site-packages", name) + os.sep for name in ("tensorflow", "keras")))


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the innermost line that belongs neither to rfho2 nor to TensorFlow or Keras."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and any(part in frame.f_code.co_filename for part in SKIPPED):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
