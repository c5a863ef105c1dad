"""RIFF and SPHERE files: written files are read back, and broken ones give one sentence that names the file."""

import struct

import numpy as np
import pytest

from data.errors import DataError
from data.speech.audio import RATE, read_wave, write_riff, write_sphere

SAMPLES = np.random.default_rng(0).integers(-(2**15), 2**15, 1001).astype(np.int16)


@pytest.mark.parametrize("write", [write_riff, write_sphere])
def test_written_files_are_read_back(tmp_path, write):
    write(tmp_path / "a.wav", SAMPLES)
    samples = read_wave(tmp_path / "a.wav")
    assert samples.dtype == np.int16
    np.testing.assert_array_equal(samples, SAMPLES)


def test_both_byte_orders_of_sphere(tmp_path):
    for order in ("01", "10"):
        write_sphere(tmp_path / f"{order}.wav", SAMPLES, order)
        np.testing.assert_array_equal(read_wave(tmp_path / f"{order}.wav"), SAMPLES)
    assert (tmp_path / "01.wav").read_bytes()[1024:1026] == SAMPLES[:1].astype("<i2").tobytes()
    assert (tmp_path / "10.wav").read_bytes()[1024:1026] == SAMPLES[:1].astype(">i2").tobytes()


def test_scipy_reads_and_writes_the_same_riff_files(tmp_path):
    wavfile = pytest.importorskip("scipy.io.wavfile")
    write_riff(tmp_path / "a.wav", SAMPLES)
    rate, samples = wavfile.read(tmp_path / "a.wav")
    assert rate == RATE
    np.testing.assert_array_equal(samples, SAMPLES)
    wavfile.write(tmp_path / "b.wav", RATE, SAMPLES)
    np.testing.assert_array_equal(read_wave(tmp_path / "b.wav"), SAMPLES)


def riff(*chunks):
    body = b"WAVE" + b"".join(name + struct.pack("<I", len(c)) + c + b"\0" * (len(c) % 2) for name, c in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def form(tag=1, channels=1, rate=RATE, bits=16):
    return b"fmt ", struct.pack("<HHIIHH", tag, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)


DATA = (b"data", SAMPLES.tobytes())


def test_unknown_chunks_are_skipped(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(riff((b"LIST", b"odd"), form(), (b"junk", b"even"), DATA, (b"id3 ", b"after")))
    np.testing.assert_array_equal(read_wave(path), SAMPLES)


def test_pcm_in_the_extensible_format(tmp_path):
    path = tmp_path / "a.wav"
    extension = struct.pack("<HHIH", 22, 16, 4, 1) + bytes(14)
    path.write_bytes(riff((b"fmt ", form(tag=0xFFFE)[1] + extension), DATA))
    np.testing.assert_array_equal(read_wave(path), SAMPLES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.wav is empty"),
        (b"ID3 something else", "begins with b'ID3 some'; a RIFF .wav or a NIST SPHERE"),
        (riff(form(), DATA)[:-1], "has 1000 samples, but its header says 1001; it is cut off"),
        (riff(form(), DATA)[:44], "has 0 samples, but its header says 1001"),
        (riff(form(), DATA)[:40], "no 'data' chunk within its 40 bytes"),
        (riff(form()), "no 'data' chunk"),
        (riff(DATA, form()), "no complete 'fmt ' chunk before its samples"),
        (riff((b"fmt ", b"short"), DATA), "no complete 'fmt ' chunk"),
        (riff(form(), (b"data", b"")), "has no samples"),
        (riff(form(tag=3, bits=32), DATA), "RIFF format 3, which is not PCM"),
        (
            riff(form(rate=8000), DATA),
            r"1 channel\(s\) of 16 bits at 8000 Hz; convert it to 1 channel of 16 bits at 16000 Hz",
        ),
        (riff(form(channels=2), DATA), r"2 channel\(s\) of 16 bits"),
        (riff(form(bits=8), DATA), r"1 channel\(s\) of 8 bits"),
    ],
)
def test_a_bad_riff_file(tmp_path, content, message):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.wav.*{message}" if "a.wav" not in message else message):
        read_wave(tmp_path / "a.wav")


def sphere(changes=None, data=DATA[1], end="end_head", length="   1024"):
    fields = {
        "database_id": "-s5 TIMIT",
        "speaker": "-s11 two  words",
        "channel_count": "-i 1",
        "sample_count": f"-i {len(SAMPLES)}",
        "sample_rate": "-i 16000",
        "sample_n_bytes": "-i 2",
        "sample_byte_format": "-s2 01",
    } | (changes or {})
    lines = ["NIST_1A", length, *(f"{name} {value}" for name, value in fields.items()), end, ""]
    return "\n".join(lines).encode().ljust(1024) + data


def test_a_sphere_file_without_a_coding_is_pcm(tmp_path):
    (tmp_path / "a.wav").write_bytes(sphere())
    np.testing.assert_array_equal(read_wave(tmp_path / "a.wav"), SAMPLES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            sphere({"sample_coding": "-s26 pcm,embedded-shorten-v2.00"}),
            r"compressed \(pcm,embedded-shorten-v2.00\).*sph2pipe",
        ),
        (sphere({"sample_coding": "-s4 ulaw"}), "sample_coding 'ulaw'; convert it to pcm"),
        (sphere({"channel_count": "-i 2"}), r"2 channel\(s\)"),
        (sphere({"sample_rate": "-i 8000"}), "at 8000 Hz"),
        (sphere({"sample_n_bytes": "-i 1"}), "of 8 bits"),
        (sphere({"sample_byte_format": "-s1 1"}), "sample_byte_format '1'; 01 or 10"),
        (sphere({"sample_count": "-i many"}), "sample_count 'many' in its header"),
        (sphere({"sample_count": "-i " + "9" * 500}), "sample_count '999"),
        (sphere({"sample_count": "-i 1002"}), "has 1001 samples, but its header says 1002; it is cut off"),
        (sphere({"sample_count": "-i 0"}), "has no samples"),
        (sphere(data=b""), "has 0 samples"),
        (sphere()[:100], "no end_head in its NIST_1A header of 1024 bytes"),
        (sphere(end=""), "no end_head"),
        (sphere(length="  short"), "the length b'short'"),
        (b"NIST_1A", "the length b''"),
    ],
)
def test_a_bad_sphere_file(tmp_path, content, message):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.wav.*{message}"):
        read_wave(tmp_path / "a.wav")


def test_a_missing_and_an_unreadable_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.wav does not exist; every \.phn file needs a \.wav file beside it"):
        read_wave(tmp_path / "none.wav")
    with pytest.raises(DataError, match="cannot be read"):
        read_wave(tmp_path)


@pytest.mark.parametrize("write", [write_riff, write_sphere])
@pytest.mark.parametrize("samples", [np.zeros(5), np.zeros((5, 2), np.int16)])
def test_only_16_bit_mono_samples_are_written(tmp_path, write, samples):
    with pytest.raises(DataError, match=r"a\.wav.*int16\[n\] is needed"):
        write(tmp_path / "a.wav", samples)
    assert not (tmp_path / "a.wav").exists()
