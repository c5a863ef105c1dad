"""Corpora of noise, intact and broken in every way, and a real corpus if there is one."""

import re

import numpy as np
import pytest

from data.errors import DataError
from data.speech import timit
from data.speech.audio import read_wave, write_riff
from data.speech.features import features
from data.speech.phones import PHONES, frame_labels, read_phn
from tests.support.corpora import ARRAYS, assert_same_corpus, load, write_ldc_corpus


@pytest.fixture(scope="module")
def corpus(noise_corpus):
    return load(noise_corpus)


def test_a_corpus_is_the_concatenation_of_its_utterances(noise_corpus):
    corpus = load(noise_corpus, include_sa=True)
    assert len(corpus.utterances) == 64
    assert corpus.skipped == []
    assert [getattr(corpus, name).dtype for name in ARRAYS] == [np.float32, np.int64, np.uint8, np.int32, np.uint8, np.int64]
    for u, utterance in enumerate(corpus.utterances):
        segments = read_phn(utterance.phn)
        expected = features(read_wave(utterance.wave))
        states, frame_segments = frame_labels(segments, len(expected))
        frames, phones = (slice(o[u], o[u + 1]) for o in (corpus.offsets, corpus.phone_offsets))
        np.testing.assert_array_equal(corpus.features[frames], expected[: len(states)])
        np.testing.assert_array_equal(corpus.states[frames], states)
        np.testing.assert_array_equal(corpus.segments[frames], frame_segments + corpus.phone_offsets[u])
        assert corpus.phones[phones].tolist() == [s.phone for s in segments]
    assert corpus.offsets[-1] == len(corpus.features) == len(corpus.states) == len(corpus.segments)
    np.testing.assert_array_equal(corpus.phones[corpus.segments], corpus.states // 3)


def test_sphere_and_riff_files_give_the_same_features(tmp_path):
    sphere = load(write_ldc_corpus(tmp_path / "sphere"))
    for utterance in timit.find(write_ldc_corpus(tmp_path / "riff")):
        write_riff(utterance.wave, read_wave(utterance.wave))
    np.testing.assert_array_equal(sphere.features, load(tmp_path / "riff").features)


BAD = {
    "no transcription": (lambda u: u.phn.unlink(), r"sx2\.phn does not exist"),
    "no sound": (lambda u: u.wave.unlink(), r"sx2\.wav does not exist"),
    "empty transcription": (lambda u: u.phn.write_text(""), r"sx2\.phn is empty"),
    "empty sound": (lambda u: u.wave.write_bytes(b""), r"sx2\.wav is empty"),
    "truncated sound": (
        lambda u: u.wave.write_bytes(u.wave.read_bytes()[:-9]),
        r"sx2\.wav has \d+ samples, but its header says",
    ),
    "unknown phone": (lambda u: u.phn.write_text("0 300 h#\n300 900 xx\n"), r"sx2\.phn, line 2: 'xx' is not one of the 61"),
    "gap": (lambda u: u.phn.write_text("0 300 h#\n301 900 aa\n"), r"sx2\.phn, line 2: .* gap"),
    "overlap": (lambda u: u.phn.write_text("0 300 h#\n299 900 aa\n"), r"sx2\.phn, line 2: .* overlaps"),
    "sound that is too short": (
        lambda u: write_riff(u.wave, np.ones(399, np.int16)),
        r"sx2\.wav: the samples are int16\[399\]",
    ),
    "transcription that is too short": (
        lambda u: u.phn.write_text("0 200 h#\n"),
        r"sx2\.phn ends at sample 200, before the middle",
    ),
    "transcription of another sentence": (
        lambda u: u.phn.write_text("0 99000 h#\n"),
        r"sx2\.phn ends at sample 99000, but sx2\.wav has only \d+ samples",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_an_error_or_is_left_out(breakable_corpus, kind):
    spoil, message = BAD[kind]
    intact = load(breakable_corpus)
    spoil(intact.utterances[3])
    with pytest.raises(DataError, match=rf"dr2-mabc1.{message}.*, or leave such sentences out with skip_bad_files\.$"):
        load(breakable_corpus)
    corpus = load(breakable_corpus, skip_bad_files=True)
    assert corpus.utterances == [u for i, u in enumerate(intact.utterances) if i != 3]
    assert len(corpus.skipped) == 1
    assert re.search(message, corpus.skipped[0])
    frames = timit.frames_of(intact, np.array([0, 1, 2, 4, 5]))
    np.testing.assert_array_equal(corpus.features, intact.features[frames])
    np.testing.assert_array_equal(corpus.phones[corpus.segments], intact.phones[intact.segments[frames]])


def test_a_corpus_without_a_good_file_is_an_error_even_if_bad_files_are_skipped(breakable_corpus):
    for utterance in timit.find(breakable_corpus):
        utterance.phn.unlink()
    with pytest.raises(DataError, match=r"all 6 sentences are broken.*the first: .*sx1\.phn does not exist"):
        load(breakable_corpus, skip_bad_files=True)


def test_progress_goes_to_stderr_and_can_be_disabled(breakable_corpus, capfd):
    load(breakable_corpus)
    assert capfd.readouterr() == ("", "")
    timit.load(breakable_corpus)
    out, err = capfd.readouterr()
    assert out == ""
    assert "6/6" in err


def test_the_scaling_is_computed_from_the_chosen_utterances(corpus):
    chosen = np.array([3, 7, 20])
    frames = corpus.features[timit.frames_of(corpus, chosen)].astype(np.float64)
    mean, deviation = timit.scaling(corpus, chosen)
    assert (mean.dtype, deviation.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(mean, frames.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(deviation, frames.std(axis=0), rtol=1e-5)
    with pytest.raises(DataError, match="no utterances to compute the scaling from"):
        timit.scaling(corpus, chosen[:0])


def test_a_constant_feature_has_deviation_1(corpus):
    constant = corpus.features.copy()
    constant[:, 5] = np.float32(0.1)
    mean, deviation = timit.scaling(corpus._replace(features=constant), np.arange(48))
    assert (mean[5], deviation[5]) == (np.float32(0.1), 1)
    assert (deviation != 1).sum() == 122


def test_frames_are_in_the_requested_order_of_the_utterances(corpus):
    o = corpus.offsets
    frames = timit.frames_of(corpus, np.array([5, 2]))
    assert frames.dtype == np.int32
    assert frames.tolist() == [*range(o[5], o[6]), *range(o[2], o[3])]
    assert timit.frames_of(corpus, np.array([], int)).shape == (0,)


def test_the_bounds_of_a_frame_are_those_of_its_sentence(corpus):
    first, last = timit.bounds(corpus)
    assert (first.dtype, last.dtype) == (np.int32, np.int32)
    sentence = np.searchsorted(corpus.offsets, np.arange(len(corpus.features)), side="right") - 1
    np.testing.assert_array_equal(first, corpus.offsets[sentence])
    np.testing.assert_array_equal(last, corpus.offsets[sentence + 1] - 1)


def test_the_real_corpus_is_complete_and_its_cache_equal(real_timit, tmp_path):
    built = load(real_timit, include_sa=True, cache_dir=tmp_path)
    assert_same_corpus(built, load(real_timit, include_sa=True, cache_dir=tmp_path))
    assert built.skipped == []
    assert np.isfinite(built.features).all()
    np.testing.assert_array_equal(built.phones[built.segments], built.states // 3)
    assert set(built.phones) == set(range(61))
    assert {PHONES[p] for p in built.phones[built.phone_offsets[:-1]]} == {"h#"}
    counts = [len(timit.frames_of(built, part)) for part in timit.split(built.utterances)]
    assert counts[0] > max(counts[1:])
    assert sum(counts) == len(built.states)
