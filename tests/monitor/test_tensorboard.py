"""The TensorBoard callback: the contents of the event files, as TensorBoard itself reads them."""

import json
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import rfho2 as rf
from rfho2.monitor.tensorboard import _image, flat
from tests.support.monitored import Interrupt, metrics, play, run, two_objectives


class Log:
    """Reads a log directory; TensorBoard assigns each tag one kind."""

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

    def images(self, name):
        """{step: rows x columns of grey} of the tag that contains `name`."""
        (tag,) = [tag for tag in self.tags("images") if name in tag]
        images = {}
        for step, (width, height, png) in self.read(tag):
            images[step] = tf.io.decode_png(png).numpy()[:, :, 0]
            assert images[step].shape == (int(height), int(width))
        return images

    def configuration(self):
        (tag,) = self.tags("text")
        return json.loads(self.read(tag)[0][1].item())

    def hparams(self):
        content = self.events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
        values = HParamsPluginData.FromString(content).session_start_info.hparams
        return {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """(the log of a run, its result)."""
    logdir = tmp_path_factory.mktemp("logs")
    result = run([rf.TensorBoard(logdir)], metrics=metrics)
    return Log(logdir), result


def test_scalars_are_the_value_scalar_hypers_their_hypergradients_norms_and_metrics(logged):
    log, result = logged
    scalars = {"objective/value", "objective/best", "hypers/lr", "hypergradients/lr", "metrics/accuracy", "norms/adjoint"}
    scalars |= {f"hypers/weights/{i}" for i in range(3)}
    assert log.tags("scalars") == scalars
    keys = {
        "objective/value": "value",
        "hypers/lr": "lr",
        "metrics/accuracy": "accuracy",
        "hypergradients/lr": "hypergradient/lr",
        "norms/adjoint": "norm of adjoint",
    }
    for tag, key in keys.items():
        assert log.scalars(tag) == [(row["iteration"], row[key]) for row in result.history]
    assert min(value for _, value in log.scalars("hypergradients/lr")) < 0
    assert log.scalars("objective/best") == [(3, np.float32(result.best.value))]


def test_vectors_are_histograms(logged):
    log, _ = logged
    assert {"hypers/weights", "hypergradients/weights", "metrics/errors"} <= log.tags("histograms")
    assert [step for step, _ in log.read("hypers/weights")] == [0, 1, 2]
    for _, buckets in log.read("metrics/errors"):  # left end, right end, count
        assert (buckets[0, 0], buckets[-1, 1], buckets[:, 2].sum()) == (1.0, 4.0, 3)


def test_matrices_are_images(logged):
    log, _ = logged
    for name in ("hypers/mixing", "hypergradients/mixing", "metrics/confusion"):
        assert list(log.images(name)) == [0, 1, 2], name


def test_an_image_is_dark_where_entries_are_small_and_light_where_they_are_large(logged):
    first = logged[0].images("hypers/mixing")[0]  # of [[1, 0], [1/4, 1/2]]
    corners = first[[0, 0, -1, -1], [0, -1, 0, -1]].astype(float) / 255
    np.testing.assert_allclose(corners, [1.0, 0.0, 0.25, 0.5], atol=0.01)


def test_the_image_of_a_matrix_with_negative_entries_begins_at_the_smallest():
    assert np.unique(_image(np.array([[-1.0, 0.0], [1.0, 3.0]]))).tolist() == [0, 0.25, 0.5, 1]


def test_the_configuration_is_text(logged):
    config = logged[0].configuration()
    assert config["iterations"] == 3
    assert config["engine"].items() >= {"method": "reverse", "steps": 2}.items()
    assert config["optimizer"].items() >= {"learning_rate": 0.02, "constraints": {"lr": "Box(low=0.0, high=0.5)"}}.items()


def test_the_hparams_page_has_the_initial_hypers_and_the_settings(logged):
    values = logged[0].hparams()
    assert values["initial.lr"] == np.float32(0.1)
    assert values["engine.method"] == "reverse"
    assert values["optimizer.learning_rate"] == 0.02


def test_the_hparams_page_shows_the_best_value_and_the_metrics(logged):
    content = logged[0].events.PluginTagToContent("hparams")["_hparams_/experiment"]
    experiment = HParamsPluginData.FromString(content).experiment
    assert [metric.name.tag for metric in experiment.metric_infos] == [
        "objective/best",
        "objective/value",
        "metrics/accuracy",
    ]
    assert {info.name for info in experiment.hparam_infos} == set(logged[0].hparams())


def test_settings_are_flat_and_keep_their_types():
    settings = {
        "engine": {"method": "average", "inner": {"steps": 2, "jit": True}},
        "optimizer": {"learning_rate": {"lr": 0.1}},
    }
    assert flat(settings) == {
        "engine.method": "average",
        "engine.inner.steps": 2,
        "engine.inner.jit": True,
        "optimizer.learning_rate.lr": 0.1,
    }
    assert flat({"names": [1, None], "checkpoints": None, "log_scale": []}) == {"names": "[1, None]"}


def test_custom_scalars_show_the_objective_first(logged):
    (tag,) = logged[0].tags("custom_scalars")
    layout = Layout.FromString(logged[0].read(tag)[0][1].item())
    assert [category.title for category in layout.category] == ["objective", "metrics", "hypers", "hypergradients", "norms"]
    for category in layout.category:
        (pattern,) = category.chart[0].multiline.tag
        assert any(re.search(pattern, tag) for tag in logged[0].tags("scalars"))


def test_a_resumed_run_continues_the_same_curves(tmp_path):
    run([rf.TensorBoard(tmp_path / "logs")], 2, tmp_path / "run")
    result = run([rf.TensorBoard(tmp_path / "logs")], 4, tmp_path / "run")
    log = Log(tmp_path / "logs")
    assert log.scalars("objective/value") == [(row["iteration"], row["value"]) for row in result.history]
    assert log.hparams()["initial.lr"] == np.float32(0.1)


def test_the_log_of_an_interrupted_run_is_complete_up_to_the_interruption(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run([rf.TensorBoard(tmp_path), Interrupt(1)])
    assert [step for step, _ in Log(tmp_path).scalars("objective/value")] == [0, 1]


def test_each_of_several_objectives_is_a_scalar(tmp_path):
    play(rf.TensorBoard(tmp_path), reported=two_objectives(1.0, 2.0))
    log = Log(tmp_path)
    assert (log.scalars("objective/train"), log.scalars("objective/test")) == ([(0, 1.0)], [(0, 2.0)])


def test_every_thins_out_histograms_and_images_but_not_scalars(tmp_path):
    play(rf.TensorBoard(tmp_path, every=2), {"v": [1.0, 2.0], "m": [[1.0, 2.0], [3.0, 4.0]]}, iterations=5)
    log = Log(tmp_path)
    assert [step for step, _ in log.scalars("objective/value")] == [0, 1, 2, 3, 4]
    assert [step for step, _ in log.read("hypers/v")] == [0, 2, 4]
    assert list(log.images("hypers/m")) == [0, 2, 4]


@pytest.mark.parametrize("constant", [-3.0, 0.0, 0.25, 7.0])
def test_the_image_of_a_constant_matrix_does_not_divide_by_zero(constant, tmp_path):
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        play(rf.TensorBoard(tmp_path), {"m": np.full((2, 3), constant, np.float32)})
    image = Log(tmp_path).images("hypers/m")[0]
    assert len(np.unique(image)) == 1
    assert image.shape[0] * 3 == image.shape[1] * 2


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (2, 2, 2), (300, 2)], ids=str)
def test_arrays_of_any_shape_are_logged(shape, tmp_path):
    play(rf.TensorBoard(tmp_path), {"a": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)})
    log = Log(tmp_path)
    assert any("hypers/a" in tag for tag in log.tags("histograms") | log.tags("images"))


def test_a_log_that_cannot_be_written_does_not_end_the_run(tmp_path, monkeypatch):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.summary.experimental, "write_raw_pb", full)
    with pytest.warns(UserWarning, match="the log cannot be written .*; the run continues without it"):
        result = run([rf.TensorBoard(tmp_path / "log")], 3)
    assert len(result.history) == 3


def test_a_place_where_no_log_can_be_does_not_end_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="the log cannot be written"):
        result = run([rf.TensorBoard(tmp_path / "file" / "log")], 2)
    assert len(result.history) == 2
