"""Acoustic features: 41 numbers every 10 ms, their slopes over time, and the slopes of these.

A frame is 25 ms long. Its 41 numbers are 40 mel-frequency cepstral coefficients (the cosine transform of 40 log mel band
energies), or the log band energies themselves, and its log energy.
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.fft

from data.errors import DataError
from data.speech.audio import RATE

WIDTH, HOP, COEFFICIENTS, FEATURES = 400, 160, 40, 123
TRANSFORM = 512  # samples: the frame, padded with zeros
EMPHASIS = 0.97
REACH = 2  # frames on each side that a slope is fitted to
FLOOR = 1.0  # of energies before the logarithm, in squared units of the 16-bit samples; rounding noise alone exceeds it
KINDS = ("cepstra", "bands")
VERSION = 1  # raise it whenever the numbers change, so that cached ones are not mistaken for them


def features(samples: np.ndarray, kind: str = "cepstra") -> np.ndarray:
    """float32 [frames, 123] of int16 samples [n], with frames = 1 + (n - 400) // 160: [values, slopes, slopes of slopes].

    Args:
      kind: "cepstra", as in the paper; "bands" omits the cosine transform. The higher cepstra hardly vary, and scaling
        every feature to the same variance amplifies their noise.
    """
    if kind not in KINDS:
        raise DataError(f"kind is '{kind}'; choose one of {', '.join(KINDS)}.")
    if samples.dtype != np.int16 or samples.ndim != 1 or len(samples) < WIDTH:
        raise DataError(
            f"the samples are {samples.dtype}{list(samples.shape)}; int16 [n] with n >= {WIDTH}, one frame, is needed."
        )
    sound = samples.astype(np.float32)
    emphasised = sound - np.float32(EMPHASIS) * np.concatenate([sound[:1], sound[:-1]])
    frames = np.lib.stride_tricks.sliding_window_view(emphasised, WIDTH)[::HOP]
    window, filters, cosines = _matrices()
    spectrum = scipy.fft.rfft(frames * window, TRANSFORM)
    bands = (spectrum.real**2 + spectrum.imag**2) @ filters
    result = np.empty((len(frames), FEATURES), np.float32)
    static, slope, curvature = np.split(result, 3, axis=1)
    logs = np.log(np.maximum(bands, FLOOR))
    static[:, :COEFFICIENTS] = logs @ cosines if kind == "cepstra" else logs
    static[:, COEFFICIENTS] = _log_energy(samples, len(frames))
    slope[:] = slopes(static)
    curvature[:] = slopes(slope)
    return result


def slopes(values: np.ndarray) -> np.ndarray:
    """Linear regression over time: d_t = sum_k k (c_{t+k} - c_{t-k}) / (2 sum_k k^2), k = 1..REACH, with repeated edges."""
    n, steps = len(values), range(1, REACH + 1)
    padded = np.concatenate([values[:1]] * REACH + [values] + [values[-1:]] * REACH)
    rise = sum(np.float32(k) * (padded[REACH + k :][:n] - padded[REACH - k :][:n]) for k in steps)
    return rise / np.float32(2 * sum(k * k for k in steps))


def mel_filters() -> np.ndarray:
    """[TRANSFORM / 2 + 1, COEFFICIENTS]: triangles, each from the centre of its left neighbour to that of its right one.

    The centres are equally spaced on the mel scale, 2595 log10(1 + f / 700), over 0..8000 Hz.
    """
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    corners = 700 * (10 ** (np.linspace(0, top, COEFFICIENTS + 2) / 2595) - 1)
    low, centre, high = corners[:-2], corners[1:-1], corners[2:]
    frequency = np.arange(TRANSFORM // 2 + 1)[:, None] * RATE / TRANSFORM
    return np.maximum(0, np.minimum((frequency - low) / (centre - low), (high - frequency) / (high - centre)))


def _log_energy(samples: np.ndarray, frames: int) -> np.ndarray:
    """Log energy of the raw samples, without emphasis or window; cumulative sums of integers are exact."""
    sums = np.concatenate([[0], np.cumsum(samples.astype(np.int64) ** 2)])
    starts = HOP * np.arange(frames)
    return np.log(np.maximum(sums[starts + WIDTH] - sums[starts], FLOOR))


@functools.cache
def _matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The window, the filters and the orthonormal cosine transform, float32."""
    cosines = scipy.fft.dct(np.eye(COEFFICIENTS), type=2, norm="ortho", axis=1)
    window, filters, cosines = (np.asarray(a, np.float32) for a in (np.hamming(WIDTH), mel_filters(), cosines))
    return window, filters, cosines
