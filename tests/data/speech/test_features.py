"""The 123 features of a frame, compared with a slow float64 computation that follows the definition step by step."""

import numpy as np
import pytest
import scipy.fft

from data.errors import DataError
from data.speech.features import COEFFICIENTS, FEATURES, HOP, WIDTH, features, mel_filters, slopes


def noise(n, seed=0, scale=1000):
    return (scale * np.random.default_rng(seed).standard_normal(n)).clip(-32768, 32767).astype(np.int16)


def by_definition(samples):
    """The static features, one frame and one sum at a time."""
    x = samples.astype(np.float64)
    emphasised = np.array([x[t] - 0.97 * x[max(t - 1, 0)] for t in range(len(x))])
    t = np.arange(WIDTH)
    window = 0.54 - 0.46 * np.cos(2 * np.pi * t / (WIDTH - 1))
    mels = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 42)
    edges = 700 * (10 ** (mels / 2595) - 1)
    rows = []
    for i in range(1 + (len(x) - WIDTH) // HOP):
        frame = emphasised[HOP * i :][:WIDTH] * window
        power = [abs(np.sum(frame * np.exp(-2j * np.pi * k * t / 512))) ** 2 for k in range(257)]
        bands = []
        for low, centre, high in zip(edges, edges[1:], edges[2:], strict=False):
            weights = [np.interp(k * 16000 / 512, [low, centre, high], [0, 1, 0]) for k in range(257)]
            bands.append(np.log(max(np.dot(weights, power), 1.0)))
        j = np.arange(40)
        scale = [np.sqrt(1 / 40)] + [np.sqrt(2 / 40)] * 39
        row = [scale[q] * np.sum(bands * np.cos(np.pi * q * (j + 0.5) / 40)) for q in range(40)]
        rows.append([*row, np.log(max(np.sum(x[HOP * i :][:WIDTH] ** 2), 1.0))])
    return np.array(rows)


def slopes_by_definition(c):
    n = len(c)
    at = [[c[min(max(t + k, 0), n - 1)] for k in (-2, -1, 1, 2)] for t in range(n)]
    return np.array([((d - b) + 2 * (e - a)) / 10 for a, b, d, e in at])


def test_the_features_agree_with_the_definition():
    samples = noise(WIDTH + 6 * HOP + 77)
    samples[1000:1200] = 0
    static = by_definition(samples)
    slope = slopes_by_definition(static)
    expected = np.concatenate([static, slope, slopes_by_definition(slope)], axis=1)
    actual = features(samples)
    assert (actual.shape, actual.dtype) == ((7, FEATURES), np.float32)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "frames"), [(400, 1), (559, 1), (560, 2), (16000, 98)])
def test_the_number_of_frames(n, frames):
    result = features(noise(n))
    assert result.shape == (frames, FEATURES)
    if frames == 1:
        assert not result[:, 41:].any()


@pytest.mark.parametrize(
    "samples", [np.zeros(399, np.int16), np.zeros(0, np.int16), np.zeros(800), np.zeros((800, 2), np.int16)]
)
def test_samples_that_are_too_short_or_of_the_wrong_type(samples):
    with pytest.raises(DataError, match=r"the samples are .*; int16 \[n\] with n >= 400, one frame, is needed"):
        features(samples)


@pytest.mark.parametrize("value", [0, 1, -32768, 32767])
def test_silence_and_full_scale_are_finite(value):
    result = features(np.full(3000, value, np.int16))
    assert np.isfinite(result).all()
    assert result[0, 40] == pytest.approx(np.log(max(400 * value**2, 1)), rel=1e-6)


def test_the_filters_are_overlapping_triangles_that_sum_to_one():
    filters = mel_filters()
    assert filters.shape == (257, COEFFICIENTS)
    assert (filters.max(axis=0) > 0.5).all()
    assert ((filters > 0).sum(axis=1) <= 2).all()
    inner = (filters > 0).sum(axis=1) == 2
    np.testing.assert_allclose(filters.sum(axis=1)[inner], 1)
    assert not filters[0].any()


def test_a_tone_is_strongest_in_the_band_around_it():
    samples = (8000 * np.sin(2 * np.pi * 3000 / 16000 * np.arange(4000))).astype(np.int16)
    cepstrum = features(samples)[5, :COEFFICIENTS].astype(float)
    scale = np.array([np.sqrt(1 / 40)] + [np.sqrt(2 / 40)] * 39)
    j, q = np.arange(40)[:, None], np.arange(40)
    bands = np.cos(np.pi * q * (j + 0.5) / 40) @ (scale * cepstrum)
    assert bands.argmax() == mel_filters()[3000 * 512 // 16000].argmax()


def test_the_slope_of_a_straight_line():
    line = np.arange(10, dtype=np.float32)[:, None] * np.array([1, -3], np.float32)
    np.testing.assert_allclose(slopes(line)[2:-2], np.tile([1, -3], (6, 1)), rtol=1e-6)


def test_the_cosine_transform_of_the_bands_gives_the_cepstra():
    samples = noise(16000)
    cepstra, bands = features(samples), features(samples, "bands")
    for part in range(3):  # slopes are linear, and so commute with the transform
        columns = slice(41 * part, 41 * part + 40)
        transformed = scipy.fft.dct(bands[:, columns], norm="ortho")
        np.testing.assert_allclose(transformed, cepstra[:, columns], rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(bands[:, columns.stop], cepstra[:, columns.stop])
    with pytest.raises(DataError, match="kind is 'mel'; choose one of cepstra, bands"):
        features(samples, "mel")
