"""Processes that fill one cache together: one of them works, and nothing is spoilt."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from data import cifar_features, locks
from data.errors import DataError
from tests.support.corpora import load

TOGETHER = """
import hashlib, sys, time
from pathlib import Path
from data import synthetic_speech, timit
from data import extract_cifar_features as extraction
from data.errors import DataError
import numpy as np

root, cache, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

def slowly(name, function):
    def run(*arguments):
        print("made", name, flush=True)
        time.sleep(seconds)
        return function(*arguments)
    return run

def images(dataset):
    labels = np.repeat(np.arange(10), 2)
    return extraction.Images(np.random.default_rng(0).integers(0, 256, (20, 2, 2, 3), np.uint8), labels, tuple("0123456789"))

timit._read_all = slowly("features", timit._read_all)
synthetic_speech.write_corpus = slowly("speech", synthetic_speech.write_corpus)
print("ready", flush=True)
sys.stdin.readline()
corpus = timit.load(root, cache_dir=cache / "features", progress=False)
print("features", hashlib.sha256(corpus.features.tobytes() + corpus.states.tobytes()).hexdigest())
written = synthetic_speech.find_or_write(cache / "speech", 1, 1, 0, False)
print("files", len(list(written.rglob("*.wav"))))
try:
    network = slowly("numbers", lambda images: images.reshape(len(images), 12).astype(float))
    extraction.make(extraction.Settings("cifar10", 1, 0, 5), 0, cache / "a.npz", images, lambda: network)
except DataError as error:
    print(error)
"""


def start(root, cache, seconds):
    command = [sys.executable, "-c", TOGETHER, str(root), str(cache), str(seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], text=True, **pipes)


def outputs(children):
    """Lets all of them go at once; the lines of each."""
    for child in children:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    found = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0] * len(children), found
    return [out.splitlines() for out, _ in found]


def features_of(root):
    corpus = load(root)
    return f"features {hashlib.sha256(corpus.features.tobytes() + corpus.states.tobytes()).hexdigest()}"


@pytest.mark.parametrize("before", ["empty", "broken"])
def test_of_two_processes_one_fills_the_caches_and_both_read_them(own, tmp_path, before):
    cache = tmp_path / "cache"
    if before == "broken":
        load(own, cache_dir=cache / "features")
        (spoiled_file,) = (cache / "features").glob("*/features.npy")
        spoiled_file.write_bytes(spoiled_file.read_bytes()[:-4])
    lines = outputs([start(own, cache, 0.2) for _ in "ab"])
    for name in ("made features", "made speech"):
        assert sum(line.count(name) for line in lines) == 1, lines
    for each in lines:
        assert features_of(own) in each
        assert "files 3" in each
    refused = [line for each in lines for line in each if "a.npz is" in line]
    assert len(refused) == 1, lines
    assert re.search(r"a\.npz is (being made by another process; wait|already there; remove it)", refused[0])
    assert cifar_features.load(cache / "a.npz").features.shape == (10, 12)
    left = sorted(p.name for place in (cache, cache / "features", cache / "speech") for p in place.iterdir())
    assert len(left) == 5, left  # a.npz, the two folders, and an entry in each: no locks, no drafts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(own, cache_dir=cache / "features")


def test_a_killed_process_does_not_leave_its_lock_held(own, tmp_path):
    killed, waiting = start(own, tmp_path, 1000), start(own, tmp_path, 0)
    try:
        assert killed.stdout.readline() == "ready\n"
        killed.stdin.write("\n")
        killed.stdin.flush()
        assert killed.stdout.readline() == "made features\n"
        assert waiting.stdout.readline() == "ready\n"
        waiting.stdin.write("\n")
        waiting.stdin.flush()
        assert "is being made by another process; waiting for it" in waiting.stderr.readline()
        killed.kill()
        out, err = waiting.communicate(timeout=120)
        assert waiting.returncode == 0, err
        assert features_of(own) in out.splitlines()
    finally:
        for child in (killed, waiting):
            child.kill()
            child.communicate()


def test_a_lock_that_is_a_link_elsewhere_is_refused(own, tmp_path):
    cache, elsewhere = tmp_path / "cache", tmp_path / "mine.txt"
    elsewhere.write_text("keep")
    load(own, cache_dir=cache)
    (entry,) = cache.iterdir()
    shutil.rmtree(entry)
    entry.with_name(entry.name + ".lock").symlink_to(elsewhere)
    with pytest.raises(DataError, match=r"cache_dir .*cache cannot be used"):
        load(own, cache_dir=cache)
    assert elsewhere.read_text() == "keep"


def test_who_waited_for_a_lock_that_was_removed_takes_the_new_one(tmp_path):
    file, found = tmp_path / "a.lock", []
    before = os.open(file, os.O_RDWR | os.O_CREAT)
    fcntl.flock(before, fcntl.LOCK_EX)
    waiting = threading.Thread(target=lambda: found.append(locks._locked(file, wait=True)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    file.unlink()
    file.touch()  # of a third process
    os.close(before)
    waiting.join(30)
    assert os.path.samestat(os.fstat(found[0]), file.stat())
    os.close(found[0])
