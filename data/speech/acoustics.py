"""A source-filter model that speaks the 61 phones of TIMIT.

A pulse train (the voice) and noise (breath) pass through resonances, the formants, that move from phone to phone; noise
from a constriction (hiss) passes through a separate band.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import fft, ndimage, signal

from data.speech.audio import RATE
from data.speech.phones import PHONES
from data.speech.sounds import ORAL, SOUNDS

HOP = 80  # samples between filter updates: 5 ms
SIZE = 7 * HOP  # a block of 2 hops, 1 hop before it (the hiss filter is not causal) and 20 ms of ringing after it
BANDWIDTHS = (80.0, 100.0, 150.0, 220.0, 320.0)
HIGH_FORMANTS = (3500.0, 4500.0)  # F4 and F5, which hardly depend on the phone
GLOTTIS = float(np.exp(-2 * np.pi * 250 / RATE))  # two poles at 250 Hz and a zero at 0 Hz: -6 dB per octave
# How much instances of one phone differ, as standard deviations of logarithms.
LENGTH_SPREAD, LEVEL_SPREAD, FORMANT_SPREAD, BAND_SPREAD = 0.3, 0.4, 0.08, 0.15

_SOUNDS = [SOUNDS[phone] for phone in PHONES]
_BEGIN = np.array([sound.formants for sound in _SOUNDS])
_END = np.array([sound.glide or sound.formants for sound in _SOUNDS])
_LEVELS = np.array([(sound.voice, sound.breath, sound.hiss) for sound in _SOUNDS])
_SHAPES = np.array([(*sound.band, sound.zero, sound.damping) for sound in _SOUNDS])
_THROAT = np.array([phone in ("hh", "hv", "q") for phone in PHONES])  # the mouth already has the shape of the next phone
_HERTZ = (np.arange(SIZE // 2 + 1) * RATE / SIZE).astype(np.float32)
_DELAY = np.exp(-2j * np.pi * _HERTZ / RATE).astype(np.complex64)


class Voice(NamedTuple):
    """The properties that all sentences of a speaker share.

    Args:
      scale: factor on the resonance frequencies of the vocal tract; above 1 for a short one.
      pitch: in Hz.
      liveliness: variation of the pitch, as the standard deviation of its logarithm.
      breath: level of the noise in the voice.
      tempo: factor on the speed.
      tilt: spectral tilt; the sound is filtered with 1 - tilt / z.
      damping: factor on the bandwidths of the formants.
      laziness: width (one standard deviation, in hops) of the smoothing of the formants: short phones miss their targets.
      noise: level of the room noise, relative to the speech.
      accent: factors on the formants of each phone, [61, 3].
    """

    scale: float
    pitch: float
    liveliness: float
    breath: float
    tempo: float
    tilt: float
    damping: float
    laziness: float
    noise: float
    accent: np.ndarray


def speak(text: list[str], voice: Voice, rng: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    """The samples (int16, 16 kHz) of a sequence of phones, and the end of each phone."""
    phones = np.array([PHONES.index(phone) for phone in text])
    seconds = np.array([_SOUNDS[p].milliseconds for p in phones]) / 1000 / voice.tempo
    seconds = np.maximum(0.008, seconds * np.exp(LENGTH_SPREAD * rng.standard_normal(len(phones))))
    ends = np.cumsum((seconds * RATE).astype(int))
    through_formants, hiss = _sources(phones, ends, voice, rng)
    sound = _filtered(through_formants, hiss, *_tracks(phones, ends, voice, rng))
    room = signal.lfilter([0.44], [1, -0.9], rng.standard_normal(len(sound)))  # variance 1, mostly below 1 kHz
    sound += voice.noise * (np.sqrt(np.mean(sound**2)) or 1.0) * room
    sound = signal.lfilter([1, -voice.tilt], [1], sound)
    peak = 32767 * rng.uniform(0.15, 0.6)
    return np.round(sound * peak / np.abs(sound).max()).astype(np.int16), ends.tolist()


def _sources(phones: np.ndarray, ends: np.ndarray, voice: Voice, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The source for the formants (voice and breath) and that for the separate band (hiss), each [samples]."""
    n, lengths = ends[-1], np.diff(ends, prepend=0)
    levels = _LEVELS[phones] * np.exp(LEVEL_SPREAD * rng.standard_normal((len(phones), 3)))
    levels = np.repeat(levels, lengths, axis=0)
    position = (np.arange(n) - np.repeat(ends - lengths, lengths)) / np.repeat(lengths, lengths)
    burst = np.repeat([_SOUNDS[p].burst for p in phones], lengths)
    levels[:, 2] *= np.where(burst, np.exp(-4 * position), 1)
    pulses, breath, hiss = ndimage.uniform_filter1d(levels, RATE // 200, axis=0, mode="nearest").T
    noise = rng.standard_normal((2, n))
    return pulses * _pulses(n, voice, rng) + (breath + voice.breath * pulses) * noise[0], hiss * noise[1]


def _pulses(n: int, voice: Voice, rng: np.random.Generator) -> np.ndarray:
    """One pulse per period of a falling, varying pitch, shaped by the glottis; equally loud at any pitch."""
    wander = np.interp(np.linspace(0, 12, n), np.arange(13), rng.standard_normal(13))
    pitch = voice.pitch * np.exp(voice.liveliness * wander) * np.linspace(1.12, 0.85, n)
    beats = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0.0)
    return signal.lfilter([1, -1], [1, -2 * GLOTTIS, GLOTTIS**2], beats * np.sqrt(RATE / pitch))


def _tracks(phones: np.ndarray, ends: np.ndarray, voice: Voice, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Formants F1..F5 and (centre and width of the hiss, nasal zero, damping) at each hop; smooth across phones."""
    times = np.arange(ends[-1] // HOP + 2) * HOP
    segment = np.minimum(np.searchsorted(ends, times, side="right"), len(ends) - 1)
    begins = np.append(0, ends[:-1])
    position = np.minimum(1, (times - begins[segment]) / (ends - begins)[segment])[:, None]
    mouth = np.append(np.where(_THROAT[phones[:-1]], phones[1:], phones[:-1]), phones[-1])
    factors = voice.scale * voice.accent[mouth] * np.exp(FORMANT_SPREAD * rng.standard_normal((len(phones), 3)))
    begin, end = _BEGIN[mouth] * factors, np.where(_THROAT[phones, None], _BEGIN[mouth], _END[mouth]) * factors
    low = begin[segment] * (1 - position) + end[segment] * position
    low = ndimage.gaussian_filter1d(low, voice.laziness, axis=0, mode="nearest")
    high = np.broadcast_to(voice.scale * np.array(HIGH_FORMANTS), (len(times), 2))
    shapes = _SHAPES[phones] * np.exp(BAND_SPREAD * rng.standard_normal((len(phones), 4)))
    shapes[:, 2] = _SHAPES[phones, 2]  # exactly on the pole unless the phone is nasal
    shapes[:, 0] *= np.sqrt(voice.scale)
    smooth = ndimage.gaussian_filter1d(shapes[segment, 2:], 2, axis=0, mode="nearest")
    shapes = np.column_stack([shapes[segment, :2], smooth])
    shapes[:, 3] *= voice.damping
    return np.hstack([low, high]).astype(np.float32), shapes.astype(np.float32)


def _filtered(source: np.ndarray, hiss: np.ndarray, formants: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Filters blocks of two hops, each with the filters of its hop, and adds them with overlap."""
    n, blocks = len(source), len(formants)
    window = np.zeros(SIZE, np.float32)
    window[HOP : 3 * HOP] = signal.get_window("hann", 2 * HOP)  # overlapping windows add up to 1

    def spectra(x: np.ndarray) -> np.ndarray:
        padded = np.zeros((blocks - 1) * HOP + SIZE, np.float32)
        padded[2 * HOP : 2 * HOP + n] = x
        return fft.rfft(np.lib.stride_tricks.sliding_window_view(padded, SIZE)[::HOP] * window)

    centre, width, zero, damping = shapes.T[:, :, None]
    response = _resonance(np.full_like(zero, ORAL), 100.0 + 0 * zero) / _resonance(zero, 100.0 + 0 * zero)
    for frequency, bandwidth in zip(formants.T, BANDWIDTHS, strict=True):
        response *= _resonance(frequency[:, None], bandwidth * damping)
    band = np.exp(-0.5 * ((_HERTZ - centre) / width) ** 2)
    band /= np.sqrt(np.mean(band**2, axis=1, keepdims=True))
    pieces = fft.irfft(spectra(source) * response + spectra(hiss) * band, SIZE).reshape(blocks, -1, HOP)
    out = np.zeros((blocks + pieces.shape[1] - 1, HOP))
    for j in range(pieces.shape[1]):
        out[j : j + blocks] += pieces[:, j]
    return out.ravel()[2 * HOP : 2 * HOP + n]


def _resonance(frequency: np.ndarray, bandwidth: np.ndarray) -> np.ndarray:
    """A pole pair with gain 1 at 0 Hz: (1 - b - c) / (1 - b / z - c / z^2), b = 2 r cos(2 pi f / RATE), c = -r^2."""
    radius = np.exp(-np.pi * bandwidth / RATE)
    b, c = 2 * radius * np.cos(2 * np.pi * frequency / RATE), -(radius**2)
    return (1 - b - c) / (1 - (b + c * _DELAY) * _DELAY)
