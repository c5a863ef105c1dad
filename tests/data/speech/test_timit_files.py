"""Finding sentences in both layouts, and splitting them by speaker."""

from pathlib import Path

import numpy as np
import pytest

from data.errors import DataError
from data.speech import timit, timit_files
from tests.support.corpora import write_flat_corpus, write_ldc_corpus


@pytest.mark.parametrize("case", [str.upper, str.lower, str.title])
@pytest.mark.parametrize("above", ["", "TIMIT", "timit/Timit"])
def test_the_ldc_layout_in_any_case(tmp_path, case, above):
    write_ldc_corpus(tmp_path / above, case)
    utterances = timit.find(tmp_path)
    assert [(u.part, u.speaker, u.sentence) for u in utterances] == [
        ("test", "faks0", "sx37"),
        ("test", "mdab0", "sx37"),
        ("train", "fcjf0", "sx37"),
        ("train", "mdac0", "sx37"),
        ("train", "faem0", "sx37"),
    ]
    assert all(u.wave.is_file() and u.phn.is_file() for u in utterances)
    assert len(timit.find(tmp_path, include_sa=True)) == 10


def test_the_flat_layout(noise_corpus):
    utterances = timit.find(noise_corpus)
    assert len(utterances) == 48
    assert utterances[0] == timit.Utterance(
        "fabc0", "si10", "", noise_corpus / "dr1-fabc0" / "si10.wav", noise_corpus / "dr1-fabc0" / "si10.phn"
    )
    assert {u.sentence for u in utterances} == {"si10", "sx3", "sx40"}
    assert {u.sentence for u in timit.find(noise_corpus, include_sa=True)} == {"sa1", "si10", "sx3", "sx40"}


def test_other_files_are_ignored(breakable_corpus):
    before = timit.find(breakable_corpus)
    (breakable_corpus / "dr1-fabc0" / "sx1.wav.wav").write_bytes(b"a copy")
    (breakable_corpus / "dr1-fabc0" / "._sx1.wav").write_bytes(b"a leftover of some systems")
    (breakable_corpus / "dr1-fabc0" / "sx1.txt").write_text("words")
    (breakable_corpus / "doc").mkdir()
    (breakable_corpus / "readme.doc").write_text("words")
    assert timit.find(breakable_corpus) == before


def test_folders_without_speech(tmp_path):
    with pytest.raises(DataError, match=r"none is not a folder; give the one that contains TRAIN and TEST"):
        timit.find(tmp_path / "none")
    with pytest.raises(DataError, match=r"no speech: no file like TRAIN/DR1/FCJF0/SX37\.WAV or dr1-fcjf0/sx37\.wav"):
        timit.find(tmp_path)
    write_flat_corpus(tmp_path, 1, ("sa1", "sa2"))
    with pytest.raises(DataError, match=r"only SA sentences \(2 of them\); read them with include_sa"):
        timit.find(tmp_path)


def test_an_unreadable_folder(breakable_corpus, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DataError, match=r"breakable cannot be read \(Permission denied\)"):
        timit.find(breakable_corpus)


def test_a_duplicate_sentence(breakable_corpus):
    (breakable_corpus / "dr1-fabc0" / "SX1.WAV").write_bytes(b"")
    if len(list((breakable_corpus / "dr1-fabc0").glob("*1.[wW]*"))) < 2:
        pytest.skip("this disk ignores case")
    with pytest.raises(DataError, match=r"SX1\.WAV and sx1\.wav are the same sentence; keep one of them"):
        timit.find(breakable_corpus)


def speakers_of(utterances, parts):
    return [{utterances[i].speaker for i in part} for part in parts]


def test_the_ldc_split(tmp_path):
    utterances = timit.find(write_ldc_corpus(tmp_path), include_sa=True)
    parts = timit.split(utterances)
    assert speakers_of(utterances, parts) == [{"fcjf0", "mdac0", "faem0"}, {"faks0"}, {"mdab0"}]
    assert sorted(np.concatenate(parts)) == list(range(10))
    assert len(timit_files.CORE_TEST) == 24
    with pytest.raises(DataError, match="fold is 1, but the split of the whole corpus is fixed; choose 0"):
        timit.split(utterances, 1)
    with pytest.raises(DataError, match="no utterances of the core test set"):
        timit.split([u for u in utterances if u.speaker != "mdab0"])


def flat_utterances(count):
    """Two sentences by each of `count` speakers."""
    return [timit.Utterance(f"m{s:03d}", f"sx{i}", "", Path(), Path()) for s in range(count) for i in range(2)]


@pytest.mark.parametrize(
    ("count", "held_out", "folds"), [(16, 3, 5), (3, 1, 3), (5, 1, 5), (8, 2, 4), (32, 6, 5), (160, 30, 5)]
)
def test_the_folds_of_a_flat_corpus(count, held_out, folds):
    utterances, tested = flat_utterances(count), []
    for fold in range(folds):
        parts = timit.split(utterances, fold)
        assert sorted(np.concatenate(parts)) == list(range(len(utterances)))
        train, validation, test = speakers_of(utterances, parts)
        assert not (train & validation | train & test | validation & test)
        assert (len(train), len(validation), len(test)) == (count - 2 * held_out, held_out, held_out)
        tested.append(test)
    assert len(set.union(*tested)) == folds * held_out
    for fold in (-1, folds):
        with pytest.raises(DataError, match=f"fold is {fold}; {count} speakers make {folds} folds: choose 0 to {folds - 1}"):
            timit.split(utterances, fold)


def test_a_fold_validates_on_the_test_speakers_of_the_next_fold():
    utterances = flat_utterances(16)
    parts = [speakers_of(utterances, timit.split(utterances, fold)) for fold in range(5)]
    assert all(parts[fold][1] == parts[fold + 1][2] for fold in range(4))
    assert [p[2] for p in parts] != [{f"m{s:03d}" for s in range(3 * f, 3 * f + 3)} for f in range(5)]  # shuffled


def test_the_split_does_not_depend_on_the_order_of_the_utterances():
    utterances = flat_utterances(16)
    assert speakers_of(utterances, timit.split(utterances, 2)) == speakers_of(
        utterances[::-1], timit.split(utterances[::-1], 2)
    )


def test_too_few_speakers():
    with pytest.raises(DataError, match="there are 2 speakers; training, validation and testing need at least 3"):
        timit.split(flat_utterances(2))
