"""The callbacks: what stands in the event files, in the CSV file and on the screen."""

import csv
import functools
import json
import warnings

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import rfho2 as rf

HYPERS = {"lr": 0.1, "weights": [1.0, 1.0, 1.0], "mixing": [[1.0, 0.0], [0.25, 0.5]]}
PARAMS = tf.zeros(3)
TARGET = tf.constant([1.0, -2.0, 0.5])


def loss(w, hypers, batch):
    mixed = tf.linalg.matvec(hypers["mixing"], w[:2])
    return tf.reduce_sum(hypers["weights"] * (w - TARGET) ** 2) + tf.reduce_sum(mixed**2)


def objective(w, hypers, batch):
    return tf.reduce_sum((w - TARGET) ** 2)


@functools.cache
def engine():
    return rf.reverse(rf.Problem(rf.gradient_descent(loss, "lr"), objective, steps=2), jit_compile=False)


@functools.cache
def optimizer():
    return rf.projected_adam(0.02, {"lr": rf.Box(0.0, 0.5)})


def run(callbacks, iterations=3, directory=None, metrics=None, **settings):
    tuner = rf.HyperOptimizer(engine(), optimizer(), callbacks, metrics)
    return tuner.run(PARAMS, HYPERS, iterations, directory, **settings)


class Break:
    """Breaks a run off at hyper-iteration `at`, when the callbacks before it have been told."""

    def __init__(self, at):
        self.at = at

    def on_hyper_iteration(self, k, *_):
        if k == self.at:
            raise KeyboardInterrupt


# By hand, without an engine

START = rf.Run(0, 3, {"lr": tf.constant(0.1)}, {"engine": {"method": "reverse"}, "optimizer": {}})


def found(value=1.0, **grads):
    return rf.HyperGradient(
        value if isinstance(value, dict) else tf.constant(value),
        {name: tf.constant(grad) for name, grad in grads.items()}, tf.zeros(2),
    )  # fmt: skip


def show(callback, hypers=None, hypergradient=None, extra=None, iterations=1):
    """Tells a callback of a whole run."""
    hypers = {name: tf.constant(value) for name, value in (hypers or {"lr": 0.1}).items()}
    callback.on_start(START)
    for k in range(iterations):
        callback.on_hyper_iteration(k, hypers, hypergradient or found(lr=0.5), extra or {})
    callback.on_end(rf.Result(hypers, tf.zeros(2), [{}] * iterations, rf.Best(hypers, tf.zeros(2), 1.0, 0)))


# TensorBoard


class Log:
    """What TensorBoard itself reads from a directory; a tag has one kind for it."""

    def __init__(self, logdir):
        self.events = EventAccumulator(str(logdir), size_guidance={"tensors": 0}).Reload()

    def tags(self, kind):
        tags = self.events.Tags()["tensors"]
        return {tag for tag in tags if self.events.SummaryMetadata(tag).plugin_data.plugin_name == kind}

    def read(self, tag):
        """[(step, array)]."""
        return [(event.step, tf.make_ndarray(event.tensor_proto)) for event in self.events.Tensors(tag)]

    def scalars(self, tag):
        return [(step, value.item()) for step, value in self.read(tag)]

    def pictures(self, name):
        """{step: rows x columns of grey} of the tag that has `name` in it."""
        (tag,) = [tag for tag in self.tags("images") if name in tag]
        found = {}
        for step, (width, height, png) in self.read(tag):
            found[step] = tf.io.decode_png(png).numpy()[:, :, 0]
            assert found[step].shape == (int(height), int(width))
        return found

    def configuration(self):
        (tag,) = self.tags("text")
        return json.loads(self.read(tag)[0][1].item())

    def hparams(self):
        content = self.events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
        values = HParamsPluginData.FromString(content).session_start_info.hparams
        return {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}


def metrics(state, hypers, k):
    return {"accuracy": 0.5 + k, "errors": np.array([1.0, 2.0, 4.0]), "confusion": np.eye(3), "phase": "training"}


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """(what TensorBoard reads, what the run returned)."""
    logdir = tmp_path_factory.mktemp("logs")
    result = run([rf.TensorBoard(logdir)], metrics=metrics)
    return Log(logdir), result


def test_tensorboard_has_scalars_of_the_value_the_scalar_hypers_their_hypergradients_and_metrics(logged):
    log, result = logged
    scalars = {"value", "hyper/lr", "hypergradient/lr", "accuracy", "norm of adjoint", "best value"}
    assert log.tags("scalars") == scalars
    for tag, key in {"value": "value", "hyper/lr": "lr", "accuracy": "accuracy"}.items():
        assert log.scalars(tag) == [(row["iteration"], row[key]) for row in result.history]
    signed = log.scalars("hypergradient/lr")  # the history has its norm
    assert [(step, abs(value)) for step, value in signed] == [
        (r["iteration"], r["hypergradient/lr"]) for r in result.history
    ]
    assert min(value for _, value in signed) < 0
    assert log.scalars("best value") == [(3, np.float32(result.best.value))]


def test_tensorboard_has_histograms_of_vectors(logged):
    log, _ = logged
    assert {"hyper/weights", "hypergradient/weights", "errors"} <= log.tags("histograms")
    assert [step for step, _ in log.read("hyper/weights")] == [0, 1, 2]
    for _, buckets in log.read("errors"):  # left end, right end, count
        assert (buckets[0, 0], buckets[-1, 1], buckets[:, 2].sum()) == (1.0, 4.0, 3)


@pytest.mark.parametrize("name", ["hyper/mixing", "hypergradient/mixing", "confusion"])
def test_tensorboard_has_images_of_matrices(logged, name):
    log, _ = logged
    assert list(log.pictures(name)) == [0, 1, 2]


def test_an_image_has_the_matrix_dark_where_small_and_light_where_large(logged):
    first = logged[0].pictures("hyper/mixing")[0]  # of [[1, 0], [1/4, 1/2]]
    corners = first[[0, 0, -1, -1], [0, -1, 0, -1]].astype(float) / 255
    np.testing.assert_allclose(corners, [1.0, 0.0, 0.25, 0.5], atol=0.01)


def test_tensorboard_has_the_configuration_as_text(logged):
    config = logged[0].configuration()
    assert config["iterations"] == 3
    assert config["engine"].items() >= {"method": "reverse", "steps": 2}.items()
    assert config["optimizer"].items() >= {"learning_rate": 0.02, "constraints": {"lr": "Box(low=0.0, high=0.5)"}}.items()


def test_tensorboard_has_the_initial_hypers_and_the_settings_on_the_hparams_page(logged):
    values = logged[0].hparams()
    assert values["initial lr"] == np.float32(0.1)
    assert values["engine.method"] == "reverse"
    assert values["optimizer.learning_rate"] == "0.02"


def test_tensorboard_of_a_run_taken_up_again_goes_on_in_the_same_curves(tmp_path):
    log = lambda: rf.TensorBoard(tmp_path / "logs")  # noqa: E731
    run([log()], 2, tmp_path / "run")
    result = run([log()], 4, tmp_path / "run")
    read = Log(tmp_path / "logs")
    assert read.scalars("value") == [(row["iteration"], row["value"]) for row in result.history]
    assert read.hparams()["initial lr"] == np.float32(0.1)


def test_the_log_of_a_run_that_breaks_off_has_all_up_to_there(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run([rf.TensorBoard(tmp_path), Break(1)])
    assert [step for step, _ in Log(tmp_path).scalars("value")] == [0, 1]


def test_several_objectives_are_scalars_each(tmp_path):
    show(rf.TensorBoard(tmp_path), hypergradient=found({"train": tf.constant(1.0), "test": tf.constant(2.0)}, lr=0.5))
    log = Log(tmp_path)
    assert (log.scalars("value/train"), log.scalars("value/test")) == ([(0, 1.0)], [(0, 2.0)])


def test_every_thins_out_what_is_large_and_leaves_the_scalars(tmp_path):
    show(rf.TensorBoard(tmp_path, every=2), {"v": [1.0, 2.0], "m": [[1.0, 2.0], [3.0, 4.0]]}, iterations=5)
    log = Log(tmp_path)
    assert [step for step, _ in log.scalars("value")] == [0, 1, 2, 3, 4]
    assert [step for step, _ in log.read("hyper/v")] == [0, 2, 4]
    assert list(log.pictures("hyper/m")) == [0, 2, 4]


@pytest.mark.parametrize("constant", [-3.0, 0.0, 0.25, 7.0])
def test_a_picture_of_a_constant_matrix_divides_nothing_by_zero(constant, tmp_path):
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        show(rf.TensorBoard(tmp_path), {"m": np.full((2, 3), constant, np.float32)})
    picture = Log(tmp_path).pictures("hyper/m")[0]
    assert len(np.unique(picture)) == 1
    assert picture.shape[0] * 3 == picture.shape[1] * 2


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (2, 2, 2), (300, 2)], ids=str)
def test_arrays_of_any_shape_are_logged(shape, tmp_path):
    show(rf.TensorBoard(tmp_path), {"a": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)})
    log = Log(tmp_path)
    assert any("hyper/a" in tag for tag in log.tags("histograms") | log.tags("images"))


# CSV


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_one_row_per_hyper_iteration_with_norms_of_arrays(tmp_path):
    path = tmp_path / "new" / "log.csv"
    result = run([rf.CSVLogger(path)], metrics=metrics)
    read = rows(path)
    arrays = ["weights", "mixing"]
    assert list(read[0]) == [
        "iteration", "value", "lr", *(f"norm of {name}" for name in arrays),
        "hypergradient/lr", *(f"norm of hypergradient/{name}" for name in arrays), "norm of adjoint", "accuracy", "phase",
    ]  # fmt: skip
    assert [int(row["iteration"]) for row in read] == [0, 1, 2]
    for row, known in zip(read, result.history, strict=True):
        assert [float(row[key]) for key in ("value", "lr", "accuracy")] == [
            known[key] for key in ("value", "lr", "accuracy")
        ]
        assert abs(float(row["hypergradient/lr"])) == known["hypergradient/lr"]
        for name in arrays:
            assert float(row[f"norm of hypergradient/{name}"]) == pytest.approx(known[f"hypergradient/{name}"], rel=1e-6)
        assert row["phase"] == "training"
    assert float(read[0]["norm of weights"]) == pytest.approx(3**0.5, rel=1e-6)


def test_csv_has_a_column_for_each_of_several_objectives(tmp_path):
    several = found({"train": tf.constant(1.0), "test": tf.constant(2.0)}, lr=0.5)
    show(rf.CSVLogger(tmp_path / "log.csv"), hypergradient=several)
    (row,) = rows(tmp_path / "log.csv")
    assert (row["value/train"], row["value/test"]) == ("1.0", "2.0")


@pytest.mark.parametrize("broken_off", [False, True], ids=["ended", "broken off"])
@pytest.mark.parametrize("every", [1, 2])
def test_csv_of_a_run_taken_up_again_has_every_hyper_iteration_once(every, broken_off, tmp_path):
    path, settings = tmp_path / "log.csv", {"directory": tmp_path / "run", "checkpoint_every": every}
    if broken_off:
        with pytest.raises(KeyboardInterrupt):
            run([rf.CSVLogger(path), Break(3)], 5, **settings)
        assert [int(row["iteration"]) for row in rows(path)] == [0, 1, 2, 3]
    else:
        run([rf.CSVLogger(path)], 3, **settings)
    result = run([rf.CSVLogger(path)], 5, **settings)
    assert [int(row["iteration"]) for row in rows(path)] == [0, 1, 2, 3, 4]
    assert [float(row["value"]) for row in rows(path)] == [row["value"] for row in result.history]


def test_csv_of_a_run_that_was_done_is_left_as_it_is(tmp_path):
    path = tmp_path / "log.csv"
    for _ in range(2):
        run([rf.CSVLogger(path)], 2, tmp_path / "run")
        assert [int(row["iteration"]) for row in rows(path)] == [0, 1]


def test_csv_of_a_fresh_run_replaces_the_old_one(tmp_path):
    path = tmp_path / "log.csv"
    run([rf.CSVLogger(path)], 3)
    run([rf.CSVLogger(str(path))], 2)
    assert [int(row["iteration"]) for row in rows(path)] == [0, 1]


def test_csv_drops_a_half_written_last_line_wherever_it_ends(tmp_path):
    hypers, path = {"lr": tf.constant(0.125)}, tmp_path / "log.csv"
    tell = lambda logger, k: logger.on_hyper_iteration(k, hypers, found(k + 0.5, lr=0.25), {})  # noqa: E731
    whole = "12,12.5,0.125,0.25\r\n"
    for end in range(len(whole) + 1):
        before = rf.CSVLogger(path)
        before.on_start(START)
        for k in range(12):
            tell(before, k)
        with path.open("a", newline="") as file:
            file.write(whole[:end])
        after = rf.CSVLogger(path)
        after.on_start(START._replace(first=12))
        for k in (12, 13):
            tell(after, k)
        assert [row["iteration"] for row in rows(path)] == [str(k) for k in range(14)], whole[:end]
        assert [row["value"] for row in rows(path)] == [str(k + 0.5) for k in range(14)]
        assert {tuple(row) for row in rows(path)} == {("iteration", "value", "lr", "hypergradient/lr")}


@pytest.mark.parametrize("given", [[0, 2], [1, 3], [3]], ids=["first", "later", "last"])
def test_csv_keeps_its_columns_when_a_metric_is_given_now_and_then(given, tmp_path):
    path = tmp_path / "log.csv"
    settings = {"directory": tmp_path / "run", "metrics": lambda state, hypers, k: {"test": 0.5 + k} if k in given else {}}
    run([rf.CSVLogger(path)], 4, **settings)
    result = run([rf.CSVLogger(path)], 5, **settings)
    read = rows(path)
    assert [int(row["iteration"]) for row in read] == [0, 1, 2, 3, 4]
    assert [float(row["value"]) for row in read] == [row["value"] for row in result.history]
    assert [row["test"] for row in read] == [str(0.5 + k) if k in given else "" for k in range(5)]


# The progress bar


def last_line(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1].split("\r")[-1]


def test_progress_bar_shows_hyper_iterations_value_and_scalar_hypers(capsys):
    result = run([rf.ProgressBar()])
    line = last_line(capsys)
    assert "hyper-iterations" in line
    assert "3/3" in line
    assert f"value={result.history[-1]['value']:.4g}" in line
    assert f"lr={result.history[-1]['lr']:.4g}" in line
    assert "weights" not in line


def test_progress_bar_starts_where_a_run_is_taken_up_again(capsys, tmp_path):
    run([rf.ProgressBar()], 2, tmp_path)
    assert "2/2" in last_line(capsys)
    bar = rf.ProgressBar()
    run([bar], 5, tmp_path)
    everything = capsys.readouterr().err
    assert "2/5" in everything
    assert "0/5" not in everything
    assert "5/5" in everything


def test_progress_bar_serves_several_runs(capsys):
    bar = rf.ProgressBar(description="tuning")
    for iterations in (2, 3):
        run([bar], iterations)
        line = last_line(capsys)
        assert "tuning" in line
        assert f"{iterations}/{iterations}" in line


def test_progress_bar_shows_what_is_asked_for(capsys):
    run([rf.ProgressBar(show=("accuracy", "lr"))], metrics=metrics)
    line = last_line(capsys)
    assert "accuracy=2.5" in line
    assert "lr=" in line
    assert "value=" not in line


@pytest.mark.parametrize("name", ["unknown", "weights", "mixing", "errors", "phase"])
def test_progress_bar_does_not_end_a_run_over_what_it_cannot_show_as_a_number(name, capsys):
    run([rf.ProgressBar(show=("accuracy", name))], metrics=metrics)
    assert "accuracy=2.5" in last_line(capsys)


def test_progress_bar_shows_several_objectives(capsys):
    show(rf.ProgressBar(), hypergradient=found({"train": tf.constant(1.5), "test": tf.constant(2.5)}, lr=0.5))
    line = last_line(capsys)
    assert "value/train=1.5" in line
    assert "value/test=2.5" in line


def test_progress_bar_lets_an_error_through_and_is_left_standing(capsys):
    with pytest.raises(KeyboardInterrupt):
        run([rf.ProgressBar(), Break(1)], 4)
    assert "2/4" in last_line(capsys)


@pytest.mark.parametrize("make", [rf.ProgressBar, lambda: rf.TensorBoard("never"), lambda: rf.CSVLogger("never")])
def test_the_end_of_a_run_that_never_started_is_no_error(make, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    make().on_end(rf.Result({}, None, [], None))
    assert list(tmp_path.iterdir()) == []


class FailingStart:
    def on_start(self, run):
        raise RuntimeError("no place to write to")


def test_callbacks_let_through_the_error_of_a_later_run_that_did_not_start(tmp_path, capsys):
    watching = [rf.TensorBoard(tmp_path / "logs"), rf.ProgressBar(), rf.CSVLogger(tmp_path / "log.csv")]
    run(watching, 1)
    with pytest.raises(RuntimeError, match="no place to write to"):
        run([FailingStart(), *watching], 1)


# One's own


def test_a_callback_of_ones_own_overrides_what_it_needs():
    class Values(rf.Callback):
        def __init__(self):
            self.seen = []

        def on_hyper_iteration(self, k, hypers, hypergradient, extra):
            self.seen.append((k, float(hypergradient.value)))

    values = Values()
    result = run([values])
    assert values.seen == [(row["iteration"], row["value"]) for row in result.history]
