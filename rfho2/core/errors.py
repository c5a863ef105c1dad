"""Checks of user input that several folders share; a message names the argument, shows its value and says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest, Result


class DivergenceError(ArithmeticError):
    """A value or hypergradient is not finite, or (with `.finite`) a value exceeds a limit.

    `.what` is a short description; `.result` holds every hyper-iteration that was finished before.
    """

    def __init__(self, message: str, iteration: int, result: Result | None = None, finite: bool = False, what: str = ""):
        super().__init__(message)
        self.iteration = iteration
        self.result = result
        self.finite = finite
        self.what = what


def _floating_tensor(argument: str, value: Any, dtype: tf.DType | None = None) -> tf.Tensor:
    """`value` as a floating tensor, or an error that names the leaf."""
    try:
        # Through NumPy where a dtype is requested: TensorFlow alone would first round a Python float to float32.
        tensor = tf.convert_to_tensor(value if dtype is None or tf.is_tensor(value) else np.asarray(value))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument} is {type(value).__name__} {value!r:.80}, which is not a tensor: {error}") from None
    if not tensor.dtype.is_floating:
        raise TypeError(
            f"{argument} has dtype {tensor.dtype.name}; only floating tensors can be differentiated. "
            f"Pass it as float32 or float64 (1.0 instead of 1), or put it into the batch."
        )
    if tensor.dtype == tf.bfloat16:  # 8 bits are too few for sums over steps, and NumPy, which writes checkpoints, lacks it
        raise TypeError(
            f"{argument} has dtype bfloat16; keep it in float32 and cast inside the loss, as mixed precision does."
        )
    return tensor if dtype is None or tensor.dtype == dtype else tf.cast(tensor, dtype)


def checked_params(params: Nest) -> Nest:
    """`params` with every leaf a tensor, all of one floating dtype."""
    leaves = [(path, _floating_tensor(f"params leaf '{path}'", leaf)) for path, leaf in nest.leaves_with_path(params)]
    if not leaves:
        raise ValueError(f"params is {params!r}: there is nothing to train. Pass at least one tensor.")
    dtypes = {leaf.dtype.name: path for path, leaf in leaves}
    if len(dtypes) > 1:
        examples = ", ".join(f"'{path}' is {dtype}" for dtype, path in dtypes.items())
        raise TypeError(f"params mix dtypes: {examples}. Cast all of them to one dtype, for instance with tf.cast.")
    return nest.pack(params, [leaf for _, leaf in leaves])


def checked_hypers(hypers: Mapping[str, Any], params: Nest) -> dict[str, tf.Tensor]:
    """`hypers` as tensors of the params' dtype."""
    if not isinstance(hypers, Mapping) or not all(isinstance(name, str) for name in hypers):
        raise TypeError(f"hypers is {hypers!r:.80}; pass a flat dict from name to value, such as {{'lr': 0.1}}.")
    if not hypers:
        raise ValueError("hypers is empty: there is nothing to tune. Pass at least one, such as {'lr': 0.1}.")
    for name, value in hypers.items():
        if isinstance(value, Mapping):
            raise TypeError(f"hyper '{name}' is a dict; hypers are flat: give each of {sorted(value)} its own name.")
    dtype = nest.flatten(params)[0].dtype
    return {name: _floating_tensor(f"hyper '{name}'", value, dtype) for name, value in hypers.items()}


def checked_batch(argument: str, batch: Nest) -> Nest:
    """`batch`, which may not be empty: the gradient of a mean over no examples is 0, and training would silently stop."""
    for path, leaf in nest.leaves_with_path(batch):
        shape = tf.TensorShape(getattr(leaf, "shape", ()))
        if shape.rank and shape[0] == 0:
            raise ValueError(f"{argument}: leaf '{path}' has shape {list(shape)}: no examples. Pass at least one.")
    return batch


def check_finite(hypers: Hypers) -> None:
    """Requires finite hypers, which a run can start from."""
    for name, value in hypers.items():
        bad = np.asarray(value)[~np.isfinite(np.asarray(value))]
        if len(bad):
            raise ValueError(
                f"hyper '{name}' starts at {bad[0]} ({len(bad)} of {np.size(value)} entries); start from finite numbers."
            )


def check_count(argument: str, value: Any, most: int | None = None) -> int:
    """Requires an integer from 1 to `most`; returns it as a Python int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{argument} is {value!r}; it has to be an integer, at least 1.")
    if most is not None and value > most:
        raise ValueError(f"{argument} is {value}; it can be at most {most} here.")
    return int(value)


def check_callable(argument: str, value: Any, signature: str) -> None:
    """Requires a function."""
    if not callable(value):
        raise TypeError(f"{argument} is {type(value).__name__} {value!r:.80}; pass a function {signature}.")


def unknown_hyper(where: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not among the hypers."""
    return ValueError(f"{where} names the hyper '{name}', but the hypers are {sorted(known)}. Add it or correct the name.")


def check_step(before: Nest, after: Nest) -> None:
    """Requires that s_t has the structure, shapes and dtypes of s_{t-1}."""
    try:
        tf.nest.assert_same_structure(before, after)
    except (TypeError, ValueError):
        was, now = ([path for path, _ in nest.leaves_with_path(n)] for n in (before, after))
        raise ValueError(
            f"dynamics.step changed the structure of the state: it took {was} ({type(before).__name__}) and returned "
            f"{now} ({type(after).__name__}). Return the state in the structure in which it came."
        ) from None
    for (path, old), (_, new) in zip(nest.leaves_with_path(before), nest.leaves_with_path(after), strict=True):
        new = tf.convert_to_tensor(new)
        if old.dtype != new.dtype or not old.shape.is_compatible_with(new.shape):
            raise ValueError(
                f"dynamics.step changed state leaf '{path}' from {old.dtype.name}{list(old.shape)} to "
                f"{new.dtype.name}{list(new.shape)}. Shapes and dtypes have to stay the same from step to step."
            )


def check_state(state: Nest, dtype: tf.DType) -> None:
    """Requires that every leaf of the state is a tensor of the params' floating dtype."""
    for path, leaf in nest.leaves_with_path(state):
        if not tf.is_tensor(leaf):
            raise TypeError(
                f"dynamics.init returned state leaf '{path}' as {type(leaf).__name__}; return a tensor, such as "
                f"tf.constant(x, tf.{dtype.name})."
            )
        if leaf.dtype != dtype:
            raise TypeError(
                f"dynamics.init returned state leaf '{path}' of dtype {leaf.dtype.name}; the state is differentiated, so "
                f"every leaf has to be {dtype.name}, like the params. A step counter is not needed: step receives t."
            )


def check_scalar(argument: str, value: Any, dtype: tf.DType) -> None:
    """An objective or a loss is one floating number, of the params' dtype."""
    if not tf.is_tensor(value):
        raise TypeError(f"{argument} returned {type(value).__name__} {value!r:.80}; return a scalar tensor.")
    if not value.dtype.is_floating or value.shape.rank != 0:
        raise ValueError(
            f"{argument} returned a {value.dtype.name} tensor of shape {value.shape}; return a floating scalar, for "
            f"instance with tf.reduce_mean."
        )
    if value.dtype != dtype:
        raise TypeError(
            f"{argument} returned {value.dtype.name}, but the params are {dtype.name}; compute it in {dtype.name}: cast the "
            f"data and the constants it uses, with tf.cast(x, tf.{dtype.name})."
        )


def unconnected(names: list[str], objective: str) -> ValueError:
    """The error for hypers that no step, no initialisation and no objective uses."""
    plural, pronoun = ("s", "them") if len(names) > 1 else ("", "it")
    return ValueError(
        f"hyper{plural} {', '.join(map(repr, names))} reach{'' if plural else 'es'} nothing: neither dynamics.init, nor "
        f"dynamics.step, nor {objective} depends on {pronoun} differentiably. Use {pronoun} in the loss, in a setting such "
        f"as learning_rate='{names[0]}', or remove {pronoun} from hypers. tf.stop_gradient, rounding, integer casts and "
        f".numpy() block the gradient."
    )


def check_owners(owners: Mapping[str, Iterable[str]], hypers: Hypers) -> None:
    """Requires that each hyper is tuned by exactly one objective."""
    named = [name for names in owners.values() for name in names]
    for objective, names in owners.items():
        for name in names:
            if name not in hypers:
                raise unknown_hyper(f"objective '{objective}'", name, hypers)
    twice = sorted({name for name in named if named.count(name) > 1})
    without = sorted(set(hypers) - set(named))
    if twice or without:
        problem = f"{twice} stand under several objectives" if twice else f"{without} stand under none"
        raise ValueError(f"objective: hypers {problem}; list each hyper under exactly one rf.Objective(fn, hypers=[...]).")


def check_names(argument: str, names: Iterable[str], hypers: Hypers) -> None:
    """Requires that every name is the name of a hyper."""
    for name in names:
        if name not in hypers:
            raise unknown_hyper(argument, name, hypers)


def infeasible(name: str, constraint: Any, value: tf.Tensor) -> ValueError:
    """The error for a starting point outside its constraint set."""
    if not np.size(value):
        return ValueError(f"hyper '{name}' has no entries, for which its constraint {constraint} is empty. Leave it out.")
    return ValueError(
        f"hyper '{name}' starts outside its constraint {constraint}: {np.asarray(value).ravel()[:5]}... (min "
        f"{np.min(value):.6g}, max {np.max(value):.6g}, sum |.| {np.sum(np.abs(value)):.6g}). Start from "
        f"constraint.project(value)."
    )


def diverged(
    iteration: int, quantities: Mapping[str, Any], result: Result | None = None, limit: float = np.inf
) -> DivergenceError:
    """The error for a hyper-iteration whose value or hypergradient is not finite, or whose value exceeds the limit.

    `quantities` are those examined, by name.
    """
    norms = {name: float(np.linalg.norm(np.asarray(value, np.float64).ravel())) for name, value in quantities.items()}
    bad = [name for name, norm in norms.items() if not np.isfinite(norm)]
    wrong = f"not finite: {', '.join(bad)}" if bad else f"the value exceeds the limit, {limit:.6g}"
    shown = ", ".join(f"{name}: {norm:.6g}" for name, norm in norms.items())
    kept = f"Everything up to hyper-iteration {iteration - 1} is kept in .result." if iteration else "It was the first."
    what = f"hyper-iteration {iteration}: {wrong}. Norms: {shown}."
    value = [norm for name, norm in norms.items() if name.startswith("value")]
    back = (
        "Only the way back through the training is not finite. Either the data have NaN or infinity, which a ReLU can hide "
        "from the value; or the adjoint overflows. Forward mode has no adjoint: rf.forward(problem), rf.real_time(..., "
        "mode='forward') or rf.tune(..., method='forward'). With Adam, a larger epsilon (1e-3) helps if some weight has "
        "never had a gradient (an embedding without data). "
        if "norm of adjoint" in bad and np.all(np.isfinite(value))
        else ""
    )
    return DivergenceError(
        f"{what} {back}Try a smaller inner learning rate or an upper bound on it (rf.Box), a smaller hyper learning rate, "
        f"fewer steps, or float64; look for log(0), 0/0 and sqrt at 0 in the loss, for NaN or infinity in data and hypers, "
        f"and for labels out of range. {kept}",
        iteration,
        result,
        not bad,
        what,
    )


def with_story(error: DivergenceError, setbacks: tuple[str, ...]) -> DivergenceError:
    """The error of a run that gives up, with a list of the setbacks from which it recovered before."""
    if not setbacks:
        return error
    story = "\n".join(f"  {number}. {text}" for number, text in enumerate(setbacks, 1))
    return DivergenceError(
        f"{error} The run had backed off {len(setbacks)} times before:\n{story}",
        error.iteration,
        error.result,
        error.finite,
        error.what,
    )
