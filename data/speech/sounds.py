"""How the 61 phones of TIMIT sound: parameters for the source-filter model of data.speech.acoustics.

The formants of the vowels are textbook values for an adult male; durations and levels are round numbers for classes of
phones.
"""

from __future__ import annotations

from typing import NamedTuple

Formants = tuple[float, float, float]

ORAL = 270.0  # Hz: here the nasal zero coincides with the nasal pole, and they cancel
NEUTRAL: Formants = (500, 1500, 2500)


class Sound(NamedTuple):
    """The voice, the noise and the filters of a phone.

    Args:
      milliseconds: typical duration.
      formants: F1, F2, F3 in Hz at its beginning.
      glide: the formants at its end, if they move.
      voice: level of the glottal pulses, which pass through the formants.
      breath: level of the glottal noise, which passes through the formants.
      hiss: level of the noise of a constriction in the mouth, which has a separate band.
      band: centre and width (one standard deviation) of that band in Hz.
      zero: frequency in Hz at which the nose absorbs energy.
      damping: factor on the bandwidths of the formants.
      burst: whether the hiss decays within the phone.
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


# The formants that a closure at this place pulls towards.
LIP: Formants = (300, 1000, 2300)
TEETH: Formants = (320, 1350, 2550)
RIDGE: Formants = (300, 1750, 2650)
PALATE: Formants = (290, 1950, 2600)
VELUM: Formants = (290, 1850, 2150)

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
    # closures: silent, or with a voice bar
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
