"""Small corpora of noise in both layouts: found, split, read, kept, and broken in every way."""

import json
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from data import speech_cache, timit, timit_files
from data.audio import read_wave, write_riff, write_sphere
from data.errors import DataError
from data.phones import PHONES, frame_labels, read_phn
from data.speech_features import features

ARRAYS = ("features", "offsets", "states", "segments", "phones", "phone_offsets")


def write_sentence(wave, phn, seed, sphere=False):
    """Noise of about 0.2 s with five phones; the transcription ends a few samples before or after the sound."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.integers(300, 1000, 5))
    wave.parent.mkdir(parents=True, exist_ok=True)
    sound = (500 * rng.standard_normal(ends[-1] + rng.integers(-5, 400))).astype(np.int16)
    (write_sphere if sphere else write_riff)(wave, sound)
    begins = [0, *ends[:-1]]
    phn.write_text("".join(f"{b} {e} {rng.choice(PHONES)}\n" for b, e in zip(begins, ends, strict=True)))


def flat(root, speakers=16, sentences=("sa1", "si10", "sx3", "sx40")):
    for s in range(speakers):
        for i, sentence in enumerate(sentences):
            stem = root / f"dr{1 + s % 8}-{'fm'[s % 2]}abc{s}" / sentence
            write_sentence(stem.with_suffix(".wav"), stem.with_suffix(".phn"), 100 * s + i)
    return root


def ldc(root, case=str.upper):
    """Three speakers to train on, two of TEST, one of them of the core test set."""
    for part, region, speaker in (
        ("train", "dr1", "fcjf0"),
        ("train", "dr1", "mdac0"),
        ("train", "dr2", "faem0"),
        ("test", "dr1", "mdab0"),
        ("test", "dr1", "faks0"),
    ):
        for i, sentence in enumerate(("sa1", "sx37")):
            folder = root.joinpath(*map(case, (part, region, speaker)))
            names = [case(sentence + kind) for kind in (".wav", ".phn")]
            write_sentence(folder / names[0], folder / names[1], hash_of(speaker) + i, sphere=True)
    return root


def hash_of(name):
    return sum(map(ord, name))


def load(root, **options):
    return timit.load(root, progress=False, **options)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A flat corpus that no test changes."""
    return flat(tmp_path_factory.mktemp("flat"))


@pytest.fixture
def own(tmp_path):
    """A smaller one that a test may break."""
    return flat(tmp_path / "own", 3, ("sx1", "sx2"))


# finding


@pytest.mark.parametrize("case", [str.upper, str.lower, str.title])
@pytest.mark.parametrize("above", ["", "TIMIT", "timit/Timit"])
def test_the_ldc_layout_in_any_case(tmp_path, case, above):
    ldc(tmp_path / above, case)
    found = timit.find(tmp_path)
    assert [(u.part, u.speaker, u.sentence) for u in found] == [
        ("test", "faks0", "sx37"),
        ("test", "mdab0", "sx37"),
        ("train", "fcjf0", "sx37"),
        ("train", "mdac0", "sx37"),
        ("train", "faem0", "sx37"),
    ]
    assert all(u.wave.is_file() and u.phn.is_file() for u in found)
    assert len(timit.find(tmp_path, include_sa=True)) == 10


def test_the_flat_layout(small):
    found = timit.find(small)
    assert len(found) == 48
    assert found[0] == timit.Utterance(
        "fabc0", "si10", "", small / "dr1-fabc0" / "si10.wav", small / "dr1-fabc0" / "si10.phn"
    )
    assert {u.sentence for u in found} == {"si10", "sx3", "sx40"}
    assert {u.sentence for u in timit.find(small, include_sa=True)} == {"sa1", "si10", "sx3", "sx40"}


def test_other_files_are_no_sentences(own):
    before = timit.find(own)
    (own / "dr1-fabc0" / "sx1.wav.wav").write_bytes(b"a copy")
    (own / "dr1-fabc0" / "._sx1.wav").write_bytes(b"what some systems leave behind")
    (own / "dr1-fabc0" / "sx1.txt").write_text("words")
    (own / "doc").mkdir()
    (own / "readme.doc").write_text("words")
    assert timit.find(own) == before


def test_nothing_to_find(tmp_path):
    with pytest.raises(DataError, match=r"none is not a folder; give the one that holds TRAIN and TEST"):
        timit.find(tmp_path / "none")
    with pytest.raises(DataError, match=r"neither TRAIN/DR1/FCJF0/SX37\.WAV nor dr1-fcjf0/sx37\.wav"):
        timit.find(tmp_path)
    flat(tmp_path, 1, ("sa1", "sa2"))
    with pytest.raises(DataError, match=r"only SA sentences \(2 of them\); read them with include_sa"):
        timit.find(tmp_path)


def test_a_folder_that_cannot_be_read(own, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DataError, match=r"own cannot be read \(Permission denied\)"):
        timit.find(own)


def test_a_sentence_that_is_there_twice(own):
    (own / "dr1-fabc0" / "SX1.WAV").write_bytes(b"")
    if len(list((own / "dr1-fabc0").glob("*1.[wW]*"))) < 2:
        pytest.skip("upper and lower case are the same on this disk")
    with pytest.raises(DataError, match=r"SX1\.WAV and sx1\.wav are the same sentence twice"):
        timit.find(own)


# splitting


def speakers_of(found, parts):
    return [{found[i].speaker for i in part} for part in parts]


def test_the_ldc_split(tmp_path):
    found = timit.find(ldc(tmp_path), include_sa=True)
    parts = timit.split(found)
    assert speakers_of(found, parts) == [{"fcjf0", "mdac0", "faem0"}, {"faks0"}, {"mdab0"}]
    assert sorted(np.concatenate(parts)) == list(range(10))
    assert len(timit_files.CORE_TEST) == 24
    with pytest.raises(DataError, match="fold is 1, but the split of the whole corpus is a fixed one; choose 0"):
        timit.split(found, 1)
    with pytest.raises(DataError, match="no utterances of the core test set"):
        timit.split([u for u in found if u.speaker != "mdab0"])


def people(count):
    return [timit.Utterance(f"m{s:03d}", f"sx{i}", "", Path(), Path()) for s in range(count) for i in range(2)]


@pytest.mark.parametrize(("count", "some", "folds"), [(16, 3, 5), (3, 1, 3), (5, 1, 5), (8, 2, 4), (32, 6, 5), (160, 30, 5)])
def test_the_folds_of_a_flat_corpus(count, some, folds):
    found, tested = people(count), []
    for fold in range(folds):
        parts = timit.split(found, fold)
        assert sorted(np.concatenate(parts)) == list(range(len(found)))
        train, validation, test = speakers_of(found, parts)
        assert not (train & validation | train & test | validation & test)
        assert (len(train), len(validation), len(test)) == (count - 2 * some, some, some)
        tested.append(test)
    assert len(set.union(*tested)) == folds * some
    for fold in (-1, folds):
        with pytest.raises(DataError, match=f"fold is {fold}; {count} speakers make {folds} folds: choose 0 to {folds - 1}"):
            timit.split(found, fold)


def test_a_fold_validates_on_what_the_next_one_tests_on():
    found = people(16)
    parts = [speakers_of(found, timit.split(found, fold)) for fold in range(5)]
    assert all(parts[fold][1] == parts[fold + 1][2] for fold in range(4))
    assert [p[2] for p in parts] != [{f"m{s:03d}" for s in range(3 * f, 3 * f + 3)} for f in range(5)]  # shuffled


def test_the_split_does_not_depend_on_the_order_of_the_utterances():
    found = people(16)
    assert speakers_of(found, timit.split(found, 2)) == speakers_of(found[::-1], timit.split(found[::-1], 2))


def test_too_few_speakers():
    with pytest.raises(DataError, match="there are 2 speakers; training, validation and testing need 3"):
        timit.split(people(2))


# reading


def test_the_corpus_is_its_utterances_one_after_the_other(small):
    corpus = load(small, include_sa=True)
    assert len(corpus.utterances) == 64
    assert corpus.skipped == []
    assert [getattr(corpus, name).dtype for name in ARRAYS] == [np.float32, np.int64, np.uint8, np.int32, np.uint8, np.int64]
    for u, utterance in enumerate(corpus.utterances):
        segments = read_phn(utterance.phn)
        numbers = features(read_wave(utterance.wave))
        states, which = frame_labels(segments, len(numbers))
        frames, phones = (slice(o[u], o[u + 1]) for o in (corpus.offsets, corpus.phone_offsets))
        np.testing.assert_array_equal(corpus.features[frames], numbers[: len(states)])
        np.testing.assert_array_equal(corpus.states[frames], states)
        np.testing.assert_array_equal(corpus.segments[frames], which + corpus.phone_offsets[u])
        assert corpus.phones[phones].tolist() == [s.phone for s in segments]
    assert corpus.offsets[-1] == len(corpus.features) == len(corpus.states) == len(corpus.segments)
    np.testing.assert_array_equal(corpus.phones[corpus.segments], corpus.states // 3)


def test_sphere_and_riff_give_the_same(tmp_path):
    one, two = load(ldc(tmp_path / "sphere")), timit.find(ldc(tmp_path / "riff"))
    for utterance in two:
        write_riff(utterance.wave, read_wave(utterance.wave))
    np.testing.assert_array_equal(one.features, load(tmp_path / "riff").features)


BAD = {
    "no transcription": (lambda u: u.phn.unlink(), r"sx2\.phn is not there"),
    "no sound": (lambda u: u.wave.unlink(), r"sx2\.wav is not there"),
    "empty transcription": (lambda u: u.phn.write_text(""), r"sx2\.phn is empty"),
    "empty sound": (lambda u: u.wave.write_bytes(b""), r"sx2\.wav is empty"),
    "cut off": (lambda u: u.wave.write_bytes(u.wave.read_bytes()[:-9]), r"sx2\.wav has \d+ samples, but its header says"),
    "unknown phone": (lambda u: u.phn.write_text("0 300 h#\n300 900 xx\n"), r"sx2\.phn, line 2: 'xx' is not one of the 61"),
    "gap": (lambda u: u.phn.write_text("0 300 h#\n301 900 aa\n"), r"sx2\.phn, line 2: .* gap"),
    "overlap": (lambda u: u.phn.write_text("0 300 h#\n299 900 aa\n"), r"sx2\.phn, line 2: .* overlaps"),
    "too short a sound": (lambda u: write_riff(u.wave, np.ones(399, np.int16)), r"sx2\.wav: the samples are int16\[399\]"),
    "too short a transcription": (
        lambda u: u.phn.write_text("0 200 h#\n"),
        r"sx2\.phn ends at sample 200, before the middle",
    ),
    "another sentence": (
        lambda u: u.phn.write_text("0 99000 h#\n"),
        r"sx2\.phn goes on to sample 99000, but sx2\.wav has \d+",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_an_error_or_left_out(own, kind):
    spoil, message = BAD[kind]
    whole = load(own)
    spoil(whole.utterances[3])
    with pytest.raises(DataError, match=rf"dr2-mabc1.{message}.*, or leave such sentences out with skip_bad_files\.$"):
        load(own)
    corpus = load(own, skip_bad_files=True)
    assert corpus.utterances == [u for i, u in enumerate(whole.utterances) if i != 3]
    assert len(corpus.skipped) == 1
    assert re.search(message, corpus.skipped[0])
    rest = timit.frames_of(whole, np.array([0, 1, 2, 4, 5]))
    np.testing.assert_array_equal(corpus.features, whole.features[rest])
    np.testing.assert_array_equal(corpus.phones[corpus.segments], whole.phones[whole.segments[rest]])


def test_nothing_left_is_an_error_even_when_bad_files_are_skipped(own):
    for utterance in timit.find(own):
        utterance.phn.unlink()
    with pytest.raises(DataError, match=r"all 6 sentences are bad.*the first: .*sx1\.phn is not there"):
        load(own, skip_bad_files=True)


def test_progress_goes_to_stderr_and_can_be_left_out(own, capfd):
    load(own)
    assert capfd.readouterr() == ("", "")
    timit.load(own)
    out, err = capfd.readouterr()
    assert out == ""
    assert "6/6" in err


# the cache


def same(one, two):
    assert one.utterances == two.utterances
    assert one.skipped == two.skipped
    for name in ARRAYS:
        first, second = getattr(one, name), getattr(two, name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


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


# what models take


def test_the_scaling_is_that_of_the_chosen_frames(small):
    corpus = load(small)
    chosen = np.array([3, 7, 20])
    frames = corpus.features[timit.frames_of(corpus, chosen)].astype(np.float64)
    mean, deviation = timit.scaling(corpus, chosen)
    assert (mean.dtype, deviation.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(mean, frames.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(deviation, frames.std(axis=0), rtol=1e-5)
    with pytest.raises(DataError, match="no utterances to scale by"):
        timit.scaling(corpus, chosen[:0])


def test_a_feature_that_never_changes_has_deviation_1(small):
    corpus = load(small)
    constant = corpus.features.copy()
    constant[:, 5] = np.float32(0.1)
    mean, deviation = timit.scaling(corpus._replace(features=constant), np.arange(48))
    assert (mean[5], deviation[5]) == (np.float32(0.1), 1)
    assert (deviation != 1).sum() == 122


def test_the_frames_of_utterances_come_in_the_order_asked_for(small):
    corpus = load(small)
    o = corpus.offsets
    found = timit.frames_of(corpus, np.array([5, 2]))
    assert found.dtype == np.int32
    assert found.tolist() == [*range(o[5], o[6]), *range(o[2], o[3])]
    assert timit.frames_of(corpus, np.array([], int)).shape == (0,)


def test_every_frame_knows_the_ends_of_its_sentence(small):
    corpus = load(small)
    first, last = timit.bounds(corpus)
    assert (first.dtype, last.dtype) == (np.int32, np.int32)
    sentence = np.searchsorted(corpus.offsets, np.arange(len(corpus.features)), side="right") - 1
    np.testing.assert_array_equal(first, corpus.offsets[sentence])
    np.testing.assert_array_equal(last, corpus.offsets[sentence + 1] - 1)


# the real thing


@pytest.fixture(scope="module")
def real():
    if not (where := os.environ.get("RFHO2_TIMIT_DIR")):
        pytest.skip("RFHO2_TIMIT_DIR is not set; TIMIT is not distributed with this project")
    return Path(where).expanduser()


def test_the_real_corpus_is_whole_and_its_cache_the_same(real, tmp_path):
    built = load(real, include_sa=True, cache_dir=tmp_path)
    same(built, load(real, include_sa=True, cache_dir=tmp_path))
    assert built.skipped == []
    assert np.isfinite(built.features).all()
    np.testing.assert_array_equal(built.phones[built.segments], built.states // 3)
    assert set(built.phones) == set(range(61))
    assert {PHONES[p] for p in built.phones[built.phone_offsets[:-1]]} == {"h#"}
    counts = [len(timit.frames_of(built, part)) for part in timit.split(built.utterances)]
    assert counts[0] > max(counts[1:])
    assert sum(counts) == len(built.states)
