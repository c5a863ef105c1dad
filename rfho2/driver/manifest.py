"""The manifest of a checkpoint: the SHA-256 of each of its files, and of the manifest itself, to detect any damage.

Plain lines, "<hash>  <file>", as `sha256sum` prints them; the last line has the hash of the lines above it.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from rfho2.core import files

NAME = "manifest.sha256"
ITSELF = "(the lines above)"


class DamageError(ValueError):
    """A file is not what was written."""


def write(place: Path, known: dict[str, str]) -> None:
    """Writes the manifest of everything in a directory; `known` has hashes that need not be computed again."""
    all_files = dict(known)
    for path in files.files_below(place):
        name = path.relative_to(place).as_posix()
        if name not in all_files:
            all_files[name] = files.digest_bytes(files.read(path))
            files.flush(path)
    lines = "".join(f"{all_files[name]}  {name}\n" for name in sorted(all_files)).encode()
    files.write(place / NAME, lines + f"{files.digest_bytes(lines)}  {ITSELF}\n".encode())


def read(place: Path) -> dict[str, bytes]:
    """The contents of all files that the manifest lists, by name; `DamageError` if any byte has changed."""
    contents = {}
    for name, expected in _hashes(place).items():
        try:
            data = files.read(place / PurePosixPath(name))
        except OSError as error:
            raise DamageError(f"{name} cannot be read: {error}") from error
        if files.digest_bytes(data) != expected:
            raise DamageError(f"{name} has changed since it was written")
        contents[name] = data
    return contents


def _hashes(place: Path) -> dict[str, str]:
    try:
        data = files.read(place / NAME)
    except OSError as error:
        raise DamageError(f"{NAME} cannot be read: {error}") from error
    above, _, last = data.rstrip(b"\n").rpartition(b"\n")
    lines = above + b"\n"
    if last != f"{files.digest_bytes(lines)}  {ITSELF}".encode() or not data.endswith(b"\n"):
        raise DamageError(f"{NAME} has changed since it was written")
    pairs = [line.split("  ", 1) for line in lines.decode().splitlines()]
    return {name: hashed for hashed, name in pairs}
