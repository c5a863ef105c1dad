"""What a release is checked by: the answer of the vulnerability database, and the locked requirements."""

import json
import re
from pathlib import Path

import pytest

from tests import release

ROOT = Path(__file__).parents[1]
CLEAN = {"name": "numpy", "version": "2", "vulns": []}


def answer(*packages):
    return json.dumps({"dependencies": packages})


def test_a_release_is_clean_only_if_every_package_was_audited():
    assert release.verdict(answer(CLEAN, CLEAN), "") == "No known vulnerabilities in 2 packages."
    unknown = {"name": "tqdm", "skip_reason": "not found"}
    with pytest.raises(release.NotCleanError, match="1 of 2 packages were NOT audited: not found"):
        release.verdict(answer(CLEAN, unknown), "")
    with pytest.raises(release.NotCleanError, match="Known vulnerabilities: numpy 2: X-1, X-2"):
        release.verdict(answer({**CLEAN, "vulns": [{"id": "X-1"}, {"id": "X-2"}]}), "")
    with pytest.raises(release.NotCleanError, match="could not be looked up: no route"):
        release.verdict("", "no route\n")


def test_every_requirement_is_locked_with_hashes():
    text = (ROOT / "requirements.lock").read_text()
    locked = re.findall(r"(?m)^([\w.-]+)==\S+.*\n(?:    --hash=sha256:\w{64}.*\n)+", text)
    assert len(locked) == len(re.findall(r"(?m)^\S", text)), "an entry has no hash"
    wanted = re.findall(r"(?m)^([\w.-]+)[>=]", (ROOT / "requirements.txt").read_text())
    assert len(wanted) > 10
    assert {name.replace("_", "-") for name in wanted} <= set(locked)
