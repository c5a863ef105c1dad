"""Environment variables describe the processes of a run; an error names the variable that is wrong."""

from types import SimpleNamespace

import pytest

from rfho2.distribute import cluster, watchdog

TWO = {"DTENSOR_JOBS": "a:1,b:2", "DTENSOR_CLIENT_ID": "1"}


def test_the_environment_lists_the_processes():
    assert cluster.read({}) == cluster.Cluster([], 0, 0)
    assert cluster.read({"DTENSOR_JOBS": "a:1"}).jobs == [], "a single process has no others to join"
    assert cluster.read(TWO) == cluster.Cluster(["a:1", "b:2"], 1, 0)
    assert cluster.read({**TWO, "DTENSOR_NUM_CLIENTS": "2", "RFHO2_WATCH_PORT": "77"}).watch_port == 77


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"DTENSOR_CLIENT_ID": "2"}, "DTENSOR_CLIENT_ID is 2; with 2 processes in DTENSOR_JOBS it has to be from 0 to 1"),
        (
            {"DTENSOR_CLIENT_ID": "one"},
            "DTENSOR_CLIENT_ID is 'one'; set it to an integer, at least 0, different in each process",
        ),
        ({"DTENSOR_NUM_CLIENTS": "3"}, "DTENSOR_NUM_CLIENTS is 3, but DTENSOR_JOBS lists 2"),
        ({"DTENSOR_JOBS": "a:1,b"}, "DTENSOR_JOBS is 'a:1,b': 'b' is not host:port"),
        ({"DTENSOR_JOBS": "a:1,a:1"}, "DTENSOR_JOBS is 'a:1,a:1', which lists an address twice"),
        ({"RFHO2_WATCH_PORT": "-1"}, "RFHO2_WATCH_PORT is '-1'; set it to an integer, at least 0."),
    ],
)
def test_a_wrong_variable_is_named(wrong, message):
    with pytest.raises(ValueError) as raised:
        cluster.read({**TWO, **wrong})
    assert message in str(raised.value)


def test_a_missing_process_index_is_reported():
    with pytest.raises(ValueError, match="DTENSOR_CLIENT_ID is not set"):
        cluster.read({"DTENSOR_JOBS": "a:1,b:2"})


def test_what_a_process_does_when_another_is_lost_is_set_before_they_meet(monkeypatch):
    ended, served = [], SimpleNamespace(port=1, accept=lambda: None, peers=[])
    monkeypatch.setattr(watchdog, "_losing", [])
    monkeypatch.setattr(watchdog, "end", lambda *arguments: ended.append(arguments))
    monkeypatch.setattr(watchdog, "Chief", lambda *arguments: served)
    monkeypatch.setattr(watchdog, "leave_at_exit", lambda *arguments, **options: None)
    monkeypatch.setattr(cluster, "chief", lambda: True)
    monkeypatch.setattr(cluster, "mesh", lambda: None)
    monkeypatch.setattr(cluster, "gather", lambda own, mesh: own)
    cluster._watch(cluster.Cluster(["a:1", "b:2"], 0, 0), 1)
    ((process, lose),) = watchdog._losing
    lose(1)
    assert (process, ended) == (0, [(0, ["a:1", "b:2"], 1)])
