"""Synthetic speech: a function of its numbers, readable as a corpus, and with the spectra that phones should have."""

import itertools
import threading

import numpy as np
import pytest
from scipy import linalg, signal

from data import phone_acoustics, synthetic_speech
from data.audio import RATE, read_wave
from data.errors import DataError
from data.phone_acoustics import SOUNDS, Voice, speak
from data.phones import PHONES, read_phn

PLAIN = Voice(
    scale=1.0,
    pitch=100.0,
    liveliness=0.0,
    breath=0.01,
    tempo=0.3,
    tilt=0.5,
    damping=1.0,
    laziness=3.0,
    noise=0.001,
    accent=np.ones((61, 3)),
)


def contents(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Eight speakers, four sentences each and two that all speak."""
    return synthetic_speech.write_corpus(tmp_path_factory.mktemp("speech") / "corpus", 8, 4, seed=0, progress=False)


def spectrum(phone, voice=PLAIN, seed=0):
    """Frequencies and mean power of the middle of a phone between silences."""
    samples, ends = speak(["h#", phone, "h#"], voice, np.random.default_rng(seed))
    begin, end = ends[0], ends[1]
    quarter = (end - begin) // 4
    return signal.welch(samples[begin + quarter : end - quarter].astype(float), RATE, nperseg=256)


def share(phone, low, high):
    """The part of the energy of a phone between two frequencies; the mean of several, since phones vary."""
    parts = []
    for seed in range(8):
        hertz, power = spectrum(phone, seed=seed)
        parts.append(power[(hertz >= low) & (hertz < high)].sum() / power.sum())
    return np.mean(parts)


def level(phone):
    """How much louder than an "aa" in the same sentence, in dB; the mean of several, since phones vary."""
    decibels = []
    for seed in range(8):
        samples, ends = speak(["h#", "aa", phone, "aa", "h#"], PLAIN, np.random.default_rng(seed))
        vowel, middle = (samples[(3 * a + b) // 4 : (a + 3 * b) // 4].astype(float) for a, b in (ends[:2], ends[1:3]))
        decibels.append(10 * np.log10(np.mean(middle**2) / np.mean(vowel**2)))
    return np.mean(decibels)


def test_the_bytes_are_a_function_of_the_seed(tmp_path):
    first, again, other = (
        contents(synthetic_speech.write_corpus(tmp_path / name, 2, 1, seed, progress=False))
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first == again
    assert list(first) == list(other)
    assert all(first[name] != other[name] for name in first)


def test_more_speakers_and_sentences_leave_the_others_as_they_were(tmp_path):
    small = contents(synthetic_speech.write_corpus(tmp_path / "small", 1, 1, 5, progress=False))
    large = contents(synthetic_speech.write_corpus(tmp_path / "large", 2, 2, 5, progress=False))
    assert len(large) == 2 * 2 * 4
    assert {name: large[name] for name in small} == small


def test_the_layout_is_the_flat_one_of_timit(corpus):
    folders = sorted(path.name for path in corpus.iterdir())
    assert folders == [f"dr{i + 1}-{'mf'[i % 2 == 0]}{i:03d}" for i in range(8)]
    names = {f"{sentence}.{ending}" for sentence in ("sa1", "sa2", "sx1", "sx2", "sx3", "sx4") for ending in ("wav", "phn")}
    assert all({path.name for path in folder.iterdir()} == names for folder in corpus.iterdir())


def test_labels_are_contiguous_from_the_first_sample_to_the_last(corpus):
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


def test_all_phones_occur_and_the_table_has_no_others(corpus):
    assert {segment.phone for path in corpus.rglob("*.phn") for segment in read_phn(path)} == set(range(61))
    assert set(SOUNDS) == set(PHONES)


def test_lengths_of_phones_are_near_the_typical_ones(corpus):
    segments = [segment for path in corpus.rglob("*.phn") for segment in read_phn(path)]
    for phone in ("s", "iy", "tcl", "n", "ix"):
        lengths = [1000 * (s.end - s.begin) / RATE for s in segments if PHONES[s.phone] == phone]
        assert 0.75 < np.mean(lengths) / SOUNDS[phone].milliseconds < 1.35
        assert np.std(lengths) > 0.15 * np.mean(lengths)


def test_everyone_speaks_the_same_sa_sentences_and_other_sx_sentences(corpus):
    def phones(name):
        return {tuple(segment.phone for segment in read_phn(path)) for path in corpus.rglob(f"{name}.phn")}

    assert [len(phones(name)) for name in ("sa1", "sa2", "sx1", "sx2")] == [1, 1, 8, 8]
    assert phones("sa1") != phones("sa2")


def test_speakers_differ_in_voice_and_sound(corpus):
    first, second = (read_wave(corpus / folder / "sa1.wav").astype(float) for folder in ("dr1-f000", "dr2-m001"))
    assert len(first) != len(second)
    voices = [synthetic_speech.draw_voice(i, 0) for i in range(8)]
    assert len({voice.scale for voice in voices}) == 8
    women, men = voices[::2], voices[1::2]
    assert min(voice.pitch for voice in women) > max(voice.pitch for voice in men)
    assert all(0.85 <= voice.scale <= 1.2 for voice in voices)


def test_closures_come_before_their_releases():
    rng = np.random.default_rng(0)
    words = synthetic_speech.lexicon(rng)
    for _ in range(50):
        text = synthetic_speech.sentence(words, rng)
        assert text[0] == text[-1] == "h#"
        assert "h#" not in text[1:-1]
        for before, phone in itertools.pairwise(text):
            assert before == synthetic_speech.CLOSURES.get(phone, before)
            assert before != phone or not phone.endswith("cl")


@pytest.mark.parametrize("phone", ["iy", "eh", "ae", "aa", "ao", "er"])
def test_a_vowel_has_its_peaks_at_its_formants(phone):
    formants = np.array(SOUNDS[phone].formants)[:2]
    found = []
    for seed in range(16):  # since single vowels vary
        samples, ends = speak(["h#", phone, "h#"], PLAIN, np.random.default_rng(seed))
        middle = samples[(3 * ends[0] + ends[1]) // 4 : (ends[0] + 3 * ends[1]) // 4].astype(float)
        middle = signal.lfilter([1, -0.6], [1], middle) * np.hamming(len(middle))
        correlation = signal.correlate(middle, middle, method="fft")[len(middle) - 1 :][:17]
        polynomial = linear_prediction(correlation)
        response = np.abs(signal.freqz(1, polynomial, 800, fs=RATE)[1])
        found.append([nearest_peak(response, formant) for formant in formants])
    np.testing.assert_allclose(np.mean(found, axis=0), formants, rtol=0.1)


def linear_prediction(correlation):
    """The all-pole model of a sound with this autocorrelation."""
    return np.append(1, -linalg.solve_toeplitz(correlation[:-1], correlation[1:]))


def nearest_peak(response, hertz):
    peaks = signal.find_peaks(response)[0] * RATE / 2 / len(response)
    return peaks[np.argmin(np.abs(peaks - hertz))]


def test_a_diphthong_moves():
    samples, ends = speak(["h#", "ay", "h#"], PLAIN, np.random.default_rng(0))
    begin, end = ends[:2]
    bands = []
    for part in (samples[begin : begin + (end - begin) // 3], samples[end - (end - begin) // 3 : end]):
        hertz, power = signal.welch(part.astype(float), RATE, nperseg=256)
        bands.append(power[(hertz > 1500) & (hertz < 2500)].sum() / power[hertz < 1400].sum())
    assert bands[1] > 3 * bands[0]


@pytest.mark.parametrize(
    ("phone", "low", "high", "least"),
    [("s", 3000, 8001, 0.9), ("sh", 2000, 5000, 0.8), ("z", 3000, 8001, 0.5), ("m", 0, 600, 0.8), ("aa", 0, 3000, 0.9)],
)
def test_a_phone_has_its_energy_where_it_belongs(phone, low, high, least):
    assert share(phone, low, high) > least


def test_a_voice_is_periodic_and_a_hiss_is_not():
    def periodicity(phone):
        samples, ends = speak(["h#", phone, "h#"], PLAIN, np.random.default_rng(1))
        middle = (ends[0] + ends[1]) // 2
        x = samples[middle - 500 : middle + 500].astype(float)  # short, since the pitch falls
        lags = range(RATE // 150, RATE // 70)
        return max(x[lag:] @ x[:-lag] / (np.linalg.norm(x[lag:]) * np.linalg.norm(x[:-lag])) for lag in lags)

    assert periodicity("aa") > 0.8
    assert periodicity("s") < 0.5


def test_silences_and_closures_are_quieter_than_a_voice_bar_and_that_than_a_vowel():
    assert max(level(phone) for phone in ("h#", "pau", "epi", "pcl", "tcl", "kcl")) < -35
    assert min(level(phone) for phone in ("bcl", "dcl", "gcl")) > -35
    assert max(level(phone) for phone in ("bcl", "dcl", "gcl")) < -12


def test_silence_alone_is_the_noise_of_the_room():
    samples, ends = speak(["h#"], PLAIN, np.random.default_rng(0))
    assert len(samples) == ends[0]
    assert np.std(samples) > 0


def test_a_burst_dies_away():
    samples, ends = speak(["h#", "tcl", "t", "h#"], PLAIN, np.random.default_rng(0))
    first, second = np.array_split(samples[ends[1] : ends[2]].astype(float), 2)
    assert np.mean(first**2) > 4 * np.mean(second**2)


def test_a_longer_vocal_tract_has_lower_formants():
    def centre(scale):
        hertz, power = spectrum("aa", PLAIN._replace(scale=scale))
        return (hertz * power).sum() / power.sum()

    assert centre(0.85) < 0.85 * centre(1.2)


def test_formants_are_smooth_across_phones():
    phones, ends = np.array([PHONES.index(p) for p in ("h#", "iy", "aa", "h#")]), np.array([3200, 6400, 9600, 12800])
    tracks = [
        phone_acoustics._tracks(phones, ends, PLAIN._replace(laziness=laziness), np.random.default_rng(0))[0][:, 1]
        for laziness in (0.1, 4.0)
    ]
    steps = [np.abs(np.diff(track)).max() for track in tracks]
    assert steps[1] < steps[0] / 5
    assert tracks[1][60] == pytest.approx(tracks[0][60], rel=0.02)  # the middle of iy: 100 ms are enough to get there


def test_filters_that_do_nothing_give_back_the_source():
    rng = np.random.default_rng(0)
    source, blocks = rng.standard_normal(1000), 1000 // phone_acoustics.HOP + 2
    shapes = np.tile(np.float32([3000, 1e6, phone_acoustics.ORAL, 1]), (blocks, 1))  # a band without limits is none
    formants = np.full((blocks, 5), 1000, np.float32)
    np.testing.assert_allclose(phone_acoustics._filtered(0 * source, source, formants, shapes), source, atol=1e-4)


def test_find_or_write_writes_once_and_reuses(tmp_path, monkeypatch):
    folder = synthetic_speech.find_or_write(tmp_path / "cache", 1, 1, 2, progress=False)
    assert folder.parent == tmp_path / "cache"
    assert contents(folder) == contents(synthetic_speech.write_corpus(tmp_path / "plain", 1, 1, 2, progress=False))
    monkeypatch.setattr(synthetic_speech, "write_corpus", None)
    assert synthetic_speech.find_or_write(tmp_path / "cache", 1, 1, 2, progress=False) == folder
    with pytest.raises(TypeError):  # other numbers are another corpus
        synthetic_speech.find_or_write(tmp_path / "cache", 1, 1, 3, progress=False)


def test_an_interrupted_find_or_write_leaves_nothing(tmp_path, monkeypatch):
    real, calls = synthetic_speech.write_riff, []

    def interrupted(path, samples):
        real(path, samples)
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(synthetic_speech, "write_riff", interrupted)
    with pytest.raises(KeyboardInterrupt):
        synthetic_speech.find_or_write(tmp_path, 1, 1, progress=False)
    assert list(tmp_path.iterdir()) == []
    assert len(contents(synthetic_speech.find_or_write(tmp_path, 1, 1, progress=False))) == 6


def test_two_that_write_at_once_end_with_one_corpus(tmp_path, monkeypatch):
    both, real = threading.Barrier(2), synthetic_speech.write_corpus

    def together(*args):
        written = real(*args)
        both.wait(30)
        return written

    monkeypatch.setattr(synthetic_speech, "write_corpus", together)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(synthetic_speech.find_or_write(tmp_path, 1, 1, 0, False))) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert list(tmp_path.iterdir()) == [found[0]]
    assert len(contents(found[0])) == 6


@pytest.mark.parametrize(
    ("numbers", "message"),
    [((0, 1, 0), "speakers is 0; a number from 1 to 999"), ((1, 0, 0), "sentences is 0"), ((1, 1, -1), "seed is -1")],
)
def test_wrong_numbers(tmp_path, numbers, message):
    for write in (synthetic_speech.write_corpus, synthetic_speech.find_or_write):
        with pytest.raises(DataError, match=message):
            write(tmp_path / "wrong", *numbers, progress=False)
    assert not (tmp_path / "wrong").exists()


def test_a_directory_with_something_in_it_is_not_written_to(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match="not an empty directory; name a new one"):
        synthetic_speech.write_corpus(tmp_path, 1, 1, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
