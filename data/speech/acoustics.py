"""How the 61 phones of TIMIT sound, and a source-filter model that speaks them.

The formants of vowels are textbook values for an adult male; lengths and levels are round numbers for classes of phones.
A pulse train (the voice) and noise (breath) go through resonances, the formants, that move from phone to phone; noise made
at a constriction (hiss) goes through a band of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import fft, ndimage, signal

from data.speech.audio import RATE
from data.speech.phones import PHONES

Formants = tuple[float, float, float]

HOP = 80  # the filters move every 5 ms
SIZE = 7 * HOP  # a block of 2 hops, one hop before it (the hiss has no delay) and 20 ms of ringing after it
BANDWIDTHS = (80.0, 100.0, 150.0, 220.0, 320.0)
HIGH_FORMANTS = (3500.0, 4500.0)  # F4 and F5, which hardly depend on the phone
GLOTTIS = float(np.exp(-2 * np.pi * 250 / RATE))  # two poles at 250 Hz and a zero at 0: 6 dB less per octave
# How far one phone differs from the next of its kind, as standard deviations of logarithms.
LENGTH_SPREAD, LEVEL_SPREAD, FORMANT_SPREAD, BAND_SPREAD = 0.3, 0.4, 0.08, 0.15
ORAL = 270.0  # the nasal zero then stands on the nasal pole, and both cancel
NEUTRAL: Formants = (500, 1500, 2500)


class Sound(NamedTuple):
    """What a phone asks of the voice, the noise and the filters.

    Args:
      milliseconds: typical length.
      formants: F1, F2, F3 in Hz at its beginning.
      glide: and at its end, when they move.
      voice: level of the pulses of the glottis, through the formants.
      breath: level of the noise of the glottis, through the formants.
      hiss: level of the noise of a constriction in the mouth, which has its own band.
      band: centre and width (one standard deviation) of that band in Hz.
      zero: where the nose takes energy away, in Hz.
      damping: factor on the bandwidths of the formants.
      burst: whether the hiss dies away within the phone.
    """

    milliseconds: float
    formants: Formants = NEUTRAL
    glide: Formants | None = None
    voice: float = 0.0
    breath: float = 0.0
    hiss: float = 0.0
    band: tuple[float, float] = (3000, 1500)
    zero: float = ORAL
    damping: float = 1.0
    burst: bool = False


def _vowel(milliseconds: float, *formants: float, glide: Formants | None = None, voice: float = 1.0) -> Sound:
    f1, f2, f3 = formants
    return Sound(milliseconds, (f1, f2, f3), glide, voice=voice)


def _nasal(milliseconds: float, f2: float, zero: float, voice: float = 0.4) -> Sound:
    return Sound(milliseconds, (280, f2, 2300), voice=voice, zero=zero, damping=1.7)


LIP, TEETH, RIDGE, PALATE, VELUM = (
    (300, 1000, 2300),
    (320, 1350, 2550),
    (300, 1750, 2650),
    (290, 1950, 2600),
    (290, 1850, 2150),
)  # where the formants point to when the mouth closes there

SOUNDS: dict[str, Sound] = {
    # vowels
    "iy": _vowel(100, 270, 2290, 3010, voice=0.9),
    "ih": _vowel(100, 390, 1990, 2550),
    "eh": _vowel(100, 530, 1840, 2480),
    "ae": _vowel(100, 660, 1720, 2410),
    "aa": _vowel(100, 730, 1090, 2440),
    "ah": _vowel(100, 640, 1190, 2390),
    "ao": _vowel(100, 570, 840, 2410),
    "uh": _vowel(100, 440, 1020, 2240),
    "uw": _vowel(100, 300, 870, 2240, voice=0.9),
    "ux": _vowel(100, 310, 1650, 2250, voice=0.9),
    "er": _vowel(100, 490, 1350, 1690),
    "ey": _vowel(150, 500, 1900, 2520, glide=(320, 2200, 2800)),
    "ay": _vowel(150, 720, 1150, 2450, glide=(400, 1950, 2550)),
    "oy": _vowel(150, 550, 850, 2400, glide=(400, 1900, 2500)),
    "aw": _vowel(150, 720, 1300, 2450, glide=(440, 950, 2350)),
    "ow": _vowel(150, 540, 1000, 2350, glide=(390, 800, 2300)),
    "ax": _vowel(50, 500, 1350, 2450, voice=0.7),
    "ix": _vowel(50, 420, 1750, 2500, voice=0.7),
    "axr": _vowel(50, 470, 1400, 1780, voice=0.7),
    "ax-h": Sound(50, (500, 1400, 2450), breath=0.12, voice=0.03),
    # glides and liquids
    "l": Sound(60, (380, 950, 2700), voice=0.6),
    "el": Sound(80, (430, 830, 2650), voice=0.65),
    "r": Sound(60, (370, 1150, 1600), voice=0.6),
    "w": Sound(60, (300, 650, 2250), voice=0.5),
    "y": Sound(60, (270, 2200, 3000), voice=0.5),
    "hh": Sound(60, breath=0.12),
    "hv": Sound(60, voice=0.35, breath=0.1, damping=1.4),
    # nasals
    "m": _nasal(60, 1050, 900),
    "n": _nasal(60, 1450, 1600),
    "ng": _nasal(60, 1900, 2700),
    "em": _nasal(80, 1100, 900, voice=0.45),
    "en": _nasal(80, 1500, 1600, voice=0.45),
    "eng": _nasal(80, 1900, 2700, voice=0.45),
    "nx": _nasal(30, 1550, 1600, voice=0.4),
    # fricatives
    "s": Sound(100, RIDGE, hiss=0.5, band=(5800, 1000)),
    "z": Sound(80, RIDGE, voice=0.15, hiss=0.33, band=(5800, 1000), damping=2),
    "sh": Sound(100, PALATE, hiss=0.5, band=(3300, 900)),
    "zh": Sound(80, PALATE, voice=0.15, hiss=0.33, band=(3300, 900), damping=2),
    "f": Sound(100, LIP, hiss=0.09, band=(5000, 3000)),
    "v": Sound(60, LIP, voice=0.25, hiss=0.05, band=(5000, 3000), damping=2),
    "th": Sound(100, TEETH, hiss=0.08, band=(6500, 1800)),
    "dh": Sound(40, TEETH, voice=0.25, hiss=0.05, band=(6500, 1800), damping=2),
    # closures: silent, or a voice bar
    "pcl": Sound(60, LIP),
    "tcl": Sound(60, RIDGE),
    "kcl": Sound(60, VELUM),
    "bcl": Sound(60, (200, *LIP[1:]), voice=0.35, damping=4),
    "dcl": Sound(60, (200, *RIDGE[1:]), voice=0.35, damping=4),
    "gcl": Sound(60, (200, *VELUM[1:]), voice=0.35, damping=4),
    # releases
    "p": Sound(50, LIP, breath=0.18, hiss=0.6, band=(900, 900), burst=True),
    "t": Sound(50, RIDGE, breath=0.12, hiss=0.9, band=(4500, 1400), burst=True),
    "k": Sound(50, VELUM, breath=0.14, hiss=0.9, band=(2000, 600), burst=True),
    "b": Sound(20, LIP, voice=0.3, hiss=0.35, band=(900, 900), burst=True),
    "d": Sound(20, RIDGE, voice=0.3, hiss=0.5, band=(4000, 1400), burst=True),
    "g": Sound(20, VELUM, voice=0.3, hiss=0.5, band=(2000, 600), burst=True),
    "ch": Sound(80, PALATE, hiss=0.5, band=(3500, 1000)),
    "jh": Sound(60, PALATE, voice=0.12, hiss=0.4, band=(3500, 1000), damping=2),
    "dx": Sound(30, RIDGE, voice=0.35, damping=2),
    "q": Sound(60, voice=0.2, damping=1.5),
    # silences
    "h#": Sound(200),
    "pau": Sound(150),
    "epi": Sound(50),
}

_SOUNDS = [SOUNDS[phone] for phone in PHONES]
_BEGIN = np.array([sound.formants for sound in _SOUNDS])
_END = np.array([sound.glide or sound.formants for sound in _SOUNDS])
_LEVELS = np.array([(sound.voice, sound.breath, sound.hiss) for sound in _SOUNDS])
_SHAPES = np.array([(*sound.band, sound.zero, sound.damping) for sound in _SOUNDS])
_THROAT = np.array([phone in ("hh", "hv", "q") for phone in PHONES])  # the mouth is already at the next phone
_HERTZ = (np.arange(SIZE // 2 + 1) * RATE / SIZE).astype(np.float32)
_DELAY = np.exp(-2j * np.pi * _HERTZ / RATE).astype(np.complex64)


class Voice(NamedTuple):
    """What all sentences of a speaker share.

    Args:
      scale: of the frequencies of the vocal tract; above 1 for a short one.
      pitch: in Hz.
      liveliness: how far the pitch wanders, as the standard deviation of its logarithm.
      breath: level of the noise in the voice.
      tempo: factor on the speed.
      tilt: of the spectrum: the sound goes through 1 - tilt / z.
      damping: factor on the bandwidths of the formants.
      laziness: over how many hops (one standard deviation) the formants are smoothed: targets of short phones are missed.
      noise: level of the noise of the room, relative to the speech.
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
    """The samples, int16 at 16 kHz, of a sequence of phones, and where each phone ends."""
    phones = np.array([PHONES.index(phone) for phone in text])
    seconds = np.array([_SOUNDS[p].milliseconds for p in phones]) / 1000 / voice.tempo
    seconds = np.maximum(0.008, seconds * np.exp(LENGTH_SPREAD * rng.standard_normal(len(phones))))
    ends = np.cumsum((seconds * RATE).astype(int))
    through_formants, hiss = _sources(phones, ends, voice, rng)
    sound = _filtered(through_formants, hiss, *_tracks(phones, ends, voice, rng))
    room = signal.lfilter([0.44], [1, -0.9], rng.standard_normal(len(sound)))  # of variance 1, mostly below 1 kHz
    sound += voice.noise * (np.sqrt(np.mean(sound**2)) or 1.0) * room
    sound = signal.lfilter([1, -voice.tilt], [1], sound)
    peak = 32767 * rng.uniform(0.15, 0.6)
    return np.round(sound * peak / np.abs(sound).max()).astype(np.int16), ends.tolist()


def _sources(phones: np.ndarray, ends: np.ndarray, voice: Voice, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """What goes through the formants (voice and breath) and what does not (hiss), each [samples]."""
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
    """A pulse for each period of a falling, wandering pitch, shaped by the glottis; as loud at any pitch."""
    wander = np.interp(np.linspace(0, 12, n), np.arange(13), rng.standard_normal(13))
    pitch = voice.pitch * np.exp(voice.liveliness * wander) * np.linspace(1.12, 0.85, n)
    beats = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0.0)
    return signal.lfilter([1, -1], [1, -2 * GLOTTIS, GLOTTIS**2], beats * np.sqrt(RATE / pitch))


def _tracks(phones: np.ndarray, ends: np.ndarray, voice: Voice, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Formants F1..F5 and (centre of the hiss, its width, nasal zero, damping) at each hop; smooth across phones."""
    times = np.arange(ends[-1] // HOP + 2) * HOP
    at = np.minimum(np.searchsorted(ends, times, side="right"), len(ends) - 1)
    begins = np.append(0, ends[:-1])
    position = np.minimum(1, (times - begins[at]) / (ends - begins)[at])[:, None]
    mouth = np.append(np.where(_THROAT[phones[:-1]], phones[1:], phones[:-1]), phones[-1])
    own = voice.scale * voice.accent[mouth] * np.exp(FORMANT_SPREAD * rng.standard_normal((len(phones), 3)))
    begin, end = _BEGIN[mouth] * own, np.where(_THROAT[phones, None], _BEGIN[mouth], _END[mouth]) * own
    low = begin[at] * (1 - position) + end[at] * position
    low = ndimage.gaussian_filter1d(low, voice.laziness, axis=0, mode="nearest")
    high = np.broadcast_to(voice.scale * np.array(HIGH_FORMANTS), (len(times), 2))
    shapes = _SHAPES[phones] * np.exp(BAND_SPREAD * rng.standard_normal((len(phones), 4)))
    shapes[:, 2] = _SHAPES[phones, 2]  # exactly on the pole unless nasal
    shapes[:, 0] *= np.sqrt(voice.scale)
    shapes = np.column_stack([shapes[at, :2], ndimage.gaussian_filter1d(shapes[at, 2:], 2, axis=0, mode="nearest")])
    shapes[:, 3] *= voice.damping
    return np.hstack([low, high]).astype(np.float32), shapes.astype(np.float32)


def _filtered(source: np.ndarray, hiss: np.ndarray, formants: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Blocks of two hops, each through its own filters, overlapped and added."""
    n, blocks = len(source), len(formants)
    window = np.zeros(SIZE, np.float32)
    window[HOP : 3 * HOP] = signal.get_window("hann", 2 * HOP)  # neighbours add up to 1

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
    """A pair of poles, 1 at 0 Hz: (1 - b - c) / (1 - b / z - c / z^2), b = 2 r cos(2 pi f / RATE), c = -r^2."""
    radius = np.exp(-np.pi * bandwidth / RATE)
    b, c = 2 * radius * np.cos(2 * np.pi * frequency / RATE), -(radius**2)
    return (1 - b - c) / (1 - (b + c * _DELAY) * _DELAY)
