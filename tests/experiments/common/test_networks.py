"""The initial weights and the output of the small networks."""

import numpy as np

from experiments.common import networks


def test_layers_are_drawn_in_order_and_biases_are_zero() -> None:
    params = networks.layers((4, 3, 2), np.random.default_rng(5))
    rng = np.random.default_rng(5)
    np.testing.assert_array_equal(params["w0"], rng.normal(size=(4, 3), scale=0.5).astype(np.float32))
    np.testing.assert_array_equal(params["w1"], rng.normal(size=(3, 2), scale=3**-0.5).astype(np.float32))
    assert list(params) == ["w0", "w1", "b0", "b1"]
    assert [params[name].shape.as_list() for name in ("b0", "b1")] == [[3], [2]]
    assert not any(np.any(params[name]) for name in ("b0", "b1"))


def test_hidden_layers_are_tanh_and_the_last_one_is_linear() -> None:
    rng = np.random.default_rng(0)
    params = networks.layers((4, 3, 3, 2), rng)
    params |= {f"b{i}": params[f"b{i}"] + float(i + 1) for i in range(3)}
    x = rng.normal(size=(5, 4)).astype(np.float32)
    w0, w1, w2, b0, b1, b2 = (params[name].numpy() for name in ("w0", "w1", "w2", "b0", "b1", "b2"))
    expected = np.tanh(np.tanh(x @ w0 + b0) @ w1 + b1) @ w2 + b2
    np.testing.assert_allclose(networks.tanh_logits(params, x), expected, rtol=1e-5)
