"""Reads and writes speech, 16-bit mono at 16 kHz, as RIFF (.wav) and NIST SPHERE files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from data.errors import DataError

RATE = 16000
PCM, EXTENSIBLE = 1, 0xFFFE  # RIFF format tags; the second is followed by the actual one
SPHERE_HEADER = 1024  # bytes in the headers written here; those that are read state their own length
BYTE_ORDERS = {"01": "<i2", "10": ">i2"}


def read_wave(path: Path) -> np.ndarray:
    """The samples, int16 [n]; the first bytes determine the format, whatever the name of the file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; every .phn file needs a .wav file beside it.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); choose a readable file.") from None
    if not content:
        raise DataError(f"{path} is empty; copy it again.")
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        return _riff(content, path)
    if content[:7] == b"NIST_1A":
        return _sphere(content, path)
    raise DataError(f"{path} begins with {content[:8]!r}; a RIFF .wav or a NIST SPHERE file is needed.")


def write_riff(path: Path, samples: np.ndarray) -> None:
    """Writes int16 samples as a .wav file."""
    content = _checked(samples, path).astype("<i2").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, PCM, 1, RATE, 2 * RATE, 2, 16)
    head = b"RIFF" + struct.pack("<I", 4 + len(form) + 8 + len(content)) + b"WAVE"
    path.write_bytes(head + form + b"data" + struct.pack("<I", len(content)) + content)


def write_sphere(path: Path, samples: np.ndarray, byte_format: str = "01") -> None:
    """Writes int16 samples as a NIST SPHERE file.

    Args:
      byte_format: "01" for little-endian samples, "10" for big-endian ones.
    """
    content = _checked(samples, path).astype(BYTE_ORDERS[byte_format]).tobytes()
    lines = (
        "NIST_1A",
        f"{SPHERE_HEADER:7d}",
        "channel_count -i 1",
        f"sample_count -i {len(samples)}",
        f"sample_rate -i {RATE}",
        "sample_n_bytes -i 2",
        f"sample_byte_format -s2 {byte_format}",
        "sample_coding -s3 pcm",
        "end_head\n",
    )
    path.write_bytes("\n".join(lines).encode().ljust(SPHERE_HEADER) + content)


def _riff(content: bytes, path: Path) -> np.ndarray:
    """The samples of the first data chunk; a chunk is a name, a length and that many bytes, padded to an even number."""
    position, form = 12, b""
    while position + 8 <= len(content):
        name, length = struct.unpack_from("<4sI", content, position)
        position += 8
        if name == b"fmt ":
            form = content[position : position + length]
        elif name == b"data":
            _check_form(form, path)
            return _samples(content, position, length // 2, "<i2", path)
        position += length + length % 2
    raise DataError(f"{path} has no 'data' chunk within its {len(content)} bytes; it is cut off: copy it again.")


def _check_form(form: bytes, path: Path) -> None:
    if len(form) < 16:
        raise DataError(f"{path} has no complete 'fmt ' chunk before its samples; it is broken: copy it again.")
    tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", form)
    if tag == EXTENSIBLE and len(form) >= 26:
        (tag,) = struct.unpack_from("<H", form, 24)
    if tag != PCM:
        raise DataError(f"{path} has RIFF format {tag}, which is not PCM; convert it to 16-bit PCM.")
    _check_kind(channels, rate, bits, path)


def _sphere(content: bytes, path: Path) -> np.ndarray:
    fields, start = _sphere_header(content, path)
    coding = fields.get("sample_coding", "pcm")
    if "shorten" in coding:
        raise DataError(f"{path} is compressed ({coding[:60]}); decompress it with `sph2pipe -f rif {path.name} out.wav`.")
    if coding != "pcm":
        raise DataError(f"{path} has sample_coding '{coding[:60]}'; convert it to pcm, for example with sph2pipe.")
    numbers = []
    for name, default in (("channel_count", "1"), ("sample_rate", ""), ("sample_n_bytes", ""), ("sample_count", "")):
        text = fields.get(name, default)
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise DataError(f"{path} has {name} '{text[:60]}' in its header; an integer is needed: copy it again.")
        numbers.append(int(text))
    channels, rate, width, count = numbers
    _check_kind(channels, rate, 8 * width, path)
    order = fields.get("sample_byte_format", "")
    if order not in BYTE_ORDERS:
        raise DataError(
            f"{path} has sample_byte_format '{order[:60]}'; 01 or 10 is needed: convert it, for example with sph2pipe."
        )
    return _samples(content, start, count, BYTE_ORDERS[order], path)


def _sphere_header(content: bytes, path: Path) -> tuple[dict[str, str], int]:
    """The fields, from lines of name, type and value up to `end_head`, and the length of the header."""
    length = content[8:16].strip()
    if not length.isdigit():
        raise DataError(f"{path} has the length {length!r} in its NIST_1A header; an integer is needed: copy it again.")
    lines = content[16 : int(length)].decode("latin-1").splitlines()
    if "end_head" not in (line.strip() for line in lines):
        raise DataError(
            f"{path} has no end_head in its NIST_1A header of {int(length)} bytes; it is cut off: copy it again."
        )
    fields = {}
    for line in lines:
        if line.strip() == "end_head":
            break
        if len(parts := line.split(maxsplit=2)) == 3:
            fields[parts[0]] = parts[2].strip()
    return fields, int(length)


def _check_kind(channels: int, rate: int, bits: int, path: Path) -> None:
    if (channels, rate, bits) != (1, RATE, 16):
        raise DataError(
            f"{path} has {channels} channel(s) of {bits} bits at {rate} Hz; convert it to 1 channel of 16 bits at {RATE} Hz."
        )


def _samples(content: bytes, start: int, count: int, dtype: str, path: Path) -> np.ndarray:
    available = max(len(content) - start, 0) // 2
    if not count:
        raise DataError(f"{path} has no samples; copy it again.")
    if available < count:
        raise DataError(f"{path} has {available} samples, but its header says {count}; it is cut off: copy it again.")
    return np.frombuffer(content, dtype, count, start).astype(np.int16)


def _checked(samples: np.ndarray, path: Path) -> np.ndarray:
    if samples.dtype != np.int16 or samples.ndim != 1:
        raise DataError(f"{path}: the samples are {samples.dtype}{list(samples.shape)}; int16[n] is needed.")
    return samples
