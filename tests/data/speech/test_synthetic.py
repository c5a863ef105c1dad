"""Synthetic speech: determined by its arguments, readable as a corpus, written once and atomically."""

import itertools
import threading

import numpy as np
import pytest

from data.errors import DataError
from data.speech import synthetic
from data.speech.audio import RATE, read_wave
from data.speech.phones import PHONES, read_phn
from data.speech.sounds import SOUNDS


def contents(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Eight speakers with four sentences each, and two sentences that all of them read."""
    return synthetic.write_corpus(tmp_path_factory.mktemp("speech") / "corpus", 8, 4, seed=0, progress=False)


@pytest.mark.slow
def test_the_bytes_are_determined_by_the_seed_and_not_by_the_size_of_the_corpus(tmp_path, corpus):
    small, other = (
        contents(synthetic.write_corpus(tmp_path / name, 2, 1, seed, progress=False))
        for name, seed in (("small", 0), ("other", 4))
    )
    assert len(small) == 2 * 2 * 3
    assert list(small) == list(other)
    assert all(small[name] != other[name] for name in small)
    large = contents(corpus)
    assert {name: large[name] for name in small} == small


def test_the_layout_is_the_flat_one_of_timit(corpus):
    folders = sorted(path.name for path in corpus.iterdir())
    assert folders == [f"dr{i + 1}-{'mf'[i % 2 == 0]}{i:03d}" for i in range(8)]
    names = {f"{sentence}.{ending}" for sentence in ("sa1", "sa2", "sx1", "sx2", "sx3", "sx4") for ending in ("wav", "phn")}
    assert all({path.name for path in folder.iterdir()} == names for folder in corpus.iterdir())


def test_transcriptions_have_no_gaps_and_cover_all_samples(corpus):
    for path in corpus.rglob("*.phn"):
        segments = read_phn(path)
        assert segments[0].begin == 0
        assert all(a.end == b.begin for a, b in itertools.pairwise(segments))
        assert segments[-1].end == len(read_wave(path.with_suffix(".wav")))
        assert PHONES[segments[0].phone] == PHONES[segments[-1].phone] == "h#"


def test_sentences_take_about_three_seconds_and_do_not_clip(corpus):
    waves = [read_wave(path) for path in corpus.rglob("*.wav")]
    assert 2.5 < np.mean([len(wave) for wave in waves]) / RATE < 4
    peaks = [np.abs(wave.astype(int)).max() for wave in waves]
    assert min(peaks) > 3000
    assert max(peaks) < 0.61 * 32767


def test_all_phones_occur_and_have_a_sound(corpus):
    assert {segment.phone for path in corpus.rglob("*.phn") for segment in read_phn(path)} == set(range(61))
    assert set(SOUNDS) == set(PHONES)


def test_durations_of_phones_are_near_the_typical_ones(corpus):
    segments = [segment for path in corpus.rglob("*.phn") for segment in read_phn(path)]
    for phone in ("s", "iy", "tcl", "n", "ix"):
        lengths = [1000 * (s.end - s.begin) / RATE for s in segments if PHONES[s.phone] == phone]
        assert 0.75 < np.mean(lengths) / SOUNDS[phone].milliseconds < 1.35
        assert np.std(lengths) > 0.15 * np.mean(lengths)


def test_all_speakers_share_the_sa_sentences_and_none_of_the_sx_sentences(corpus):
    def phones(name):
        return {tuple(segment.phone for segment in read_phn(path)) for path in corpus.rglob(f"{name}.phn")}

    assert [len(phones(name)) for name in ("sa1", "sa2", "sx1", "sx2")] == [1, 1, 8, 8]
    assert phones("sa1") != phones("sa2")


def test_speakers_differ_in_voice_and_sound(corpus):
    first, second = (read_wave(corpus / folder / "sa1.wav").astype(float) for folder in ("dr1-f000", "dr2-m001"))
    assert len(first) != len(second)
    voices = [synthetic.draw_voice(i, 0) for i in range(8)]
    assert len({voice.scale for voice in voices}) == 8
    women, men = voices[::2], voices[1::2]
    assert min(voice.pitch for voice in women) > max(voice.pitch for voice in men)
    assert all(0.85 <= voice.scale <= 1.2 for voice in voices)


def test_closures_come_before_their_releases():
    rng = np.random.default_rng(0)
    words = synthetic.lexicon(rng)
    for _ in range(50):
        text = synthetic.sentence(words, rng)
        assert text[0] == text[-1] == "h#"
        assert "h#" not in text[1:-1]
        for before, phone in itertools.pairwise(text):
            assert before == synthetic.CLOSURES.get(phone, before)
            assert before != phone or not phone.endswith("cl")


def test_find_or_write_writes_a_corpus_once(tmp_path, monkeypatch, corpus):
    folder = synthetic.find_or_write(tmp_path / "cache", 1, 1, 0, progress=False)
    assert folder.parent == tmp_path / "cache"
    written, large = contents(folder), contents(corpus)
    assert len(written) == 6
    assert written == {name: large[name] for name in written}
    monkeypatch.setattr(synthetic, "write_corpus", None)
    assert synthetic.find_or_write(tmp_path / "cache", 1, 1, 0, progress=False) == folder
    with pytest.raises(TypeError):  # other arguments are another corpus
        synthetic.find_or_write(tmp_path / "cache", 1, 1, 3, progress=False)


def test_an_interrupted_find_or_write_leaves_nothing(tmp_path, monkeypatch):
    real, calls = synthetic.write_riff, []

    def interrupted(path, samples):
        real(path, samples)
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(synthetic, "write_riff", interrupted)
    with pytest.raises(KeyboardInterrupt):
        synthetic.find_or_write(tmp_path, 1, 1, progress=False)
    assert list(tmp_path.iterdir()) == []
    assert len(contents(synthetic.find_or_write(tmp_path, 1, 1, progress=False))) == 6


def test_two_simultaneous_writers_end_with_one_corpus(tmp_path, monkeypatch):
    barrier, real = threading.Barrier(2), synthetic.write_corpus

    def write_together(*args):
        written = real(*args)
        barrier.wait(30)
        return written

    monkeypatch.setattr(synthetic, "write_corpus", write_together)
    folders = []
    threads = [
        threading.Thread(target=lambda: folders.append(synthetic.find_or_write(tmp_path, 1, 1, 0, False))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert folders[0] == folders[1]
    assert list(tmp_path.iterdir()) == [folders[0]]
    assert len(contents(folders[0])) == 6


@pytest.mark.parametrize(
    ("numbers", "message"),
    [((0, 1, 0), "speakers is 0; choose a number from 1 to 999"), ((1, 0, 0), "sentences is 0"), ((1, 1, -1), "seed is -1")],
)
def test_invalid_arguments(tmp_path, numbers, message):
    for write in (synthetic.write_corpus, synthetic.find_or_write):
        with pytest.raises(DataError, match=message):
            write(tmp_path / "wrong", *numbers, progress=False)
    assert not (tmp_path / "wrong").exists()


def test_a_directory_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match="is not an empty directory; choose a new one"):
        synthetic.write_corpus(tmp_path, 1, 1, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
