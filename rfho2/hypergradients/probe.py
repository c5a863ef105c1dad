"""Traces a problem once, without running it, and rejects what cannot work."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core import errors, nest
from rfho2.core.purity import Generators, check_pure
from rfho2.core.types import Hypers, Nest
from rfho2.core.warn import warn
from rfho2.problem import Problem


def probe(problem: Problem, params: Nest, hypers: Hypers) -> None:
    """Traces init, one step and the objectives once, without running them, and rejects what cannot work.

    A hyper is rejected if a tape finds no connection from it to any state or objective; a derivative that *is* 0 is fine.
    """
    terms = problem.terms(hypers)
    _check_owners({term.name: term.hypers for term in terms}, hypers)

    def trace(params: Nest, hypers: Hypers, t: tf.Tensor, streamed: Nest) -> None:
        batch = errors.checked_batch("batches", streamed if isinstance(problem.batches, Stream) else problem.batch(t, t))
        held_out = [errors.checked_batch("validation", term.batch(t)) for term in terms]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(hypers)
            with _explaining(problem, params, hypers):
                first = problem.dynamics.init(params, hypers)
            _check_state(first, nest.flatten(params)[0].dtype)
            with _explaining(problem, params, hypers):
                second = problem.dynamics.step(first, hypers, batch, t)
            _check_step(first, second)
            with _explaining(problem, params, hypers):
                tape.watch(nest.flatten(second))
                trained = problem.dynamics.params(second)
                ends = [term.fn(trained, hypers, examples) for term, examples in zip(terms, held_out, strict=True)]
        for term, end in zip(terms, ends, strict=True):
            errors.check_scalar(f"objective {term.name}".strip(), end, nest.flatten(first)[0].dtype)
            derivatives = tape.gradient([*nest.flatten(first), *nest.flatten(second), end], term.tuned(hypers))
            lost = [name for name, derivative in derivatives.items() if derivative is None]
            objective = f"objective '{term.name}'" if term.name else "the objective"
            if lost:
                raise _unconnected(lost, objective)
            if derivatives and not _any(tape.gradient(end, second)) and not _any(tape.gradient(end, term.tuned(hypers))):
                warn(
                    f"{objective} has no derivative with respect to params and hypers, so that its hypergradients are 0. "
                    f"Accuracy and other counts, tf.stop_gradient and integer casts have none: use a loss."
                )

    spec = lambda x: tf.TensorSpec(x.shape, x.dtype)  # noqa: E731
    streamed = problem.batches.spec if isinstance(problem.batches, Stream) else None
    before = Generators()
    concrete = tf.function(trace, autograph=False).get_concrete_function(
        nest.map(spec, params), nest.map(spec, dict(hypers)), tf.TensorSpec([], tf.int32), streamed
    )
    check_pure(concrete.graph, before)


def _any(derivatives: Nest) -> bool:
    return any(derivative is not None for derivative in nest.flatten(derivatives))


@contextlib.contextmanager
def _explaining(problem: Problem, params: Nest, hypers: Hypers) -> Iterator[None]:
    """Around functions of the user: explains errors of Python or TensorFlow that come from a common mistake."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        explained = _explained(error, problem, params, hypers)
        if explained is None:
            raise
        raise explained from error


def _explained(error: Exception, problem: Problem, params: Nest, hypers: Hypers) -> Exception | None:
    """What the user should hear instead of an error of Python or TensorFlow; None if it is clear enough, or unknown."""
    if isinstance(error, KeyError):
        names = [path for path, _ in nest.leaves_with_path(params)]
        if error.args[0] in (*hypers, *names) or not isinstance(error.args[0], str):
            return None
        return ValueError(
            f"a function of the problem asks for '{error.args[0]}', which is neither among the hypers {sorted(hypers)} nor "
            f"among the params {names}. Add it, or correct the name."
        )
    missing = [name for name in ("batches", "validation") if getattr(problem, name) is None]
    if missing and "NoneType" in str(error):
        return TypeError(
            f"a function of the problem may have received None as its batch, because the problem has no "
            f"{' and no '.join(missing)} ({error}). Pass {missing[0]}=rf.batches.full(data)."
        )
    if "values to unpack" in str(error):
        return ValueError(
            f"a function of the problem cannot unpack one of its arguments ({error}). As its batch, the loss receives what "
            f"batches(t) returns, and the objective what validation(k) returns."
        )
    if isinstance(error, ValueError):
        return _about_shapes(str(error), params, hypers)
    if re.search(r"valid indices, got [^']", str(error)):
        return TypeError(
            f"an index is neither a number nor a slice ({error}). For several entries, use tf.gather(hyper, index)."
        )
    if re.search(r"positional argument|non-tensor type|valid indices|'dict'", str(error)):
        return TypeError(
            f"a function of the problem cannot use its arguments ({error}). Losses and objectives receive (params, hypers, "
            f"batch), in this order; hypers is a dict of tensors. Schedules receive (hypers, t), init of rf.Dynamics "
            f"(params, hypers), and its step (state, hypers, batch, t)."
        )
    dtype = nest.flatten(params)[0].dtype.name
    found = set(re.findall(r"\b(?:float|u?int)\d+\b", str(error)))
    if not ({"float32", "float64"} <= found or (dtype in found and "does not match type" in str(error))):
        return None
    other = ", or the params to the dtype of the data" if {"float32", "float64"} <= found else ""
    return TypeError(
        f"the params are {dtype}, but something that is combined with them is not ({error}). Cast the data to {dtype}"
        f"{other}."
    )


def _about_shapes(said: str, params: Nest, hypers: Hypers) -> ValueError | None:
    """What the user should hear instead of TensorFlow's error about shapes; None if no hyper has them."""
    first = said.splitlines()[0]
    if re.search(r"must be rank 2 but is rank 1.*MatMul", first):
        return ValueError(f"a product of matrices received a vector ({first}). Use tf.linalg.matvec(matrix, vector).")
    unequal = re.search(r"must be equal, but are (\d+) and (\d+)", said)
    sizes = set(map(int, unequal.groups())) if unequal else set()
    shapes = {name: list(value.shape) for name, value in hypers.items() if sizes & set(value.shape)}
    if not shapes:
        return None
    trained = {path: list(leaf.shape) for path, leaf in nest.leaves_with_path(params) if sizes & set(leaf.shape)}
    return ValueError(
        f"shapes do not go together ({first}). Hypers have the shapes {shapes}{f', params {trained}' if trained else ''}. "
        f"One entry per example needs as many as there are examples, and, with minibatches, the index of each example in "
        f"the data: tf.gather(hypers[...], index). One entry per param needs the shape of the params."
    )


def _check_owners(owners: Mapping[str, Iterable[str]], hypers: Hypers) -> None:
    """Requires that each hyper is tuned by exactly one objective."""
    named = [name for names in owners.values() for name in names]
    for objective, names in owners.items():
        for name in names:
            if name not in hypers:
                raise errors.unknown_hyper(f"objective '{objective}'", name, hypers)
    twice = sorted({name for name in named if named.count(name) > 1})
    without = sorted(set(hypers) - set(named))
    if twice or without:
        problem = f"{twice} are listed under several objectives" if twice else f"{without} are listed under none"
        raise ValueError(f"objective: hypers {problem}; list each hyper under exactly one rf.Objective(fn, hypers=[...]).")


def _check_state(state: Nest, dtype: tf.DType) -> None:
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


def _check_step(before: Nest, after: Nest) -> None:
    """Requires that s_t has the structure, shapes and dtypes of s_{t-1}."""
    try:
        tf.nest.assert_same_structure(before, after)
    except (TypeError, ValueError):
        was, now = ([path for path, _ in nest.leaves_with_path(n)] for n in (before, after))
        raise ValueError(
            f"dynamics.step changed the structure of the state: it took {was} ({type(before).__name__}) and returned "
            f"{now} ({type(after).__name__}). Return the state with the same structure."
        ) from None
    for (path, old), (_, new) in zip(nest.leaves_with_path(before), nest.leaves_with_path(after), strict=True):
        if new is None:
            raise ValueError(
                f"dynamics.step returned None for state leaf '{path}'. Return the state with the same structure."
            )
        new = tf.convert_to_tensor(new)
        if old.dtype != new.dtype or not old.shape.is_compatible_with(new.shape):
            raise ValueError(
                f"dynamics.step changed state leaf '{path}' from {old.dtype.name}{list(old.shape)} to "
                f"{new.dtype.name}{list(new.shape)}. Shapes and dtypes have to stay the same from step to step."
            )


def _unconnected(names: list[str], objective: str) -> ValueError:
    """The error for hypers that no step, no initialisation and no objective uses."""
    plural, pronoun = ("s", "them") if len(names) > 1 else ("", "it")
    return ValueError(
        f"hyper{plural} {', '.join(map(repr, names))} ha{'ve' if plural else 's'} no effect: neither dynamics.init, nor "
        f"dynamics.step, nor {objective} depends on {pronoun} differentiably. Use {pronoun} in the loss, in a setting such "
        f"as learning_rate='{names[0]}', or remove {pronoun} from hypers. tf.stop_gradient, rounding, integer casts and "
        f".numpy() block the gradient."
    )
