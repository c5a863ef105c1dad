"""The feature cache: equal arrays, rebuilt when a file changes or the entry is broken, never half written."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from data.errors import DataError
from data.speech import cache, timit
from data.speech.audio import write_riff
from tests.support.corpora import assert_same_corpus, load


@pytest.fixture
def strict():
    """Turns warnings (that the cache is broken) into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def forbid_reading(monkeypatch):
    def refuse(*args):
        raise AssertionError("read again")

    monkeypatch.setattr(timit, "_read", refuse)


@pytest.mark.usefixtures("strict")
def test_a_hit_gives_equal_arrays_without_reading_speech(breakable_corpus, tmp_path, monkeypatch):
    (breakable_corpus / "dr1-fabc0" / "sx1.phn").unlink()
    options = {"cache_dir": tmp_path / "a" / "cache", "skip_bad_files": True}
    uncached, built = load(breakable_corpus, skip_bad_files=True), load(breakable_corpus, **options)
    forbid_reading(monkeypatch)
    hit = load(breakable_corpus, **options)
    assert_same_corpus(uncached, built)
    assert_same_corpus(uncached, hit)
    assert isinstance(hit.features, np.memmap)
    assert not hit.features.flags.writeable
    (folder,) = options["cache_dir"].iterdir()
    assert sorted(p.name for p in folder.iterdir()) == ["features.npy", "index.npz", "meta.json"]


def change_time(utterance):
    os.utime(utterance.wave, ns=(0, utterance.wave.stat().st_mtime_ns + 1))


def change_size(utterance):
    utterance.phn.write_text(utterance.phn.read_text() + "\n")


def rename(utterance):
    for file in (utterance.wave, utterance.phn):
        file.rename(file.with_stem("sx9"))


def remove(utterance):
    utterance.wave.unlink()
    utterance.phn.unlink()


@pytest.mark.parametrize("change", [change_time, change_size, rename, remove])
@pytest.mark.usefixtures("strict")
def test_the_cache_is_stale_when_a_file_changes(breakable_corpus, tmp_path, monkeypatch, change):
    load(breakable_corpus, cache_dir=tmp_path / "cache")
    change(timit.find(breakable_corpus)[-1])
    assert_same_corpus(load(breakable_corpus), load(breakable_corpus, cache_dir=tmp_path / "cache"))
    change(timit.find(breakable_corpus)[0])
    forbid_reading(monkeypatch)
    with pytest.raises(AssertionError, match="read again"):
        load(breakable_corpus, cache_dir=tmp_path / "cache")


@pytest.mark.usefixtures("strict")
def test_other_options_and_other_versions_have_separate_entries(noise_corpus, tmp_path, monkeypatch):
    load(noise_corpus, cache_dir=tmp_path)
    assert len(load(noise_corpus, include_sa=True, cache_dir=tmp_path).utterances) == 64
    load(noise_corpus, skip_bad_files=True, cache_dir=tmp_path)
    bands, cepstra = (load(noise_corpus, kind=kind, cache_dir=tmp_path).features for kind in ("bands", "cepstra"))
    assert not np.allclose(bands, cepstra)
    monkeypatch.setattr(timit.features, "VERSION", 99)
    load(noise_corpus, cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def other_meta(path):
    path.write_text(json.dumps({"checksums": {}, "notes": []}))


BREAK = {
    "a flipped bit in the features": ("features.npy", flip),
    "truncated features": ("features.npy", lambda p: p.write_bytes(p.read_bytes()[:-4])),
    "no features": ("features.npy", Path.unlink),
    "a flipped bit in the index": ("index.npz", flip),
    "an empty index": ("index.npz", lambda p: p.write_bytes(b"")),
    "no meta": ("meta.json", Path.unlink),
    "meta that is not JSON": ("meta.json", lambda p: p.write_bytes(b"{\xff")),
    "meta that is a list": ("meta.json", lambda p: p.write_text("[1]")),
    "meta without checksums": ("meta.json", other_meta),
}


@pytest.mark.parametrize("kind", BREAK)
def test_a_broken_cache_is_built_again(breakable_corpus, tmp_path, kind):
    features = load(breakable_corpus, cache_dir=tmp_path / "cache").features.copy()
    (folder,) = (tmp_path / "cache").iterdir()
    name, spoil = BREAK[kind]
    spoil(folder / name)
    with pytest.warns(UserWarning, match=rf"{folder.name} is broken \(.*\) and is built again"):
        rebuilt = load(breakable_corpus, cache_dir=tmp_path / "cache")
    np.testing.assert_array_equal(rebuilt.features, features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_corpus(rebuilt, load(breakable_corpus, cache_dir=tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) == [folder]


def test_pickles_in_the_cache_are_not_read(breakable_corpus, tmp_path):
    load(breakable_corpus, cache_dir=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    np.savez(folder / "index.npz", kept=np.array([{}], dtype=object))
    meta = json.loads((folder / "meta.json").read_text())
    meta["checksums"]["index.npz"] = cache.checksum(folder / "index.npz")
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.warns(UserWarning, match="allow_pickle=False"):
        load(breakable_corpus, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, DataError("bad")])
def test_an_interrupted_build_leaves_nothing(breakable_corpus, tmp_path, monkeypatch, stop):
    real, calls = timit._read, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 4:
            raise stop
        return real(*args)

    monkeypatch.setattr(timit, "_read", interrupted)
    with pytest.raises((KeyboardInterrupt, DataError)):
        load(breakable_corpus, cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


FAULTS = """
import errno, os, sys, warnings
from pathlib import Path
import numpy as np
from data.errors import DataError
from data.speech import cache

place, rows = Path(sys.argv[1]), np.arange(12, dtype=np.float32).reshape(4, 3)
fault, left = None, 0

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def hook(event, arguments):
    global left
    if not fault or event not in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"):
        return
    takes_space = event in ("os.rename", "os.mkdir") or (event == "open" and arguments[2] & WRITES)
    if str(place) in str(arguments[0]) and (takes_space or fault == "kill"):
        left -= 1
        if left == 0 and fault == "kill":
            os._exit(9)
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")

def make():
    stored = cache.cached(place / "entry", 3, lambda write: (write(rows), ({"states": np.arange(4)}, ["a note"]))[1])
    assert np.array_equal(stored.features, rows) and np.array_equal(stored.arrays["states"], np.arange(4))

def fails(number, kind):
    global fault, left
    process = os.fork()
    if process == 0:
        fault, left = kind, number
        try:
            make()
        except DataError:
            os._exit(1)
        os._exit(0 if left > 0 else 2)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

sys.addaudithook(hook)
warnings.simplefilter("error")  # that an entry is broken
for kind in ("ENOSPC", "kill"):
    number, code = 1, None
    while code != 0:
        code = fails(number, kind)
        assert code in {"ENOSPC": (0, 1, 2), "kill": (0, 9)}[kind], (kind, number, code)
        make()
        assert kind == "kill" or code == 2 or [path.name for path in place.iterdir()] == ["entry"], list(place.iterdir())
        for path in sorted(place.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        number += 1
    print(kind, number - 2)
"""


def test_every_file_operation_of_a_build_fails_once_by_an_error_or_a_kill(tmp_path):
    command = [sys.executable, "-c", FAULTS, str(tmp_path)]
    run = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    counts = {kind: int(count) for kind, count in map(str.split, run.stdout.splitlines())}
    assert min(counts.values()) >= 8
    assert counts.keys() == {"ENOSPC", "kill"}


@pytest.mark.usefixtures("strict")
def test_of_two_simultaneous_builds_the_second_takes_the_entry_of_the_first(breakable_corpus, tmp_path, monkeypatch):
    folder, real, first = tmp_path / "cache", timit._read_all, []

    def build_twice(*args):
        if not first:
            first.append(None)
            first[0] = load(breakable_corpus, cache_dir=folder)
        return real(*args)

    monkeypatch.setattr(timit, "_read_all", build_twice)
    second = load(breakable_corpus, cache_dir=folder)
    assert_same_corpus(second, first[0])
    assert len(list(folder.iterdir())) == 1


def test_a_cache_that_cannot_be_written(breakable_corpus, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cache_dir .*file cannot be used \(.*\); choose a writable one with enough space"):
        load(breakable_corpus, cache_dir=tmp_path / "file")


def test_a_truncated_sentence_is_named_and_leaves_the_cache_unchanged(breakable_corpus, tmp_path):
    options = {"cache_dir": tmp_path / "cache"}
    load(breakable_corpus, **options)
    files = [file for file in options["cache_dir"].rglob("*") if file.is_file()]
    before = [file.read_bytes() for file in files]
    path = breakable_corpus / "dr2-mabc1" / "sx2.wav"
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    with pytest.raises(DataError, match=r"sx2\.wav has \d+ samples, but its header says \d+; it is cut off"):
        load(breakable_corpus, **options)
    assert sorted(file for file in options["cache_dir"].rglob("*") if file.is_file()) == sorted(files)
    assert [file.read_bytes() for file in files] == before
    assert len(load(breakable_corpus, skip_bad_files=True, **options).utterances) == 5
    write_riff(path, np.frombuffer(content[44:], np.int16))
    assert len(load(breakable_corpus, **options).utterances) == 6
