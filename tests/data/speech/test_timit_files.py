"""Sentences found in both layouts, and divided among training, validation and testing."""

from pathlib import Path

import numpy as np
import pytest

from data.errors import DataError
from data.speech import timit, timit_files
from tests.support.corpora import flat, ldc


@pytest.mark.parametrize("case", [str.upper, str.lower, str.title])
@pytest.mark.parametrize("above", ["", "TIMIT", "timit/Timit"])
def test_the_ldc_layout_in_any_case(tmp_path, case, above):
    ldc(tmp_path / above, case)
    found = timit.find(tmp_path)
    assert [(u.part, u.speaker, u.sentence) for u in found] == [
        ("test", "faks0", "sx37"),
        ("test", "mdab0", "sx37"),
        ("train", "fcjf0", "sx37"),
        ("train", "mdac0", "sx37"),
        ("train", "faem0", "sx37"),
    ]
    assert all(u.wave.is_file() and u.phn.is_file() for u in found)
    assert len(timit.find(tmp_path, include_sa=True)) == 10


def test_the_flat_layout(small):
    found = timit.find(small)
    assert len(found) == 48
    assert found[0] == timit.Utterance(
        "fabc0", "si10", "", small / "dr1-fabc0" / "si10.wav", small / "dr1-fabc0" / "si10.phn"
    )
    assert {u.sentence for u in found} == {"si10", "sx3", "sx40"}
    assert {u.sentence for u in timit.find(small, include_sa=True)} == {"sa1", "si10", "sx3", "sx40"}


def test_other_files_are_no_sentences(own):
    before = timit.find(own)
    (own / "dr1-fabc0" / "sx1.wav.wav").write_bytes(b"a copy")
    (own / "dr1-fabc0" / "._sx1.wav").write_bytes(b"what some systems leave behind")
    (own / "dr1-fabc0" / "sx1.txt").write_text("words")
    (own / "doc").mkdir()
    (own / "readme.doc").write_text("words")
    assert timit.find(own) == before


def test_nothing_to_find(tmp_path):
    with pytest.raises(DataError, match=r"none is not a folder; give the one that holds TRAIN and TEST"):
        timit.find(tmp_path / "none")
    with pytest.raises(DataError, match=r"neither TRAIN/DR1/FCJF0/SX37\.WAV nor dr1-fcjf0/sx37\.wav"):
        timit.find(tmp_path)
    flat(tmp_path, 1, ("sa1", "sa2"))
    with pytest.raises(DataError, match=r"only SA sentences \(2 of them\); read them with include_sa"):
        timit.find(tmp_path)


def test_a_folder_that_cannot_be_read(own, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DataError, match=r"own cannot be read \(Permission denied\)"):
        timit.find(own)


def test_a_sentence_that_is_there_twice(own):
    (own / "dr1-fabc0" / "SX1.WAV").write_bytes(b"")
    if len(list((own / "dr1-fabc0").glob("*1.[wW]*"))) < 2:
        pytest.skip("upper and lower case are the same on this disk")
    with pytest.raises(DataError, match=r"SX1\.WAV and sx1\.wav are the same sentence twice"):
        timit.find(own)


def speakers_of(found, parts):
    return [{found[i].speaker for i in part} for part in parts]


def test_the_ldc_split(tmp_path):
    found = timit.find(ldc(tmp_path), include_sa=True)
    parts = timit.split(found)
    assert speakers_of(found, parts) == [{"fcjf0", "mdac0", "faem0"}, {"faks0"}, {"mdab0"}]
    assert sorted(np.concatenate(parts)) == list(range(10))
    assert len(timit_files.CORE_TEST) == 24
    with pytest.raises(DataError, match="fold is 1, but the split of the whole corpus is a fixed one; choose 0"):
        timit.split(found, 1)
    with pytest.raises(DataError, match="no utterances of the core test set"):
        timit.split([u for u in found if u.speaker != "mdab0"])


def people(count):
    return [timit.Utterance(f"m{s:03d}", f"sx{i}", "", Path(), Path()) for s in range(count) for i in range(2)]


@pytest.mark.parametrize(("count", "some", "folds"), [(16, 3, 5), (3, 1, 3), (5, 1, 5), (8, 2, 4), (32, 6, 5), (160, 30, 5)])
def test_the_folds_of_a_flat_corpus(count, some, folds):
    found, tested = people(count), []
    for fold in range(folds):
        parts = timit.split(found, fold)
        assert sorted(np.concatenate(parts)) == list(range(len(found)))
        train, validation, test = speakers_of(found, parts)
        assert not (train & validation | train & test | validation & test)
        assert (len(train), len(validation), len(test)) == (count - 2 * some, some, some)
        tested.append(test)
    assert len(set.union(*tested)) == folds * some
    for fold in (-1, folds):
        with pytest.raises(DataError, match=f"fold is {fold}; {count} speakers make {folds} folds: choose 0 to {folds - 1}"):
            timit.split(found, fold)


def test_a_fold_validates_on_what_the_next_one_tests_on():
    found = people(16)
    parts = [speakers_of(found, timit.split(found, fold)) for fold in range(5)]
    assert all(parts[fold][1] == parts[fold + 1][2] for fold in range(4))
    assert [p[2] for p in parts] != [{f"m{s:03d}" for s in range(3 * f, 3 * f + 3)} for f in range(5)]  # shuffled


def test_the_split_does_not_depend_on_the_order_of_the_utterances():
    found = people(16)
    assert speakers_of(found, timit.split(found, 2)) == speakers_of(found[::-1], timit.split(found[::-1], 2))


def test_too_few_speakers():
    with pytest.raises(DataError, match="there are 2 speakers; training, validation and testing need 3"):
        timit.split(people(2))
