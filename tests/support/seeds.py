"""Fixed seeds, or fresh ones for `make fuzz`."""

import os
import secrets


def seed(default: int) -> int:
    """`default`; where RFHO2_FUZZ is set a fresh seed, which is printed."""
    if not os.environ.get("RFHO2_FUZZ"):
        return default
    fresh = secrets.randbelow(2**31)
    print(f"seed {fresh} (instead of {default})")
    return fresh
