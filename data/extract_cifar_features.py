"""Makes a file of CIFAR features with Inception-V3 (trained on ImageNet), in the layout that data.cifar_features reads.

    python -m data.extract_cifar_features --dataset=cifar10
    python -m data.extract_cifar_features --dataset=cifar100 --per_class=100 --output=cifar100_features.npz

A balanced sample of the training images is resized to 299 x 299 and mapped to the 2048 numbers before the network's
classifier; these are reduced to principal components and stored as float16. Images and weights are downloaded once. An
interrupted run resumes after the last finished batch.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import tqdm.auto
from absl import app, flags

from data import cifar_features, downloads, locks
from data.downloads import Images
from data.errors import DataError
from data.inception import REMEDY, Network, inception

PER_CLASS = {"cifar10": 600, "cifar100": 100}


class Settings(NamedTuple):
    """What the network's output depends on; finished batches of other settings cannot be reused."""

    dataset: str
    per_class: int
    seed: int
    batch: int


def make(
    settings: Settings, dimensions: int, output: Path, read: Callable[[str], Images], build: Callable[[], Network]
) -> cifar_features.Features:
    """Writes the file atomically and reads it back.

    Args:
      dimensions: number of principal components to keep; 0 keeps the network's output as it is.
      read: name of the data set -> its training images.
      build: makes the network; called after the images have been read.
    """
    with _claimed(output):
        if output.exists():
            raise DataError(f"{output} already exists; remove it to make it again, or choose another --output.")
        images, labels, names = read(settings.dataset)
        rows = downloads.balanced(labels, names, settings.per_class, settings.seed, "choose a smaller --per_class")
        partial = output.with_name(output.name + ".partial")
        arrays = {
            "features": compressed(extract(images[rows], build(), settings, partial), dimensions),
            "labels": labels[rows].astype(np.uint8),
            "class_names": np.array(names),
        }
        _save(output, lambda file: np.savez_compressed(file, **arrays))
        features = cifar_features.load(output)
        shutil.rmtree(partial)
        return features


def extract(images: np.ndarray, network: Network, settings: Settings, partial: Path) -> np.ndarray:
    """network(images), float32 [n, d]; every finished batch is kept as a file in `partial` and not computed again."""
    _prepare(partial, settings, images)
    batches = np.split(images, range(settings.batch, len(images), settings.batch))
    files = [partial / f"{i:05d}.npy" for i in range(len(batches))]
    unfinished = [i for i, file in enumerate(files) if not _is_finished(file, len(batches[i]))]
    finished = len(files) - len(unfinished)
    for i in tqdm.auto.tqdm(unfinished, desc=settings.dataset, unit="batch", initial=finished, total=len(files)):
        numbers = np.asarray(network(batches[i]), np.float32)
        _save(files[i], functools.partial(np.save, arr=numbers))
    return np.concatenate([np.load(file, allow_pickle=False) for file in files])


def compressed(features: np.ndarray, dimensions: int) -> np.ndarray:
    """The first principal components (0: the features themselves), divided by their overall standard deviation, float16."""
    spread = features.std(axis=0, dtype=np.float64)
    if not np.all(np.isfinite(spread)) or not np.any(spread):
        raise DataError("the features of all images are equal or not finite; the weights of the network are broken.")
    if dimensions:
        features = principal_components(features, dimensions)
    return (features / features.std(dtype=np.float64)).astype(np.float16)


def principal_components(features: np.ndarray, dimensions: int) -> np.ndarray:
    """The first columns of U S, float64, where U S V' is the singular value decomposition of the centred features."""
    if dimensions > min(features.shape):
        raise DataError(
            f"dimensions is {dimensions}, but {features.shape[0]} images of {features.shape[1]} numbers each have at most "
            f"{min(features.shape)}; choose fewer, or 0 for no reduction (the finished batches are kept)."
        )
    left, values, _ = np.linalg.svd(features - features.mean(axis=0, dtype=np.float64), full_matrices=False)
    share = np.sum(values[:dimensions] ** 2) / np.sum(values**2)
    print(f"{dimensions} principal components explain {100 * share:.1f} % of the variance.")
    return left[:, :dimensions] * values[:dimensions]


def read_images(dataset: str) -> Images:
    """The training images of CIFAR-10 or CIFAR-100."""
    return downloads.training_images(dataset, f"the images of {dataset}", REMEDY)


def _prepare(partial: Path, settings: Settings, images: np.ndarray) -> None:
    """Discards the batches in `partial` if they belong to other settings or images."""
    checksum = zlib.crc32(np.ascontiguousarray(images).data)
    expected = json.dumps({**settings._asdict(), "checksum of the images": checksum}).encode()
    file = partial / "settings.json"
    try:
        if partial.exists() and (not file.exists() or file.read_bytes() != expected):
            print(f"{partial} belongs to other settings and is discarded.", file=sys.stderr)
            shutil.rmtree(partial)  # refuses a symbolic link, so that nothing is removed elsewhere
    except OSError as error:
        raise DataError(f"{partial} cannot be used ({error}); remove it or choose another --output.") from None
    _save(file, lambda draft: draft.write(expected))


def _is_finished(file: Path, count: int) -> bool:
    try:
        numbers = np.load(file, allow_pickle=False)
    except Exception:  # missing, or broken by a power cut: numpy raises many kinds
        return False
    return isinstance(numbers, np.ndarray) and numbers.dtype == np.float32 and numbers.shape[:1] == (count,)


def _save(path: Path, write: Callable[[BinaryIO], object]) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        try:
            with draft.open("xb") as file:  # does not follow a link that somebody put there
                write(file)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from None


@contextlib.contextmanager
def _claimed(output: Path) -> Iterator[None]:
    """Keeps other processes from making the same file; a second one is refused, because the wait could take hours."""
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
    return DataError(f"{path} cannot be written ({error.strerror or error}); choose another --output or free some space.")


def main(argv: list[str], values: flags.FlagValues = flags.FLAGS) -> None:
    """Reports bad data in one sentence with exit code 1; Ctrl-C prints how to resume and exits with code 130."""
    if len(argv) > 1:
        raise app.UsageError(f"not understood: {' '.join(argv[1:])}; flags look like --name=value.")
    output = Path(values.output).expanduser() if values.output else cifar_features.cached(values.dataset)
    settings = Settings(values.dataset, values.per_class or PER_CLASS[values.dataset], values.seed, values.batch)
    try:
        features = make(settings, values.dimensions, output, read_images, inception)
    except DataError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        command = shlex.join(["python", "-m", "data.extract_cifar_features", *sys.argv[1:]])
        print(f"\nStopped; finished batches are kept. To resume, run: {command}", file=sys.stderr)
        sys.exit(130)
    shape = " x ".join(map(str, features.features.shape))
    print(f"Written to {output}: {shape} numbers, {len(features.class_names)} classes.")


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of this command."""
    flags.DEFINE_enum("dataset", "cifar10", list(PER_CLASS), "Which images.", flag_values=values)
    flags.DEFINE_integer("per_class", None, "Images per class; by default 600, or 100 of CIFAR-100.", 1, flag_values=values)
    flags.DEFINE_integer("seed", 0, "Seed for the choice and the order of the images.", 0, flag_values=values)
    flags.DEFINE_integer("batch", 50, "Images per call of the network.", 1, flag_values=values)
    flags.DEFINE_integer("dimensions", 256, "Principal components; 0 keeps all 2048 numbers.", 0, 2048, flag_values=values)
    flags.DEFINE_string("output", None, f"The file to write; by default in {cifar_features.CACHE}.", flag_values=values)


if __name__ == "__main__":
    define_flags()
    app.run(main)
