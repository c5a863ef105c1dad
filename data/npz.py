"""Arrays from `.npz` files: numbers and strings, never objects, and never more memory than the file can stand for."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from data.errors import DataError

METHODS = (
    zipfile.ZIP_STORED,
    zipfile.ZIP_DEFLATED,
)  # what numpy writes; others are unpacked whole, whatever their size is said to be
MOST = 1032  # bytes that one byte can stand for in what is deflated
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read(path: Path, names: Sequence[str], again: str) -> dict[str, np.ndarray]:
    """Those of the named arrays that the file has, with their checksums found right.

    Args:
      again: what to do about a broken file, for the message.
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
        raise DataError(f"{path} is not there; {again}.") from None
    except (PermissionError, IsADirectoryError) as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); choose a file that can.") from None
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except Exception as error:  # numpy and zipfile raise a dozen kinds, SyntaxError and zlib.error among them
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise DataError(f"{path} cannot be read ({reason}); it is broken or cut off: {again}.") from None


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> np.ndarray:
    if info.compress_type not in METHODS or info.file_size > MOST * size:
        raise ValueError(f"{info.filename} is not packed as numpy does it")
    with archive.open(info) as member:
        if not _is_array(member):
            return np.asarray(member.read())  # a text
        _check_header(info, member)
        member.seek(0)
        array = np.lib.format.read_array(member, allow_pickle=False)
        member.read()  # to the end, where the checksum is compared
    return array


def _is_array(member: IO[bytes]) -> bool:
    start = member.read(len(np.lib.format.MAGIC_PREFIX))
    member.seek(0)
    return start == np.lib.format.MAGIC_PREFIX


def _check_header(info: zipfile.ZipInfo, member: IO[bytes]) -> None:
    """The header says as many bytes as there are, before numpy takes so much memory."""
    version = np.lib.format.read_magic(member)
    if version not in HEADERS:
        raise ValueError(f"{info.filename} has version {version} of the format; arrays of numbers have 1 or 2")
    shape, _, dtype = HEADERS[version](member)
    if dtype.hasobject:
        raise DataError("holds pickled objects, which cannot be read without running them; store numbers and strings.")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
        raise ValueError(f"{info.filename} has {info.file_size} bytes, but its header says {dtype}{list(shape)}")
