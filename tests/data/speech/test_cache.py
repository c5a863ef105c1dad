"""Features kept on disk: equal, stale when a file changes, rebuilt when broken, never half there."""

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from data.errors import DataError
from data.speech import cache as speech_cache
from data.speech import timit
from tests.support.corpora import load, same


@pytest.fixture
def strict():
    """A warning (the cache was broken) is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def no_reading(monkeypatch):
    def refuse(*args):
        raise AssertionError("read again")

    monkeypatch.setattr(timit, "_read", refuse)


@pytest.mark.usefixtures("strict")
def test_a_hit_gives_equal_arrays_and_reads_no_speech(own, tmp_path, monkeypatch):
    (own / "dr1-fabc0" / "sx1.phn").unlink()
    options = {"cache_dir": tmp_path / "a" / "cache", "skip_bad_files": True}
    plain, built = load(own, skip_bad_files=True), load(own, **options)
    no_reading(monkeypatch)
    hit = load(own, **options)
    same(plain, built)
    same(plain, hit)
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
def test_the_cache_is_stale_when_a_file_changes(own, tmp_path, monkeypatch, change):
    load(own, cache_dir=tmp_path / "cache")
    change(timit.find(own)[-1])
    same(load(own), load(own, cache_dir=tmp_path / "cache"))
    change(timit.find(own)[0])
    no_reading(monkeypatch)
    with pytest.raises(AssertionError, match="read again"):
        load(own, cache_dir=tmp_path / "cache")


@pytest.mark.usefixtures("strict")
def test_other_options_and_other_features_have_caches_of_their_own(small, tmp_path, monkeypatch):
    load(small, cache_dir=tmp_path)
    assert len(load(small, include_sa=True, cache_dir=tmp_path).utterances) == 64
    load(small, skip_bad_files=True, cache_dir=tmp_path)
    bands, cepstra = (load(small, kind=kind, cache_dir=tmp_path).features for kind in ("bands", "cepstra"))
    assert not np.allclose(bands, cepstra)
    monkeypatch.setattr(timit.speech_features, "VERSION", 99)
    load(small, cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def other_meta(path):
    path.write_text(json.dumps({"checksums": {}, "notes": []}))


BREAK = {
    "a bit of the features": ("features.npy", flip),
    "the features cut off": ("features.npy", lambda p: p.write_bytes(p.read_bytes()[:-4])),
    "no features": ("features.npy", Path.unlink),
    "a bit of the index": ("index.npz", flip),
    "an empty index": ("index.npz", lambda p: p.write_bytes(b"")),
    "no meta": ("meta.json", Path.unlink),
    "meta that is no JSON": ("meta.json", lambda p: p.write_bytes(b"{\xff")),
    "meta that is a list": ("meta.json", lambda p: p.write_text("[1]")),
    "meta without checksums": ("meta.json", other_meta),
}


@pytest.mark.parametrize("kind", BREAK)
def test_a_broken_cache_is_built_again(own, tmp_path, kind):
    expected = load(own, cache_dir=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    name, spoil = BREAK[kind]
    good = expected.features.copy()
    spoil(folder / name)
    with pytest.warns(UserWarning, match=rf"{folder.name} is broken \(.*\); it is built again"):
        again = load(own, cache_dir=tmp_path / "cache")
    np.testing.assert_array_equal(again.features, good)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(again, load(own, cache_dir=tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) == [folder]


def test_pickles_in_the_cache_are_not_read(own, tmp_path):
    load(own, cache_dir=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    np.savez(folder / "index.npz", kept=np.array([{}], dtype=object))
    meta = json.loads((folder / "meta.json").read_text())
    meta["checksums"]["index.npz"] = speech_cache.checksum(folder / "index.npz")
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.warns(UserWarning, match="allow_pickle=False"):
        load(own, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, DataError("bad")])
def test_an_interrupted_build_leaves_nothing(own, tmp_path, monkeypatch, stop):
    real, calls = timit._read, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 4:
            raise stop
        return real(*args)

    monkeypatch.setattr(timit, "_read", interrupted)
    with pytest.raises((KeyboardInterrupt, DataError)):
        load(own, cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.usefixtures("strict")
def test_of_two_that_build_at_once_the_second_takes_what_the_first_made(own, tmp_path, monkeypatch):
    cache, real, inner = tmp_path / "cache", timit._read_all, []

    def both(*args):
        if not inner:
            inner.append(None)
            inner[0] = load(own, cache_dir=cache)
        return real(*args)

    monkeypatch.setattr(timit, "_read_all", both)
    outer = load(own, cache_dir=cache)
    same(outer, inner[0])
    assert len(list(cache.iterdir())) == 1


def test_a_cache_that_cannot_be_written(own, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cache_dir .*file cannot be used \(.*\); choose one with space to write to"):
        load(own, cache_dir=tmp_path / "file")
