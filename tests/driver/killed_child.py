"""A run that is killed: test_resume.py starts `python -m tests.driver.killed_child CASE DIRECTORY HOW AT`."""

import os
import signal
import sys
from pathlib import Path

import rfho2 as rf
from tests.support.checkpoints import TOTAL, run

LONG = 20_000  # more hyper-iterations than a run finishes before its parent kills it


class Killing:
    """Kills its own process at hyper-iteration `at`, or when the run flushes a file for the `at`-th time, counted from 0."""

    def __init__(self, moment, at):
        self.moment, self.left = moment, at
        if moment == "at_fsync":
            os.fsync = lambda descriptor, fsync=os.fsync: (self.count(), fsync(descriptor))

    def on_hyper_iteration(self, *_):
        if self.moment == "at_iteration":
            self.count()

    def count(self):
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(case, directory, moment, at="0"):
    log = rf.CSVLogger(Path(directory).with_suffix(".csv"))
    run(directory, LONG if moment == "by_parent" else TOTAL, case, [log, Killing(moment, int(at))])


if __name__ == "__main__":
    main(*sys.argv[1:])
