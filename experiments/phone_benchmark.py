"""What phone classification costs at the paper's size: `make bench-large`.

A network 1353-2000-2000-2000-2000-(183 + 300), 15.68 million weights, minibatches of 500 frames, three hypers.
Time: a step in real time compared with one of plain training, interleaved, best of `rounds`; the time of a step is that of
ten steps minus that of five, divided by five.
Memory: the peak of a process that makes five steps, above that after importing TensorFlow; and the peak of a process that
loads as many frames as TIMIT has, 1.5 million, and fetches minibatches. Also the speed of the features, on one core.
"""

from __future__ import annotations

from experiments.benchmarks import phones
from experiments.common import processes
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from rfho2.planning import memory


def main() -> None:
    """Measures everything; memory in fresh processes."""
    before, config = memory.now(), from_flags(phones.Config)
    if config.only == "memory":
        return phones.peak_of_real_time(config.width, config.steps, before)
    if config.only == "frames":
        return phones.peak_of_frames(phones.TIMIT_FRAMES, before)
    if config.only is None:
        phones.pace_of_features()
        for part in ("frames", "memory"):
            processes.run("phone_benchmark", f"--only={part}", f"--width={config.width}", f"--steps={config.steps}")
    phones.times(config.width, config.steps, config.rounds)


if __name__ == "__main__":
    define_flags(phones.Config)
    run_main(main)
