"""Small corpora of noise, read whole and broken in every way, and a real one where there is one."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from data.errors import DataError
from data.speech import timit
from data.speech.audio import read_wave, write_riff
from data.speech.features import features
from data.speech.phones import PHONES, frame_labels, read_phn
from tests.support.corpora import ARRAYS, ldc, load, same


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
