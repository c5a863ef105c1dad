"""What a release is checked by: the answer of the vulnerability database, and the locked requirements."""

import importlib.metadata
import json
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import promises, release

ROOT = Path(__file__).parents[1]
CLEAN = {"name": "numpy", "version": "2", "vulns": []}
BOTH = {"numpy", "tqdm"}


def answer(*packages):
    return json.dumps({"dependencies": packages})


def test_a_release_is_clean_only_if_every_package_was_audited():
    audited = answer(CLEAN, CLEAN | {"name": "tqdm"})
    assert release.verdict(audited, "", BOTH).startswith("No known vulnerabilities in 2 packages")
    for packages in ([CLEAN], [CLEAN, {"name": "tqdm", "skip_reason": "no answer"}]):
        with pytest.raises(release.NotCleanError, match="1 of 2 packages were NOT audited: no answer"):
            release.verdict(answer(*packages), "", BOTH)
    with pytest.raises(release.NotCleanError, match="Known vulnerabilities: numpy 2: X-1, X-2"):
        release.verdict(answer({**CLEAN, "vulns": [{"id": "X-1"}, {"id": "X-2"}]}), "", {"numpy"})
    with pytest.raises(release.NotCleanError, match="could not be looked up: no route"):
        release.verdict("", "no route\n", BOTH)


def test_every_requirement_is_locked_with_hashes_in_a_version_that_it_allows():
    locked = {}
    for name in ("tools.lock", "requirements.lock"):
        text = (ROOT / name).read_text()
        pins = release.pins(text)
        entries = re.findall(r"(?m)^\S.*\n(?:    --hash=sha256:\w{64}.*\n)+", text)
        assert len(pins) == len(entries) == len(re.findall(r"(?m)^\S", text)), "an entry has no hash"
        here = {pin.name: str(pin.specifier).removeprefix("==") for pin in pins if release.applies(pin)}
        assert here.items() >= {(pin, locked[pin]) for pin in here.keys() & locked.keys()}, "the two files differ"
        locked |= here
    wanted = [Requirement(text) for text in importlib.metadata.requires("rfho2")]
    extras = [{"extra": extra} for extra in ("", "experiments", "plot", "dev", "docs", "release", "search")]
    wanted = [each for each in wanted if each.marker is None or any(map(each.marker.evaluate, extras))]
    assert len(wanted) > 30
    for each in wanted:
        assert each.specifier.contains(locked[each.name.lower().replace("_", "-")]), each


def test_promises_sum_the_calls_of_pytest_and_otherwise_show_the_last_line():
    calls = "===== 3 passed, 1 skipped in 2.31s =====\n1,000 lines\n4 passed in 600.00s (0:10:00)\nmake: done\n"
    assert promises.summary(calls) == "7 passed, 1 skipped"
    assert promises.summary("1 failed example\nWritten to results.\n\n") == "Written to results."
