"""Logs a run to MLflow, in a local file, with a callback of ten lines.

python -m docs.examples.with_mlflow   # pip install mlflow; `mlflow ui` shows it
"""

from pathlib import Path

import mlflow
import numpy as np
import tensorflow as tf

import rfho2 as rf


class MLflow(rf.Callback):
    """Logs the settings, and at each hyper-iteration the objective, scalar hypers and scalar metrics."""

    def on_start(self, run):
        mlflow.log_params(
            {f"{part}.{key}": value for part in ("engine", "optimizer") for key, value in run.config[part].items()}
        )

    def on_hyper_iteration(self, k, hypers, hypergradient, extra):
        numbers = {"objective": hypergradient.value, **hypers, **extra}
        mlflow.log_metrics({name: float(value) for name, value in numbers.items() if np.ndim(value) == 0}, step=k)

    def on_end(self, result):
        if result.best is not None:
            mlflow.log_metric("best", float(result.best.value))


def main(iterations: int = 50, folder: str = ".") -> rf.Result:
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(200, 20)), rng.normal(size=200)
    y = x[:, 0] - x[:, 1] + noise
    train, valid = (x[:40], y[:40]), (x[40:], y[40:])

    def error(w, hypers, batch):
        return tf.reduce_mean((tf.linalg.matvec(batch[0], w) - batch[1]) ** 2)

    def loss(w, hypers, batch):
        return error(w, hypers, batch) + hypers["l2"] * tf.reduce_sum(w**2)

    descent = rf.gradient_descent(loss, "lr")
    problem = rf.Problem(descent, error, 100, rf.batches.full(train), rf.batches.full(valid))
    optimizer = rf.projected_adam(0.1, log_scale=["lr", "l2"])
    mlflow.set_tracking_uri(f"sqlite:///{Path(folder).absolute()}/mlflow.db")
    with mlflow.start_run(run_name="ridge regression"):
        tuner = rf.HyperOptimizer(rf.reverse(problem), optimizer, [MLflow(), rf.ProgressBar()])
        return tuner.run(tf.zeros(20, tf.float64), {"lr": 0.01, "l2": 0.001}, iterations)


if __name__ == "__main__":
    main()
