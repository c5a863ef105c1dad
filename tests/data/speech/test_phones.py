"""The phones, transcriptions (with every kind of bad line), and the state of each frame."""

from fractions import Fraction

import numpy as np
import pytest

from data.errors import DataError
from data.speech.phones import PHONES, STATES, Segment, frame_labels, read_phn

SIL, AA = PHONES.index("h#"), PHONES.index("aa")


def test_there_are_61_phones_in_order():
    assert len(set(PHONES)) == len(PHONES) == 61
    assert list(PHONES) == sorted(PHONES)
    assert {"h#", "pau", "epi", "ax-h", "bcl", "dcl", "gcl", "pcl", "tcl", "kcl", "eng", "zh"} <= set(PHONES)


@pytest.mark.parametrize("text", ["0 7 h#\n7 30 aa\n", "0 7 h#\r\n7 30 aa", "0\t7  h#\n 7 30 aa \n\n \n"])
def test_a_transcription(tmp_path, text):
    (tmp_path / "x.phn").write_bytes(text.encode())
    assert read_phn(tmp_path / "x.phn") == [Segment(0, 7, SIL), Segment(7, 30, AA)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0 7 h#\n7 30 aaa\n", "line 2: 'aaa' is not one of the 61 phones of TIMIT"),
        ("0 7 h#\n7 30 AA\n", "line 2: 'AA' is not one of the 61 phones of TIMIT"),
        ("0 7 h#\n7 30 \xe9\n", "line 2: '.*' is not one of the 61 phones of TIMIT"),
        ("0 7 h#\n7 30\n", "line 2: '7 30' is not `begin end phone`"),
        ("0 7 h#\n7 30 aa aa\n", "line 2: '7 30 aa aa' is not `begin end phone`"),
        ("0 7 h#\n\n7 30 aa\n", "line 2: '' is not `begin end phone`"),
        ("0 7 h#\n7 3x aa\n", "line 2: '7 3x aa' is not `begin end phone`"),
        ("-1 7 h#\n", "line 1: '-1 7 h#' is not `begin end phone`"),
        ("0 1_0 h#\n", "line 1: '0 1_0 h#' is not `begin end phone`"),
        ("0 " + "9" * 5000 + " h#\n", "line 1: '0 999.*' is not `begin end phone`"),
        ("0 7 h#\n7 7 aa\n", "line 2: the segment ends at 7, which is not after its beginning at 7"),
        ("0 7 h#\n7 5 aa\n", "line 2: the segment ends at 5, which is not after its beginning at 7"),
        ("0 7 h#\n7 9 b\n8 30 aa\n", "line 3: the segment from 8 to 30 overlaps the previous line, which ends at 9"),
        ("0 7 h#\n7 9 b\n10 30 aa\n", "line 3: the segment from 10 to 30 leaves a gap: the previous line ends at 9"),
        ("3 7 h#\n7 9 b\n", "line 1: the segment from 3 to 7 is the first segment and must begin at 0"),
    ],
)
def test_a_bad_line_is_named(tmp_path, lines, message):
    (tmp_path / "dr1").mkdir()
    (tmp_path / "dr1" / "x.phn").write_bytes(lines.encode("latin-1"))
    with pytest.raises(DataError, match=rf"dr1.x\.phn, {message}; correct it\.$"):
        read_phn(tmp_path / "dr1" / "x.phn")


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_an_empty_file(tmp_path, text):
    (tmp_path / "x.phn").write_text(text)
    with pytest.raises(DataError, match=r"x\.phn is empty"):
        read_phn(tmp_path / "x.phn")


def test_a_missing_and_an_unreadable_file(tmp_path):
    with pytest.raises(DataError, match=r"x\.phn does not exist; every \.wav file needs a \.phn file beside it"):
        read_phn(tmp_path / "x.phn")
    with pytest.raises(DataError, match="cannot be read"):
        read_phn(tmp_path)


def labels_one_by_one(segments, frames, hop, width):
    """The definition of frame_labels, with exact fractions and no arrays."""
    labels = []
    for i in range(frames):
        centre = hop * i + Fraction(width, 2)
        for s, (begin, end, phone) in enumerate(segments):
            if begin <= centre < end:
                labels.append((STATES * phone + int(STATES * (centre - begin) / (end - begin)), s))
    return labels


def random_segments(seed):
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.integers(1, 1500, 30))
    phones = rng.integers(0, 61, 30)
    return [Segment(int(b), int(e), int(p)) for b, e, p in zip([0, *ends[:-1]], ends, phones, strict=True)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("hop", "width"), [(160, 400), (10, 20)])
def test_the_labels_agree_with_the_definition(seed, hop, width):
    segments = random_segments(seed)
    frames = segments[-1].end // hop + 7
    states, frame_segments = frame_labels(segments, frames, hop, width)
    assert (states.dtype, frame_segments.dtype) == (np.uint8, np.int32)
    assert list(zip(states.tolist(), frame_segments.tolist(), strict=True)) == labels_one_by_one(
        segments, frames, hop, width
    )
    assert len(states) < frames


def test_segments_exclude_their_ends_and_thirds_include_their_beginnings():
    states, segments = frame_labels([Segment(0, 200, SIL), Segment(200, 680, AA)], 10)  # centres 200, 360, 520, 680, ...
    assert segments.tolist() == [1, 1, 1]
    assert states.tolist() == [3 * AA, 3 * AA + 1, 3 * AA + 2]


def test_the_last_state_of_the_last_phone_fits_into_8_bits():
    states, _ = frame_labels([Segment(0, 201, 60)], 1)
    assert states.tolist() == [182]


def test_no_more_labels_than_frames():
    states, segments = frame_labels([Segment(0, 10**6, AA)], 3)
    assert len(states) == len(segments) == 3


@pytest.mark.parametrize("segments", [[], [Segment(5, 900, AA)]])
def test_a_transcription_has_to_begin_at_sample_0(segments):
    with pytest.raises(DataError, match="must begin at sample 0"):
        frame_labels(segments, 3)
