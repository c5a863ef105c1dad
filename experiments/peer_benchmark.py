"""rfho2 compared with JAX and PyTorch on the same computation: seconds and peak memory, after the values have been checked.

pip install -e ".[peers]"
python -m experiments.peer_benchmark --memory
python -m experiments.peer_benchmark --cases=mlp_reverse --steps=20 --rounds=1

hyper_cleaning: 5,000 hypers, T = 100 steps of softmax regression, reverse mode (peer_hyper_cleaning.py).
mlp_reverse, mlp_forward: 3 hypers, T = 200 steps of a 784-200-200-10 network (peer_mlp.py).
phones: 3 hypers, 20 steps of the phone network in real time, at the paper's size (peer_phones.py); meant for a GPU.

On a GPU where JAX and TensorFlow need different libraries, JAX computes in separate processes:
python -m experiments.peer_benchmark --cases=phones --frameworks=jax --memory --jax_command="python3"

Times: float32, one thread per core, interleaved, best of several; compilation does not count. Memory on a CPU: the peak of a
second call above the memory of the process before the first, each contestant in a fresh process. The data, the libraries and
a run of two steps are loaded before and do not count. Memory on a GPU: the peaks of the frameworks' own allocators.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from experiments.benchmarks import peers
from experiments.benchmarks.peers import CASES, Config, Invocation
from experiments.common.binary import environment, run_main
from experiments.common.config import define_flags, from_flags


def main() -> None:
    """Compares on the cases asked for."""
    config, invocation = from_flags(Config), from_flags(Invocation)
    versions = peers.versions(config, invocation.jax_command)
    if invocation.peak_of is not None:
        assert config.steps is not None  # the parent process gives both
        return print(peers.peak_memory(CASES[config.cases[0]], config.steps, invocation.peak_of))
    peers.prepare(config, invocation.jax_command)
    print(", ".join(f"{name} {version}" for name, version in (environment() | versions).items()))
    outcomes = {}
    for name in config.cases:
        outcomes[name] = peers.run(name, config, invocation.jax_command)
        print(peers.report(f"{name}, T = {config.steps or CASES[name].STEPS}", outcomes[name]), flush=True)
    record = peers.Record(**dataclasses.asdict(config), peers=versions)
    peers.write(Path(invocation.output_dir) / "results.json", record, outcomes)


if __name__ == "__main__":
    define_flags(Config)
    define_flags(Invocation)
    run_main(main)
