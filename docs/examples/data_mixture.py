"""How much to train on each of eight sources of text, learned in one training run of a transformer with a million weights.

python -m docs.examples.data_mixture   # three minutes
"""

import numpy as np
import tensorflow as tf

import rfho2 as rf

SOURCES, TOKENS, WIDTH, LAYERS, LENGTH = 8, 1024, 128, 4, 32
SHAPES = {"tokens": (TOKENS, WIDTH), "in": (LAYERS, WIDTH, 7 * WIDTH), "out": (LAYERS, 5 * WIDTH, WIDTH)}


def draw(rng, followers, count):  # 70 % of the tokens follow from the token before them, the others are random
    tokens = rng.integers(TOKENS, size=[count, LENGTH + 1])
    for t in range(LENGTH):
        tokens[:, t + 1] = np.where(rng.random(count) < 0.7, followers[tokens[:, t]], tokens[:, t + 1])
    return tokens


def losses(p, texts):  # the mean loss of each source, which is the second axis of the texts
    tokens, later = tf.reshape(texts, [-1, LENGTH + 1]), 1 - np.tri(LENGTH, dtype="float32")
    norm = lambda x: (x - tf.reduce_mean(x, -1, keepdims=True)) / (tf.math.reduce_std(x, -1, keepdims=True) + 1e-3)  # noqa: E731
    x = tf.gather(p["tokens"], tokens[:, :-1])
    for w_in, w_out in zip(tf.unstack(p["in"]), tf.unstack(p["out"]), strict=True):
        q, k, v, hidden = tf.split(norm(x) @ w_in, [WIDTH, WIDTH, WIDTH, 4 * WIDTH], -1)
        attention = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / WIDTH**0.5 - 1e9 * later)
        x += tf.concat([attention @ v, tf.nn.gelu(hidden)], -1) @ w_out
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(tokens[:, 1:], tf.matmul(norm(x), p["tokens"], transpose_b=True))
    return tf.reduce_mean(tf.reshape(each, [-1, texts.shape[1], LENGTH]), (0, 2))


def main(steps=150, window=5, trials=10, count=2000, scarce=50):
    rng, target = np.random.default_rng(0), np.random.default_rng(1).permutation(TOKENS)  # 0 is scarce, 1 to 3 are like it
    followers = [np.where(rng.random(TOKENS) < p, rng.permutation(TOKENS), target) for p in (0, 0.1, 0.1, 0.1, 1, 1, 1, 1)]
    train = [np.resize(draw(rng, each, count if i else scarce), [count, LENGTH + 1]) for i, each in enumerate(followers)]
    held_out = [tf.constant(draw(rng, target, n)[:, None]) for n in (64, 256)]  # for validation and for the test
    params = {name: tf.constant(0.05 * rng.normal(size=shape), tf.float32) for name, shape in SHAPES.items()}
    dynamics = rf.adam(lambda p, hypers, batch: tf.tensordot(hypers["mixture"], losses(p, batch), 1), 0.002)
    batches, validation = rf.batches.shuffled(tf.constant(np.stack(train, 1)), 2, seed=0), rf.batches.full(held_out[0])
    problem = rf.Problem(dynamics, lambda p, hypers, batch: losses(p, batch)[0], None, batches, validation)
    engine = rf.real_time(problem, window, mode="reverse", jit_compile=False)  # XLA would compile for longer than that takes
    tuner = rf.HyperOptimizer(engine, rf.projected_adam(0.02, {"mixture": rf.Simplex()}), [rf.ProgressBar()])
    result = tuner.run(params, {"mixture": np.ones(SOURCES) / SOURCES}, steps // window)
    scores = lambda state: [losses(dynamics.params(state), texts)[0] for texts in held_out]  # noqa: E731
    print(f"learned mixture {result.hypers['mixture'].numpy().round(2)}: test loss {scores(result.state)[1]:.3f}")
    train_on = tf.function(lambda h, n: scores(problem.train(params, {"mixture": h}, n)), autograph=False)
    print(f"uniform: {train_on(np.ones(SOURCES, 'f') / SOURCES, steps)[1]:.3f}")
    began = tf.timestamp()
    print(f"target only: {train_on(np.eye(SOURCES, dtype='f')[0], steps)[1]:.3f}")
    each = int(steps * result.history[-1]["seconds"] / float(tf.timestamp() - began) / trials)
    print(f"uniform, {trials * each} steps: {train_on(np.ones(SOURCES, 'f') / SOURCES, trials * each)[1]:.3f}")
    best = min(train_on(h, each) for h in rng.dirichlet(np.ones(SOURCES), trials).astype("f"))  # by validation loss
    print(f"best of {trials} random mixtures, {each} steps each: {best[1]:.3f}")
    return result


if __name__ == "__main__":
    main()
