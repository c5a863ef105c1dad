"""Names, parameters and defaults of the public API do not change unnoticed."""

import difflib
import types

import rfho2 as rf
from tests.public_api import STORED, described, documented


def test_the_public_api_is_the_stored_one():
    difference = "\n".join(difflib.unified_diff(STORED.read_text().splitlines(), described().splitlines(), lineterm="", n=0))
    assert not difference, (
        f"The public API changed:\n{difference}\nIf that is meant, write it into CHANGELOG.md and run: "
        f"python -m tests.public_api"
    )


def test_everything_public_is_in_the_reference():
    modules = {name for name in rf.__all__ if isinstance(getattr(rf, name), types.ModuleType)}
    assert set(rf.__all__) - modules == {name for name in documented() if "." not in name}
    assert modules == {name.partition(".")[0] for name in documented() if "." in name}
