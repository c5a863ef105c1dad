"""The computations of the comparison in JAX, from arrays alone.

This module does not import TensorFlow: on a machine where the two frameworks need different libraries for the GPU, a
separate process runs it (`jax_worker`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

REACH = 5  # frames on either side of a window

Arrays = Mapping[str, Any]
Hypergradient = Callable[[np.ndarray], np.ndarray]
Step = Callable[[Any, Any, Any], Any]
"""(state, hypers, rows) -> state."""


def hyper_cleaning(arrays: Arrays, steps: int, rate: float, transposed: bool, checkpoint: bool = False) -> Hypergradient:
    """`jax.grad` through `lax.scan`, with respect to the weights of examples in softmax regression.

    Args:
      arrays: x, y and xv, yv, for training and validation.
      transposed: whether products use a transposed copy of the data.
      checkpoint: whether only the states are kept.
    """
    product = _transposed_product() if transposed else (lambda m, mt, w: m @ w)

    def errors(p: Any, x: Any, xt: Any, labels: Any) -> Any:
        logits = product(x, xt, p["w"]) + p["b"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]

    def response(weights: Any, train: Any, validation: Any) -> Any:
        def step(p: Any, _: None) -> tuple[Any, None]:
            g = jax.grad(lambda p: jnp.mean(weights * errors(p, *train)))(p)
            return jax.tree.map(lambda w, g: w - rate * g, p, g), None

        start = {"w": jnp.zeros((train[0].shape[1], 10)), "b": jnp.zeros(10)}
        body = jax.checkpoint(step, prevent_cse=False) if checkpoint else step  # a scan needs no barriers against CSE
        last, _ = jax.lax.scan(body, start, None, length=steps)
        return jnp.mean(errors(last, *validation))

    gradient = jax.jit(jax.grad(response))
    pairs = ((arrays["x"], arrays["y"]), (arrays["xv"], arrays["yv"]))
    train, validation = ((jnp.asarray(x), jnp.asarray(x.T.copy()) if transposed else None, jnp.asarray(y)) for x, y in pairs)
    return lambda weights: np.asarray(gradient(weights, train, validation))


def _transposed_product() -> Any:
    """(m, its transpose, w) -> m @ w, differentiable with respect to w."""
    product = jax.custom_vjp(lambda m, mt, w: m @ w)
    product.defvjp(lambda m, mt, w: (m @ w, (m, mt)), lambda saved, up: (None, None, product(saved[1], saved[0], up)))
    return product


def mlp_reverse(arrays: Arrays, checkpoint: bool) -> Hypergradient:
    """`jax.grad` through `lax.scan`, for the network of `peer_mlp`."""
    return _jitted(arrays, lambda a, hypers: jax.grad(_mlp_response(a, checkpoint))(hypers))


def mlp_forward(arrays: Arrays, columns_in_turn: bool) -> Hypergradient:
    """Forward mode: `jax.jacfwd`, or a scan that linearises the step and pushes the columns of Z one after the other."""

    def derivative(a: Arrays, hypers: Any) -> Any:
        if not columns_in_turn:
            return jax.jacfwd(_mlp_response(a))(hypers)
        p, _, columns = _push(_momentum(_mlp_loss(a)), _start(a), hypers, a["rows"])
        return _products(lambda p: _mlp_error(p, a["x"][: len(a["rows"][0])], a["y"][: len(a["rows"][0])]), p, columns)

    return _jitted(arrays, derivative)


def phones(arrays: Arrays, columns_in_turn: bool) -> Hypergradient:
    """The phone network in real time: the first partial hypergradient."""

    def derivative(a: Arrays, hypers: Any) -> Any:
        step = _momentum(_phone_loss(a))
        push = _push if columns_in_turn else _push_together
        p, _, columns = push(step, _start(a), hypers, a["rows"])
        x, y = _windows(a, a["validation"]), a["states"][a["validation"]]
        return _products(lambda p: _cross_entropy(_shared(p, x) @ p["wp"] + p["bp"], y), p, columns)

    return _jitted(arrays, derivative)


def _jitted(arrays: Arrays, derivative: Callable[[Arrays, Any], Any]) -> Hypergradient:
    """The data are arguments: XLA would fold constants into the program."""
    on_device, compiled = jax.tree.map(jnp.asarray, dict(arrays)), jax.jit(derivative)
    return lambda hypers: np.asarray(compiled(on_device, hypers))


def _start(a: Arrays) -> Any:
    p = {name.removeprefix("p/"): value for name, value in a.items() if name.startswith("p/")}
    return p, jax.tree.map(jnp.zeros_like, p)


def _momentum(loss: Callable[[Any, Any, Any], Any]) -> Step:
    """v <- mu v + g, w <- w - eta v; the hypers are (eta, mu, what the loss takes)."""

    def step(state: Any, hypers: Any, rows: Any) -> Any:
        (p, v), (rate, mu, third) = state, hypers
        g = jax.grad(loss)(p, third, rows)
        v = jax.tree.map(lambda v, g: mu * v + g, v, g)
        return jax.tree.map(lambda w, v: w - rate * v, p, v), v

    return step


def _push(step: Step, start: Any, hypers: Any, rows: Any) -> tuple[Any, Any, list[Any]]:
    """Z <- A Z + B in a scan, by one linearisation of the step and one product per column."""

    def body(carry: Any, r: Any) -> tuple[Any, None]:
        state, columns = carry
        new, push = jax.linearize(lambda s, h: step(s, h, r), state, hypers)
        return (new, [push(z, e) for z, e in zip(columns, jnp.eye(len(hypers)), strict=True)]), None

    zeros = [jax.tree.map(jnp.zeros_like, start) for _ in range(len(hypers))]
    ((p, v), columns), _ = jax.lax.scan(body, (start, zeros), rows)
    return p, v, columns


def _push_together(step: Step, start: Any, hypers: Any, rows: Any) -> tuple[Any, Any, list[Any]]:
    """The same with all columns at once."""

    def body(carry: Any, r: Any) -> tuple[Any, None]:
        state, columns = carry

        def column(z: Any, e: Any) -> tuple[Any, Any]:
            return jax.jvp(lambda s, h: step(s, h, r), (state, hypers), (z, e))

        new, pushed = jax.vmap(column, out_axes=(None, 0))(columns, jnp.eye(len(hypers)))
        return (new, pushed), None

    zeros = jax.tree.map(lambda w: jnp.zeros((len(hypers), *w.shape), w.dtype), start)
    ((p, v), columns), _ = jax.lax.scan(body, (start, zeros), rows)
    return p, v, [jax.tree.map(lambda z, j=j: z[j], columns) for j in range(len(hypers))]


def _products(error: Callable[[Any], Any], p: Any, columns: list[Any]) -> Any:
    """dE/dp Z."""
    _, push = jax.linearize(error, p)
    return jnp.stack([push(z) for z, _ in columns])


def _cross_entropy(logits: Any, y: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))


def _mlp_error(p: Any, x: Any, y: Any) -> Any:
    x = jnp.tanh(x @ p["w0"] + p["b0"])
    x = jnp.tanh(x @ p["w1"] + p["b1"])
    return _cross_entropy(x @ p["w2"] + p["b2"], y)


def _mlp_loss(a: Arrays) -> Callable[[Any, Any, Any], Any]:
    def loss(p: Any, l2: Any, rows: Any) -> Any:
        return _mlp_error(p, a["x"][rows], a["y"][rows]) + l2 * sum((p[f"w{i}"] ** 2).sum() for i in range(3))

    return loss


def _mlp_response(a: Arrays, checkpoint: bool = False) -> Callable[[Any], Any]:
    """hypers -> E(w_T)."""
    step, size = _momentum(_mlp_loss(a)), len(a["rows"][0])

    def response(hypers: Any) -> Any:
        def body(state: Any, rows: Any) -> tuple[Any, None]:
            return step(state, hypers, rows), None

        body = jax.checkpoint(body, prevent_cse=False) if checkpoint else body
        (p, _), _ = jax.lax.scan(body, _start(a), a["rows"])
        return _mlp_error(p, a["x"][:size], a["y"][:size])

    return response


def _windows(a: Arrays, frames: Any) -> Any:
    """The frames around each of these, scaled."""
    around = frames[:, None] + jnp.arange(-REACH, REACH + 1)
    rows = jnp.clip(around, a["first"][frames][:, None], a["last"][frames][:, None])
    scaled = (a["features"][rows] - a["mean"]) / a["deviation"]
    return scaled.reshape(len(frames), -1)


def _shared(p: Any, x: Any) -> Any:
    for i in range(sum(name.startswith("w") and name[1:].isdigit() for name in p)):
        x = jax.nn.relu(x @ p[f"w{i}"] + p[f"b{i}"])
    return x


def _phone_loss(a: Arrays) -> Callable[[Any, Any, Any], Any]:
    def loss(p: Any, rho: Any, frames: Any) -> Any:
        z = _shared(p, _windows(a, frames))
        secondary = jnp.mean((z @ p["ws"] + p["bs"] - a["table"][a["targets"][frames]]) ** 2) / 2
        return _cross_entropy(z @ p["wp"] + p["bp"], a["states"][frames]) + rho * secondary

    return loss


CONTESTANTS: dict[str, Callable[..., Hypergradient]] = {
    function.__name__: function for function in (hyper_cleaning, mlp_reverse, mlp_forward, phones)
}


def description() -> str:
    """Version and device."""
    return f"jax {jax.__version__}, {jax.devices()[0].device_kind}"
