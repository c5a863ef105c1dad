"""Randomly corrupted files: a reader returns valid data or raises one sentence, and never takes much memory."""

import contextlib
import itertools
import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from data import cifar_features, mnist
from data.errors import DataError
from data.speech.audio import read_wave, write_riff, write_sphere
from data.speech.phones import PHONES, frame_labels, read_phn
from tests.support.seeds import seed

ROUNDS = 5000 if os.environ.get("RFHO2_FUZZ") else 200  # corrupted files of each kind
MEMORY = 20 << 20  # bytes, for files of a few kB each
SAMPLES = np.random.default_rng(0).integers(-(2**15), 2**15, 600).astype(np.int16)
IMAGES = np.random.default_rng(1).integers(0, 256, (4, 28, 28), np.uint8)
FEATURES = np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32)
LABELS = np.array([0, 1, 2, 2, 1, 0])
DIGITS = {"images": IMAGES, "labels": LABELS[:4]}
CIFAR = {"features": FEATURES, "labels": LABELS, "class_names": np.array(list("abc"))}
LARGE = [0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 10**9, 0]


# Corruptions


def flip_bits(content, rng):
    for place in rng.integers(len(content), size=rng.integers(1, 6)):
        content[place] ^= 1 << rng.integers(8)
    return content


def cut_off(content, rng):
    return content[: rng.integers(len(content))]


def insert(content, rng):
    place = rng.integers(len(content))
    content[place:place] = rng.bytes(rng.integers(1, 40))
    return content


def remove(content, rng):
    place = rng.integers(len(content))
    del content[place : place + rng.integers(1, 40)]
    return content


def repeat(content, rng):
    begin, end = sorted(rng.integers(len(content), size=2))
    return content[:end] + content[begin:]


def huge_size(content, rng):
    """Makes a 32-bit number near the beginning or the end, where sizes are stored, a large one."""
    span = min(len(content) - 4, 120)
    place = rng.integers(span) if rng.random() < 0.5 else len(content) - 4 - rng.integers(span)
    struct.pack_into("<I", content, place, rng.choice(LARGE))
    return content


def other_digits(content, rng):
    """Replaces some digits, which are sizes in text, by other characters, or one by many."""
    places = [i for i, byte in enumerate(content[:1200]) if chr(byte).isdigit()]
    for place in rng.choice(places, min(len(places), 3), replace=False) if places else ():
        content[place] = rng.choice(list(b"0123456789- .xe\n\xb2"))
    if places and rng.random() < 0.3:
        place = rng.choice(places)
        content[place:place] = b"9" * rng.integers(1, 30)
    return content


CORRUPTIONS = [flip_bits, cut_off, insert, remove, repeat, huge_size, other_digits]


def corrupted(content, rng):
    """Applies one or two corruptions at random."""
    content = bytearray(content)
    for corrupt in rng.choice(CORRUPTIONS, rng.integers(1, 3)):
        content = corrupt(content, rng) if len(content) > 8 else content
    return bytes(content)


# Readers, each with the properties of everything it returns


def check_wave(path):
    samples = read_wave(path)
    assert (samples.dtype, samples.ndim) == (np.int16, 1)
    assert 0 < 2 * len(samples) <= path.stat().st_size


def check_phn(path):
    segments = read_phn(path)
    assert segments[0].begin == 0
    assert all(one.end == two.begin for one, two in itertools.pairwise(segments))
    assert all(s.begin < s.end < 10**9 and 0 <= s.phone < len(PHONES) for s in segments)
    states, frame_segments = frame_labels(segments, 100)
    assert len(states) == len(frame_segments) <= 100


def check_mnist(path):
    digits = mnist.load(path=path)
    np.testing.assert_array_equal(digits.labels, LABELS[:4])  # .npz files have checksums: all of it or nothing
    np.testing.assert_array_equal(digits.images, IMAGES.reshape(4, 784).astype(np.float32) / 255)


def check_cifar(path):
    features = cifar_features.load(path)
    np.testing.assert_array_equal(features.features, FEATURES)
    np.testing.assert_array_equal(features.labels, LABELS)
    assert len(features.class_names) == 3


def write_phn(path):
    rng = np.random.default_rng(3)
    ends = np.cumsum(rng.integers(100, 900, 20))
    path.write_text("".join(f"{b} {e} {rng.choice(PHONES)}\n" for b, e in zip([0, *ends], ends, strict=False)))


READERS = {
    "riff": (lambda path: write_riff(path, SAMPLES), check_wave),
    "sphere": (lambda path: write_sphere(path, SAMPLES), check_wave),
    "phn": (write_phn, check_phn),
    "mnist": (lambda path: np.savez(path, **DIGITS), check_mnist),
    "mnist compressed": (lambda path: np.savez_compressed(path, **DIGITS), check_mnist),
    "cifar": (lambda path: np.savez(path, **CIFAR), check_cifar),
    "cifar compressed": (lambda path: np.savez_compressed(path, **CIFAR), check_cifar),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_corrupted_at_random_is_read_correctly_or_refused_in_a_sentence(tmp_path, kind):
    write, check = READERS[kind]
    path, rng = tmp_path / "a.npz", np.random.default_rng(seed(0))
    write(path)
    whole = path.read_bytes()
    check(path)
    sentences = []
    with traced():
        for number in range(ROUNDS):
            content = corrupted(whole, rng)
            path.write_bytes(content)
            try:
                check(path)
            except DataError as error:
                sentences.append(str(error))
            except Exception as error:
                raise AssertionError(f"number {number}: {type(error).__name__} {error} for {content[:2000]!r}") from error
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    assert len(sentences) > ROUNDS / 4
    assert all(str(path) in text and len(text) < len(str(path)) + 400 for text in sentences), max(sentences, key=len)


@contextlib.contextmanager
def traced():
    """Counts all requested memory, including that of numpy, whether it is used or not."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


# Cases that random corruption would hardly find


def test_a_sphere_file_with_a_header_longer_than_the_file_and_no_samples(tmp_path):
    path = tmp_path / "a.wav"
    write_sphere(path, SAMPLES)
    path.write_bytes(
        path.read_bytes().replace(b"   1024", b"9999999").replace(b"sample_count -i 600", b"sample_count -i 000")
    )
    with pytest.raises(DataError, match=r"a\.wav has no samples"):
        read_wave(path)


def with_header(path, header, method=zipfile.ZIP_STORED, body=b""):
    """Writes an .npz file whose array `features` has this header."""
    text = header.encode().ljust(118 if len(header) < 118 else len(header)) + b"\n"
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("features.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body)
    return path


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER % "1000000000, 250", r"features\.npy has \d+ bytes, but its header says float32\[1000000000, 250\]"),
        (HEADER % "-1000000, -1000000", "but its header says"),
        (HEADER % ("9" * 200 + ", 1"), "but its header says"),
        ("{'descr': 'V2000000000', 'fortran_order': False, 'shape': (4,), }", "but its header says"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (4,), }", "holds pickled objects"),
        ("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (4,), }", "holds pickled objects"),
        ("  {'descr'", "cannot be read"),
        ("(" * 5000, "cannot be read"),
        ("{'descr': (), 'fortran_order': False, 'shape': (4,), }", "cannot be read"),
        ("__import__('os').abort()", "cannot be read"),
    ],
    ids=lambda value: value[:30],
)
def test_a_false_header_is_refused_before_memory_is_allocated(tmp_path, header, message, monkeypatch):
    monkeypatch.setattr(np.lib.format, "read_array", lambda *args, **kwargs: pytest.fail("memory was allocated"))
    with pytest.raises(DataError, match=rf"a\.npz.*{message}"):
        cifar_features.load(with_header(tmp_path / "a.npz", header))


@pytest.mark.parametrize("stated", [5_000_000, 10, 500_000_000], ids=["true size", "smaller", "larger"])
@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED], ids=["bzip2", "deflated"])
def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path, method, stated):
    path = with_header(tmp_path / "a.npz", HEADER % f"{stated}, 1", method, bytes(20_000_000))
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, content.rindex(b"PK\x01\x02") + 24, 129 + 4 * stated)  # the size in the directory
    path.write_bytes(content)
    limit = 3 * 20_000_000 if method == zipfile.ZIP_DEFLATED else MEMORY // 2  # numpy deflates, but never uses bzip2
    with traced():
        with pytest.raises(DataError, match=r"a\.npz (cannot be read|has no labels)"):
            cifar_features.load(path)
        assert tracemalloc.get_traced_memory()[1] < limit


@pytest.mark.parametrize("end", ["9" * 10, "9" * 20, "1e3", "-5", "٣٠٠", "0x10", "1_000"])
def test_malformed_numbers_in_a_transcription(tmp_path, end):
    (tmp_path / "a.phn").write_text(f"0 {end} h#\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.phn, line 1: .* is not `begin end phone`; correct it"):
        read_phn(tmp_path / "a.phn")


@pytest.mark.parametrize("name", ["../features.npy", "/tmp/features.npy", "a/../../features.npy"])
def test_member_names_outside_the_folder_write_nothing(tmp_path, name):
    folder = tmp_path / "inside"
    folder.mkdir()
    with zipfile.ZipFile(folder / "a.npz", "w") as file:
        file.writestr(name, "content")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="has no features and no labels"):
        cifar_features.load(folder / "a.npz")
    assert sorted(tmp_path.rglob("*")) == before
