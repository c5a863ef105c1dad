"""Makes a file of CIFAR features with Inception-V3 (trained on ImageNet), as data.cifar_features reads it.

    python -m data.extract_cifar_features --dataset=cifar10
    python -m data.extract_cifar_features --dataset=cifar100 --per_class=100 --output=cifar100_features.npz

A balanced choice of training images, resized to 299 x 299, becomes the 2048 numbers before the network's classifier; then
come principal components and float16. Images and weights are downloaded once. A stopped run goes on where it was.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import socket
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import tqdm.auto
from absl import app, flags

from data import cifar_features, locks
from data.errors import DataError

HOST = "storage.googleapis.com"  # has the weights, and the images as tensorflow-datasets wants them
WEIGHTS = "inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5"  # the name in the directory of keras
SIDE = 299
PER_CLASS = {"cifar10": 600, "cifar100": 100}

Network = Callable[[np.ndarray], np.ndarray]
"""uint8 [n, 32, 32, 3] -> numbers [n, d]."""


class Images(NamedTuple):
    """`images` uint8 [n, height, width, 3], `labels` integers [n], K names."""

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]


class Settings(NamedTuple):
    """What the numbers depend on before principal components; finished batches of other settings are of no use."""

    dataset: str
    per_class: int
    seed: int
    batch: int


def make(
    settings: Settings, dimensions: int, output: Path, read: Callable[[str], Images], build: Callable[[], Network]
) -> cifar_features.Features:
    """Writes the file, whole or not at all, and reads it again.

    Args:
      dimensions: principal components that are kept; 0 keeps the numbers of the network.
      read: name of the dataset -> its training images.
      build: makes the network; called once the images are there.
    """
    with _claimed(output):
        if output.exists():
            raise DataError(f"{output} is already there; remove it to make it again, or choose another --output.")
        source = read(settings.dataset)
        rows = balanced(source, settings.per_class, settings.seed)
        partial = output.with_name(output.name + ".partial")
        numbers = compressed(extract(source.images[rows], build(), settings, partial), dimensions)
        labels, names = source.labels[rows].astype(np.uint8), np.array(source.class_names)
        _save(output, lambda file: np.savez_compressed(file, features=numbers, labels=labels, class_names=names))
        made = cifar_features.load(output)
        shutil.rmtree(partial)
        return made


def balanced(source: Images, per_class: int, seed: int) -> np.ndarray:
    """Which images to take: `per_class` of each class, in random order, as a function of `seed`."""
    rng = np.random.default_rng(seed)
    rows = []
    for c, name in enumerate(source.class_names):
        of_class = np.flatnonzero(source.labels == c)
        if len(of_class) < per_class:
            raise DataError(
                f"per_class is {per_class}, but there are only {len(of_class)} images of class {c} ('{name}'); "
                f"choose --per_class={len(of_class)} or less."
            )
        rows.append(rng.choice(of_class, per_class, replace=False))
    return rng.permutation(np.concatenate(rows))


def extract(images: np.ndarray, network: Network, settings: Settings, partial: Path) -> np.ndarray:
    """network(images), float32 [n, d]; each batch is a file in `partial` once it is finished, and is not computed again."""
    _prepare(partial, settings, images)
    batches = np.split(images, range(settings.batch, len(images), settings.batch))
    files = [partial / f"{i:05d}.npy" for i in range(len(batches))]
    todo = [i for i, file in enumerate(files) if _kept(file, len(batches[i])) is None]
    done = len(files) - len(todo)
    for i in tqdm.auto.tqdm(todo, desc=settings.dataset, unit="batch", initial=done, total=len(files)):
        numbers = np.asarray(network(batches[i]), np.float32)
        _save(files[i], functools.partial(np.save, arr=numbers))
    return np.concatenate([np.load(file, allow_pickle=False) for file in files])


def compressed(features: np.ndarray, dimensions: int) -> np.ndarray:
    """The first principal components (0: the features themselves), divided by their overall standard deviation, float16."""
    spread = features.std(axis=0, dtype=np.float64)
    if not np.all(np.isfinite(spread)) or not np.any(spread):
        raise DataError("the features of all images are the same or not finite; the weights of the network are broken.")
    if dimensions:
        features = principal_components(features, dimensions)
    return (features / features.std(dtype=np.float64)).astype(np.float16)


def principal_components(features: np.ndarray, dimensions: int) -> np.ndarray:
    """U S of the singular value decomposition U S V' of the centred features, its first columns, float64."""
    if dimensions > min(features.shape):
        raise DataError(
            f"dimensions is {dimensions}, but {features.shape[0]} images of {features.shape[1]} numbers each have at most "
            f"{min(features.shape)}; choose fewer, or 0 for none (the finished batches are kept)."
        )
    left, values, _ = np.linalg.svd(features - features.mean(axis=0, dtype=np.float64), full_matrices=False)
    share = np.sum(values[:dimensions] ** 2) / np.sum(values**2)
    print(f"{dimensions} principal components have {100 * share:.1f} % of the variance.")
    return left[:, :dimensions] * values[:dimensions]


def read_tfds(dataset: str) -> Images:
    """The training images, through tensorflow-datasets."""
    import tensorflow_datasets as tfds

    builder = tfds.builder(dataset)
    if not builder.is_prepared():
        _probe(f"the images of {dataset} are")
        try:
            builder.download_and_prepare()
        except Exception as error:  # of many kinds, from several libraries
            raise DataError(f"the images of {dataset} cannot be downloaded ({_short(error)}); try again later.") from None
    both = tfds.as_numpy(builder.as_dataset(split="train", batch_size=-1, shuffle_files=False))
    return Images(both["image"], both["label"], tuple(builder.info.features["label"].names))


def inception(weights: str | None = "imagenet") -> Network:
    """Images -> the 2048 pooled numbers before the classifier of Inception-V3; weights None is for trying it out."""
    import tensorflow as tf

    cache = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / "models"
    if weights and not (cache / WEIGHTS).exists():
        _probe("the weights of Inception-V3 are")  # or keras would wait for ever
    applications = tf.keras.applications
    try:
        model = applications.InceptionV3(weights=weights, include_top=False, pooling="avg", input_shape=(SIDE, SIDE, 3))
    except Exception as error:  # keras raises Exception itself
        raise DataError(
            f"the weights of Inception-V3 cannot be had ({_short(error)}); empty {cache} and try again."
        ) from None

    @tf.function(autograph=False, reduce_retracing=True)
    def run(images: tf.Tensor) -> tf.Tensor:
        large = tf.image.resize(tf.cast(images, tf.float32), (SIDE, SIDE), "bilinear")
        return model(applications.inception_v3.preprocess_input(large), training=False)

    return lambda images: run(tf.constant(images)).numpy()


def _probe(what: str) -> None:
    try:
        socket.create_connection((HOST, 443), timeout=4).close()
    except OSError as error:
        raise DataError(
            f"{what} not on this disk and {HOST} cannot be reached ({error}); connect this machine to the internet, "
            "or make the file on one that is."
        ) from None


def _short(error: Exception) -> str:
    """The first line, because the sentence for the user should stay one."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _prepare(partial: Path, settings: Settings, images: np.ndarray) -> None:
    """Makes sure that the batches in `partial` are of these settings and images."""
    checksum = zlib.crc32(np.ascontiguousarray(images).data)
    wanted = json.dumps({**settings._asdict(), "checksum of the images": checksum}).encode()
    file = partial / "settings.json"
    try:
        if partial.exists() and (not file.exists() or file.read_bytes() != wanted):
            print(f"{partial} belongs to other settings; it is discarded.", file=sys.stderr)
            shutil.rmtree(partial)  # refuses a symbolic link, so that nothing is removed elsewhere
    except OSError as error:
        raise DataError(f"{partial} cannot be used ({error}); remove it or choose another --output.") from None
    _save(file, lambda draft: draft.write(wanted))


def _kept(file: Path, count: int) -> np.ndarray | None:
    try:
        numbers = np.load(file, allow_pickle=False)
    except Exception:  # not there, or broken by a power cut: numpy raises many kinds
        return None
    whole = isinstance(numbers, np.ndarray) and numbers.dtype == np.float32 and numbers.shape[:1] == (count,)
    return numbers if whole else None


def _save(path: Path, write: Callable[[BinaryIO], object]) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        try:
            with draft.open("xb") as file:  # not through a link that somebody put there
                write(file)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from None


@contextlib.contextmanager
def _claimed(output: Path) -> Iterator[None]:
    """No other process makes the same file meanwhile; what takes hours is refused at once, not waited for."""
    with contextlib.ExitStack() as stack:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locks.alone(output, wait=False))
        except BlockingIOError:
            raise DataError(
                f"{output} is being made by another process; wait for that one, or choose another --output."
            ) from None
        except OSError as error:
            raise _cannot_write(output, error) from None
        yield


def _cannot_write(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be written ({error.strerror or error}); choose another --output or make room.")


def main(argv: list[str], values: flags.FlagValues = flags.FLAGS) -> None:
    """Bad data is one sentence and exit code 1; Ctrl-C says how to go on and exits with 130."""
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {' '.join(argv[1:])}; flags look like --name=value.")
    output = Path(values.output).expanduser() if values.output else cifar_features.cached(values.dataset)
    settings = Settings(values.dataset, values.per_class or PER_CLASS[values.dataset], values.seed, values.batch)
    try:
        made = make(settings, values.dimensions, output, read_tfds, inception)
    except DataError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        command = shlex.join(["python", "-m", "data.extract_cifar_features", *sys.argv[1:]])
        print(f"\nStopped; finished batches are kept. To go on, run again: {command}", file=sys.stderr)
        sys.exit(130)
    shape = " x ".join(map(str, made.features.shape))
    print(f"Written to {output}: {shape} numbers, {len(made.class_names)} classes.")


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Flags of this command."""
    flags.DEFINE_enum("dataset", "cifar10", list(PER_CLASS), "Which images.", flag_values=values)
    flags.DEFINE_integer("per_class", None, "Images of each class; 600 or, for CIFAR-100, 100.", 1, flag_values=values)
    flags.DEFINE_integer("seed", 0, "Which images are chosen, and their order.", 0, flag_values=values)
    flags.DEFINE_integer("batch", 50, "Images that go through the network at a time.", 1, flag_values=values)
    flags.DEFINE_integer("dimensions", 256, "Principal components; 0 keeps 2048 numbers.", 0, 2048, flag_values=values)
    flags.DEFINE_string("output", None, f"The file; {cifar_features.CACHE} has its place.", flag_values=values)


if __name__ == "__main__":
    define_flags()
    app.run(main)
