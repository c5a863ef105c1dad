"""The source-filter model: phones have the right spectra, levels and formant movements."""

import functools

import numpy as np
import pytest
from scipy import linalg, signal

from data.speech import acoustics
from data.speech.acoustics import Voice, speak
from data.speech.audio import RATE
from data.speech.phones import PHONES
from data.speech.sounds import ORAL, SOUNDS

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


def spectrum(phone, voice=PLAIN, seed=0):
    """Frequencies and mean power in the middle of a phone between silences."""
    samples, ends = speak(["h#", phone, "h#"], voice, np.random.default_rng(seed))
    begin, end = ends[0], ends[1]
    quarter = (end - begin) // 4
    return signal.welch(samples[begin + quarter : end - quarter].astype(float), RATE, nperseg=256)


def share(phone, low, high):
    """The share of the energy of a phone between two frequencies, averaged over several instances because they vary."""
    parts = []
    for seed in range(8):
        hertz, power = spectrum(phone, seed=seed)
        parts.append(power[(hertz >= low) & (hertz < high)].sum() / power.sum())
    return np.mean(parts)


@functools.cache
def level(phone):
    """The level relative to an "aa" in the same sentence, in dB, averaged over several instances because they vary."""
    decibels = []
    for seed in range(4):
        samples, ends = speak(["h#", "aa", phone, "aa", "h#"], PLAIN, np.random.default_rng(seed))
        vowel, middle = (samples[(3 * a + b) // 4 : (a + 3 * b) // 4].astype(float) for a, b in (ends[:2], ends[1:3]))
        decibels.append(10 * np.log10(np.mean(middle**2) / np.mean(vowel**2)))
    return np.mean(decibels)


@pytest.mark.parametrize("phone", ["iy", "eh", "ae", "aa", "ao", "er"])
def test_the_spectral_peaks_of_a_vowel_are_its_formants(phone):
    formants = np.array(SOUNDS[phone].formants)[:2]
    peaks = []
    for seed in range(8):  # because single vowels vary
        samples, ends = speak(["h#", phone, "h#"], PLAIN, np.random.default_rng(seed))
        middle = samples[(3 * ends[0] + ends[1]) // 4 : (ends[0] + 3 * ends[1]) // 4].astype(float)
        middle = signal.lfilter([1, -0.6], [1], middle) * np.hamming(len(middle))
        correlation = signal.correlate(middle, middle, method="fft")[len(middle) - 1 :][:17]
        polynomial = linear_prediction(correlation)
        response = np.abs(signal.freqz(1, polynomial, 800, fs=RATE)[1])
        peaks.append([nearest_peak(response, formant) for formant in formants])
    np.testing.assert_allclose(np.mean(peaks, axis=0), formants, rtol=0.1)


def linear_prediction(correlation):
    """The all-pole model of a sound with this autocorrelation."""
    return np.append(1, -linalg.solve_toeplitz(correlation[:-1], correlation[1:]))


def nearest_peak(response, hertz):
    peaks = signal.find_peaks(response)[0] * RATE / 2 / len(response)
    return peaks[np.argmin(np.abs(peaks - hertz))]


def test_the_formants_of_a_diphthong_move():
    samples, ends = speak(["h#", "ay", "h#"], PLAIN, np.random.default_rng(0))
    begin, end = ends[:2]
    ratios = []
    for part in (samples[begin : begin + (end - begin) // 3], samples[end - (end - begin) // 3 : end]):
        hertz, power = signal.welch(part.astype(float), RATE, nperseg=256)
        ratios.append(power[(hertz > 1500) & (hertz < 2500)].sum() / power[hertz < 1400].sum())
    assert ratios[1] > 3 * ratios[0]


@pytest.mark.parametrize(
    ("phone", "low", "high", "least"),
    [("s", 3000, 8001, 0.9), ("sh", 2000, 5000, 0.8), ("z", 3000, 8001, 0.5), ("m", 0, 600, 0.8), ("aa", 0, 3000, 0.9)],
)
def test_the_energy_of_a_phone_is_in_its_band(phone, low, high, least):
    assert share(phone, low, high) > least


def test_voiced_phones_are_periodic_and_hisses_are_not():
    def periodicity(phone):
        samples, ends = speak(["h#", phone, "h#"], PLAIN, np.random.default_rng(1))
        middle = (ends[0] + ends[1]) // 2
        x = samples[middle - 500 : middle + 500].astype(float)  # short, because the pitch falls
        lags = range(RATE // 150, RATE // 70)
        return max(x[lag:] @ x[:-lag] / (np.linalg.norm(x[lag:]) * np.linalg.norm(x[:-lag])) for lag in lags)

    assert periodicity("aa") > 0.8
    assert periodicity("s") < 0.5


def test_silences_are_quieter_than_voice_bars_and_these_than_vowels():
    assert max(level(phone) for phone in ("h#", "pau", "epi", "pcl", "tcl", "kcl")) < -35
    assert min(level(phone) for phone in ("bcl", "dcl", "gcl")) > -35
    assert max(level(phone) for phone in ("bcl", "dcl", "gcl")) < -12


def test_silence_alone_is_room_noise():
    samples, ends = speak(["h#"], PLAIN, np.random.default_rng(0))
    assert len(samples) == ends[0]
    assert np.std(samples) > 0


def test_a_burst_decays():
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
        acoustics._tracks(phones, ends, PLAIN._replace(laziness=laziness), np.random.default_rng(0))[0][:, 1]
        for laziness in (0.1, 4.0)
    ]
    steps = [np.abs(np.diff(track)).max() for track in tracks]
    assert steps[1] < steps[0] / 5
    assert tracks[1][60] == pytest.approx(tracks[0][60], rel=0.02)  # in the middle of iy: 100 ms suffice to get there


def test_neutral_filters_return_the_source():
    rng = np.random.default_rng(0)
    source, blocks = rng.standard_normal(1000), 1000 // acoustics.HOP + 2
    shapes = np.tile(np.float32([3000, 1e6, ORAL, 1]), (blocks, 1))  # an infinitely wide band does nothing
    formants = np.full((blocks, 5), 1000, np.float32)
    np.testing.assert_allclose(acoustics._filtered(0 * source, source, formants, shapes), source, atol=1e-4)
