"""Several processes that fill one cache: one of them builds each entry, and no entry is spoilt."""

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

FILL_CACHES = """
import hashlib, sys, time
from pathlib import Path
from data.downloads import Images
from data.speech import synthetic, timit
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
    return Images(np.random.default_rng(0).integers(0, 256, (20, 2, 2, 3), np.uint8), labels, tuple("0123456789"))

timit._read_all = slowly("features", timit._read_all)
synthetic.write_corpus = slowly("speech", synthetic.write_corpus)
print("ready", flush=True)
sys.stdin.readline()
for name in ("features", "broken"):
    corpus = timit.load(root, cache_dir=cache / name, progress=False)
    print("features", hashlib.sha256(corpus.features.tobytes() + corpus.states.tobytes()).hexdigest())
written = synthetic.find_or_write(cache / "speech", 1, 1, 0, False)
print("files", len(list(written.rglob("*.wav"))))
try:
    network = slowly("numbers", lambda images: images.reshape(len(images), 12).astype(float))
    extraction.make(extraction.Settings("cifar10", 1, 0, 5), 0, cache / "a.npz", images, lambda: network)
except DataError as error:
    print(error)
"""


def start(root, cache, seconds):
    """Starts a process that waits for a line before it fills the caches, taking `seconds` for each entry."""
    command = [sys.executable, "-c", FILL_CACHES, str(root), str(cache), str(seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], text=True, **pipes)


def release(child):
    child.stdin.write("\n")
    child.stdin.flush()


def outputs(children):
    """Releases all processes at once; returns the lines that each prints."""
    for child in children:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
    for child in children:
        release(child)
    streams = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0] * len(children), streams
    return [out.splitlines() for out, _ in streams]


def features_line(root):
    corpus = load(root)
    return f"features {hashlib.sha256(corpus.features.tobytes() + corpus.states.tobytes()).hexdigest()}"


def test_one_of_two_processes_fills_empty_and_broken_caches_and_both_read_them(breakable_corpus, tmp_path):
    cache = tmp_path / "cache"
    load(breakable_corpus, cache_dir=cache / "broken")
    (features_file,) = (cache / "broken").glob("*/features.npy")
    features_file.write_bytes(features_file.read_bytes()[:-4])
    lines = outputs([start(breakable_corpus, cache, 0.2) for _ in range(2)])
    for name, times in (("made features", 2), ("made speech", 1)):
        assert sum(output.count(name) for output in lines) == times, lines
    for output in lines:
        assert output.count(features_line(breakable_corpus)) == 2
        assert "files 3" in output
    refusals = [line for output in lines for line in output if "a.npz " in line]
    assert len(refusals) == 1, lines
    assert re.search(r"a\.npz (is being made by another process; wait|already exists; remove it)", refusals[0])
    assert cifar_features.load(cache / "a.npz").features.shape == (10, 12)
    assert sorted(path.name for path in cache.iterdir()) == ["a.npz", "broken", "features", "speech"], "locks or drafts left"
    for folder in ("broken", "features", "speech"):
        assert len(list((cache / folder).iterdir())) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for folder in ("broken", "features"):
            load(breakable_corpus, cache_dir=cache / folder)


def test_a_killed_process_releases_its_lock(breakable_corpus, tmp_path):
    killed, waiting = start(breakable_corpus, tmp_path, 1000), start(breakable_corpus, tmp_path, 0)
    try:
        assert killed.stdout.readline() == "ready\n"
        release(killed)
        assert killed.stdout.readline() == "made features\n"
        assert waiting.stdout.readline() == "ready\n"
        release(waiting)
        assert "is being made by another process; waiting for it" in waiting.stderr.readline()
        killed.kill()
        out, err = waiting.communicate(timeout=120)
        assert waiting.returncode == 0, err
        assert features_line(breakable_corpus) in out.splitlines()
    finally:
        for child in (killed, waiting):
            child.kill()
            child.communicate()


def test_a_lock_that_is_a_symbolic_link_is_refused(breakable_corpus, tmp_path):
    cache, target = tmp_path / "cache", tmp_path / "mine.txt"
    target.write_text("keep")
    load(breakable_corpus, cache_dir=cache)
    (entry,) = cache.iterdir()
    shutil.rmtree(entry)
    entry.with_name(entry.name + ".lock").symlink_to(target)
    with pytest.raises(DataError, match=r"cache_dir .*cache cannot be used"):
        load(breakable_corpus, cache_dir=cache)
    assert target.read_text() == "keep"


def test_a_process_that_waited_for_a_removed_lock_takes_the_new_one(tmp_path):
    file, locked = tmp_path / "a.lock", []
    removed = os.open(file, os.O_RDWR | os.O_CREAT)
    fcntl.flock(removed, fcntl.LOCK_EX)
    waiting = threading.Thread(target=lambda: locked.append(locks._locked(file, wait=True)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    file.unlink()
    file.touch()  # by a third process
    os.close(removed)
    waiting.join(30)
    assert os.path.samestat(os.fstat(locked[0]), file.stat())
    os.close(locked[0])
