"""Arrays from `.npz` files: numbers and strings, never objects, and never more memory than the file size accounts for."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from data.errors import DataError, first_line

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # as numpy writes; other methods ignore the stated size
MAX_EXPANSION = 1032  # deflate unpacks one byte to at most this many
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read(path: Path, names: Sequence[str], remedy: str) -> dict[str, np.ndarray]:
    """The named arrays, without those that the file lacks, after verifying their checksums.

    Args:
      remedy: what to do about a missing or broken file, for the message.
    """
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("not an .npz file, or it is cut off")
            with zipfile.ZipFile(file) as archive:
                members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
                size = path.stat().st_size
                return {name: _array(archive, members[name], size) for name in names if name in members}
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; {remedy}.") from None
    except (PermissionError, IsADirectoryError) as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); choose a readable file.") from None
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except Exception as error:  # numpy and zipfile raise a dozen kinds, among them SyntaxError and zlib.error
        raise DataError(f"{path} cannot be read ({first_line(error)[:200]}); it is broken or cut off: {remedy}.") from None


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> np.ndarray:
    if info.compress_type not in METHODS or info.file_size > MAX_EXPANSION * size:
        raise ValueError(f"{info.filename} is not packed as numpy does it")
    with archive.open(info) as member:
        if not _is_array(member):
            return np.asarray(member.read())  # a text
        _check_header(info, member)
        member.seek(0)
        array = np.lib.format.read_array(member, allow_pickle=False)
        member.read()  # zipfile compares the checksum at the end
    return array


def _is_array(member: IO[bytes]) -> bool:
    start = member.read(len(np.lib.format.MAGIC_PREFIX))
    member.seek(0)
    return start == np.lib.format.MAGIC_PREFIX


def _check_header(info: zipfile.ZipInfo, member: IO[bytes]) -> None:
    """Compares the size in the header with that of the data, before numpy allocates memory for it."""
    version = np.lib.format.read_magic(member)
    if version not in HEADERS:
        raise ValueError(f"{info.filename} has version {version} of the format; arrays of numbers have 1 or 2")
    shape, _, dtype = HEADERS[version](member)
    if dtype.hasobject:
        raise DataError("holds pickled objects, which cannot be read without running code; store numbers and strings.")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
        raise ValueError(f"{info.filename} has {info.file_size} bytes, but its header says {dtype}{list(shape)}")
