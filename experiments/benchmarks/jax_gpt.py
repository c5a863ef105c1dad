"""The transformer of `gpt_numbers` in JAX: a window in reverse mode, in the forms that are fastest or need least memory.

A scan over the steps keeps the states (`jax.checkpoint` around a step), and each block of the network and the logits are
recomputed (`jax.checkpoint` around a block). With `mixed`, the second derivatives are taken forward over reverse, as in
MixFlow-MG (Kemaev et al., 2025): the pull-back of the gradient of the loss is the directional derivative of that gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from experiments.benchmarks.gpt_numbers import BETAS, CLIP, EPSILON, NORM_EPSILON, WEIGHT_DECAY, Size, Text, within

Params = dict[str, Any]
State = tuple[Params, Params, Params]


def window(
    size: Size,
    text: Text,
    steps: int,
    mixed: bool = False,
    recompute: bool = True,
    keep_steps: bool = False,
    compute: Any = None,
    loop: bool = False,
) -> Callable[..., Any]:
    """(state, hypers, t) -> (value, grads, new state); the memory of the state is used for the new one.

    With `keep_steps`, the activations of all steps are kept, as by a plain `jax.grad` through a scan. With `loop`, the
    blocks are a scan over their stacked params.
    """
    losses = network(size, recompute, compute, loop)
    data = tuple(map(jnp.asarray, text))

    def loss(p: Params, hypers: Any, batch: Any) -> Any:
        return jnp.mean(hypers["sources"][batch[1]] * losses(p, batch[0]))

    slope = _mixed(loss) if mixed else jax.grad(loss)

    def response(hypers: Any, state: State, t: Any, data: Any) -> tuple[Any, State]:
        tokens, sources = data

        def step(state: State, t: Any) -> tuple[State, None]:
            row = 1 + t % (len(tokens) - 1)
            return adamw(slope, state, hypers, (tokens[row], sources[row]), t), None

        body = step if keep_steps else jax.checkpoint(step, prevent_cse=False)  # a scan needs no barriers against CSE
        state, _ = jax.lax.scan(body, state, t + jnp.arange(steps))
        return jnp.mean(losses(state[0], tokens[0])), state

    def derivative(state: State, hypers: Any, t: Any, data: Any) -> Any:
        (value, state), grads = jax.value_and_grad(response, has_aux=True)(hypers, state, t, data)
        return value, grads, state

    compiled = jax.jit(derivative, donate_argnums=0)
    return lambda state, hypers, t: compiled(state, hypers, t, data)


def adamw(slope: Callable[..., Params], state: State, hypers: Any, batch: Any, t: Any) -> State:
    """A step with a clipped gradient."""
    p, m, v = state
    g, (b1, b2), n = slope(p, hypers, batch), BETAS, (t + 1).astype(jnp.float32)
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(g)))
    scale = jnp.where(norm > CLIP, CLIP / norm, 1.0)
    g = jax.tree.map(lambda leaf: scale * leaf, g)
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, g)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, v, g)
    eta = hypers["rate"]
    rate = eta * jnp.sqrt(1 - b2**n) / (1 - b1**n)

    def moved(w: Any, m: Any, v: Any) -> Any:
        root = jnp.where(v > 0, jnp.sqrt(jnp.where(v > 0, v, 1.0)), 0.0)  # an embedding that never occurred
        return w - eta * WEIGHT_DECAY * w - rate * m / (root + EPSILON)

    return jax.tree.map(moved, p, m, v), m, v


def _mixed(loss: Callable[..., Any]) -> Callable[..., Params]:
    """The gradient of the loss, whose pull-back is computed forwards: v -> d/de grad loss(p + e v, hypers)."""

    @jax.custom_vjp
    def slope(p: Params, hypers: Any, batch: Any) -> Params:
        return jax.grad(loss)(p, hypers, batch)

    def pull_back(saved: Any, v: Params) -> Any:
        p, hypers, batch = saved
        both = jax.grad(loss, argnums=(0, 1))
        _, products = jax.jvp(lambda p: both(p, hypers, batch), (p,), (v,))
        return (*products, None)

    slope.defvjp(lambda *arguments: (slope(*arguments), arguments), pull_back)
    return slope


def network(size: Size, recompute: bool, compute: Any, loop: bool) -> Callable[[Params, Any], Any]:
    """(params, tokens) -> the mean cross-entropy of each example."""
    heads, width = size.heads, size.width // size.heads

    def product(x: Any, w: Any) -> Any:
        return x @ w.astype(x.dtype)

    def normed(x: Any, scale: Any) -> Any:
        exact = x.astype(scale.dtype)
        exact -= jnp.mean(exact, -1, keepdims=True)
        exact *= scale * jax.lax.rsqrt(jnp.mean(exact**2, -1, keepdims=True) + NORM_EPSILON)
        return exact.astype(x.dtype)

    def block(w: Params, x: Any) -> Any:
        b, s, _ = x.shape
        parts = jnp.split(product(normed(x, w["norm"]), w["qkv"]), 3, -1)
        q, k, v = (part.reshape(b, s, heads, width).transpose(0, 2, 1, 3) for part in parts)
        scores = (q @ k.transpose(0, 1, 3, 2)).astype(w["qkv"].dtype) / width**0.5
        attention = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -1e9))
        mixed = (attention.astype(v.dtype) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = x + product(mixed, w["out"])
        return x + product(jax.nn.gelu(product(normed(x, w["mlp_norm"]), w["up"])), w["down"])

    def head(w: Params, x: Any, targets: Any) -> Any:
        x = normed(x, w["norm"])
        logits = (x @ w["tokens"].astype(x.dtype).T).astype(w["tokens"].dtype)
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked, -1)

    if recompute:
        block, head = jax.checkpoint(block, prevent_cse=not loop), jax.checkpoint(head)

    def blocks(p: Params, x: Any) -> Any:
        if loop:
            return jax.lax.scan(lambda x, w: (block(w, x), None), x, within(p, "blocks"))[0]
        for i in range(size.layers):
            x = block(within(p, f"{i}"), x)
        return x

    def losses(p: Params, tokens: Any) -> Any:
        x = p["tokens"][tokens[:, :-1]] + p["positions"]
        x = blocks(p, x.astype(compute or x.dtype))
        return head({name: p[name] for name in ("tokens", "norm")}, x, tokens[:, 1:])

    return losses
