"""Solvers of the bilevel-optimisation benchmark (benchopt/benchmark_bilevel), from a checkout of it, on our problems.

`ask` starts this module as a program, in a Python with JAX and benchopt. The program does not import TensorFlow: it reads
the problem from a file, runs a solver, unchanged, with each of some settings, and writes the states that it finds.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
Level = Callable[..., Any]
"""(z, x, start, batch_size) -> mean loss of the rows from `start`, as the solvers call it; z and x are vectors."""

States = list[tuple[float, np.ndarray, np.ndarray]]
"""Seconds, z and x."""

CLASSES = 10
SETS = {"inner": "train/", "outer": "validation/"}
ITERATIONS = 16  # between two looks at the clock


def ask(
    command: str,
    checkout: str,
    problem: str,
    case: Any,
    solver: str,
    parameters: Sequence[Mapping[str, Any]],
    seconds: float,
) -> list[States]:
    """The states that a solver finds, for each of its parameters.

    Args:
      command: what runs the other Python.
      checkout: the work tree of the benchmark.
      problem, case: one of `bilevel.PROBLEMS`, built.
      solver: the name of a file in the benchmark's solvers/, without .py.
      parameters: of the benchmark's class; those that are missing have its defaults.
      seconds: of each run, without compiling.
    """
    from experiments.benchmarks.bilevel import L2

    with tempfile.TemporaryDirectory() as folder:
        arrays = {
            f"{name}/{column}": np.asarray(values)
            for name, rows in (("train", case.train), ("validation", case.validation))
            for column, values in rows._asdict().items()
        }
        arrays |= {"z": np.ravel(case.z), "x": np.ravel(case.x), "l2": np.array(L2)}
        np.savez(Path(folder) / "data.npz", allow_pickle=False, **arrays)
        question = {"problem": problem, "solver": solver, "parameters": list(parameters), "seconds": seconds}
        (Path(folder) / "question.json").write_text(json.dumps(question))
        words = [*shlex.split(command), "-m", "experiments.benchmarks.bilevel_peers", checkout, folder]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        runs = []
        for number in range(len(parameters)):
            with np.load(Path(folder) / f"{number}.npz") as one:
                runs.append([(float(s), z, x) for s, z, x in zip(one["seconds"], one["z"], one["x"], strict=True)])
        return runs


# ---- In the other process ------------------------------------------------------------------------------------------------


def quadratics(arrays: Arrays) -> tuple[Level, Level]:
    """Both levels are means of (u z)^2 / 2 + (w x)^2 / 2 + (l x) (r z) + a z + b x."""
    import jax.numpy as jnp

    def level(name: str) -> Level:
        rows = tuple(jnp.asarray(arrays[f"{name}/{column}"]) for column in ("u", "w", "left", "right", "a", "b"))

        def mean(z: Any, x: Any, start: Any = 0, batch_size: int = 1) -> Any:
            u, w, left, right, a, b = _part(rows, start, batch_size)
            return jnp.mean(0.5 * ((u @ z) ** 2 + (w @ x) ** 2) + (left @ x) * (right @ z) + a @ z + b @ x)

        return mean

    return level("train"), level("validation")


def cleaning(arrays: Arrays) -> tuple[Level, Level]:
    """Softmax regression; sigmoid(x_i) is the weight of training example i."""
    import jax
    import jax.numpy as jnp

    l2 = float(arrays["l2"])
    train, validation = (
        (jnp.asarray(arrays[f"{name}/images"]), jax.nn.one_hot(arrays[f"{name}/labels"], CLASSES))
        for name in ("train", "validation")
    )

    def losses(z: Any, images: Any, labels: Any) -> Any:
        logits = images @ z.reshape(-1, CLASSES)
        return jax.nn.logsumexp(logits, axis=1) - jnp.sum(labels * logits, axis=1)

    def inner(z: Any, x: Any, start: Any = 0, batch_size: int = 1) -> Any:
        *rows, weight_logits = _part((*train, x), start, batch_size)
        return jnp.mean(jax.nn.sigmoid(weight_logits) * losses(z, *rows)) + l2 * jnp.sum(z**2)

    def outer(z: Any, x: Any, start: Any = 0, batch_size: int = 1) -> Any:
        return jnp.mean(losses(z, *_part(validation, start, batch_size)))

    return inner, outer


LEVELS = {"quadratics": quadratics, "data cleaning": cleaning}


def _part(rows: Any, start: Any, size: int) -> Any:
    """`size` rows; if fewer are left, the last ones."""
    import jax

    return jax.tree.map(lambda one: one if size == len(one) else jax.lax.dynamic_slice_in_dim(one, start, size), rows)


def _solver_class(checkout: Path, name: str) -> Any:
    """The benchmark's class, from the file of that name."""
    sys.path.insert(0, str(checkout))  # for its own utilities
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", checkout / "solvers" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Solver


class Recorder:
    """What a solver calls between its chunks of steps: keeps some states, and ends the run.

    Waiting for results counts, keeping them does not.
    """

    def __init__(self, solver: Any, seconds: float):
        self._solver, self._seconds = solver, seconds
        self._spent, self._due, self._started, self._began = 0.0, 0.0, False, 0.0
        self.states: States = []

    def __call__(self) -> bool:
        """Whether to continue."""
        import jax

        z, x = jax.block_until_ready((self._solver.inner_var, self._solver.outer_var))
        if self._started:
            self._spent += time.perf_counter() - self._began
        self._started = True
        finite = bool(np.isfinite(x).all())
        if self._spent >= min(self._due, self._seconds) or not finite:
            self.states.append((self._spent, np.array(z), np.array(x)))
            self._due = max(0.01, 1.15 * self._spent)
        self._began = time.perf_counter()
        return finite and self._spent < self._seconds


def main(checkout: str, folder: str) -> None:
    """Runs a solver with each of its parameters."""
    import jax.numpy as jnp

    place = Path(folder)
    asked = json.loads((place / "question.json").read_text())
    arrays = dict(np.load(place / "data.npz"))
    inner, outer = LEVELS[asked["problem"]](arrays)
    sizes = {
        f"n_{level}_samples": len(arrays[next(n for n in arrays if n.startswith(part))]) for level, part in SETS.items()
    }
    kind = _solver_class(Path(checkout), asked["solver"])
    for number, parameters in enumerate(asked["parameters"]):
        one = kind.get_instance(**parameters, eval_freq=ITERATIONS)
        # Without a dtype, arrays would be weakly typed, and the solvers would be compiled again once they are not.
        start = {"inner_var0": jnp.asarray(arrays["z"], jnp.float32), "outer_var0": jnp.asarray(arrays["x"], jnp.float32)}
        one.set_objective(f_inner=inner, f_outer=outer, **sizes, **start)  # compiles
        recorder = Recorder(one, asked["seconds"])
        one.run(recorder)
        seconds, z, x = map(np.stack, zip(*recorder.states, strict=True))
        np.savez(place / f"{number}.npz", seconds=seconds, z=z, x=x)


if __name__ == "__main__":
    main(*sys.argv[1:])
