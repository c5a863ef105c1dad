"""Data sets that are generated, or gathered from installed packages, for the tasks that need them."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from pathlib import Path

import numpy as np
from sklearn import datasets

PACKAGES = ("keras", "matplotlib", "numpy", "scipy")
TEXTS = 500  # docstrings of each package
WORDS, LENGTH = 1500, 40  # of the vocabulary, and of a text
LANGUAGES = {"numpy": "*.pyi", "scipy": "*.py", "sklearn": "*.pyx", "tensorflow": "include/tensorflow/core/**/*.h"}
SNIPPET = 64  # bytes


@functools.cache
def docstrings() -> tuple[list[list[str]], np.ndarray]:
    """The words of docstrings, and the numbers of the packages that they belong to; the packages' names are left out."""
    texts, labels = [], []
    for label, package in enumerate(PACKAGES):
        of_package = _docstrings_of(package)
        texts += of_package
        labels += [label] * len(of_package)
    return texts, np.array(labels, np.int32)


def _docstrings_of(package: str) -> list[list[str]]:
    root = Path(str(importlib.import_module(package).__file__)).parent
    files = sorted(path for path in root.rglob("*.py") if "test" not in path.name and "tests" not in path.parts)
    texts: list[list[str]] = []
    for number in np.random.default_rng(0).permutation(len(files)):
        tree = ast.parse(files[number].read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        for text in (ast.get_docstring(node) or "" for node in nodes):
            words = [word for word in re.findall("[a-z]+", text.lower()) if word not in PACKAGES]
            if len(words) >= LENGTH:
                texts.append(words[:LENGTH])
        if len(texts) >= TEXTS:
            break
    return texts[:TEXTS]


def as_numbers(texts: list[list[str]], known: list[list[str]]) -> np.ndarray:
    """Words as numbers by their frequency in the known texts; 0 for words that are rare or unknown."""
    words, counts = np.unique([word for text in known for word in text], return_counts=True)
    frequent = words[np.argsort(-counts, kind="stable")][: WORDS - 1]
    numbers = {word: number for number, word in enumerate(frequent, start=1)}
    return np.array([[numbers.get(word, 0) for word in text] for text in texts], np.int32)


def mackey_glass(steps: int, rng: np.random.Generator, delay: int = 17, noise: float = 0.05) -> np.ndarray:
    """A chaotic series, dx/dt = 0.2 x(t - delay) / (1 + x(t - delay)^10) - 0.1 x, with noise, after its first 500 values."""
    x = np.full(steps + 500, 1.2)
    x[: delay + 1] += 0.1 * rng.standard_normal(delay + 1)
    for t in range(delay, len(x) - 1):
        x[t + 1] = x[t] + 0.2 * x[t - delay] / (1 + x[t - delay] ** 10) - 0.1 * x[t]
    return (x[500:] - 0.93) / 0.22 + noise * rng.standard_normal(steps)


def shapes(count: int, rng: np.random.Generator, size: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images of discs, squares, triangles and crosses of random size, place and brightness."""
    rows, columns = np.mgrid[:size, :size]
    labels = rng.integers(4, size=count).astype(np.int32)
    images = 0.25 * rng.standard_normal((count, size, size))
    for image, label in zip(images, labels, strict=True):
        radius = rng.uniform(3, 6)
        centre = rng.uniform(radius, size - radius, size=2)
        y, x = (rows - centre[0]) / radius, (columns - centre[1]) / radius
        inside = [
            x**2 + y**2 < 1,
            np.maximum(abs(x), abs(y)) < 0.85,
            (y < 0.8) & (abs(x) < 0.6 * (y + 1)),
            (np.minimum(abs(x), abs(y)) < 0.3) & (np.maximum(abs(x), abs(y)) < 1),
        ]
        image += rng.uniform(0.5, 1.5) * inside[label]
    return images[..., None].astype(np.float32), labels


def brackets(count: int, rng: np.random.Generator, length: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Strings of two kinds of brackets; in half of them, one bracket is replaced by another, so they do not match."""
    labels = rng.integers(2, size=count).astype(np.float32)
    texts = np.array([_balanced(length, rng) for _ in range(count)], np.int32)
    for text, label in zip(texts, labels, strict=True):
        if not label:
            place = rng.integers(length)
            text[place] = (text[place] + rng.integers(1, 4)) % 4
    return texts, labels[:, None]


def _balanced(length: int, rng: np.random.Generator) -> list[int]:
    """A string in which brackets match: 0 is closed by 2, and 1 by 3."""
    text: list[int] = []
    still_open: list[int] = []
    while len(text) < length:
        if still_open and (len(still_open) == length - len(text) or rng.random() < 0.5):
            text.append(still_open.pop() + 2)
        else:
            still_open.append(int(rng.integers(2)))
            text.append(still_open[-1])
    return text


def waveforms(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Breiman's waveforms: random mixtures of two of three triangles at 21 points, with noise."""
    points = np.arange(1, 22)
    triangles = np.maximum(6 - abs(points - np.array([[11], [7], [15]])), 0)
    labels = rng.integers(3, size=count).astype(np.int32)
    first, second = triangles[[0, 0, 1]][labels], triangles[[1, 2, 2]][labels]
    shares = rng.random((count, 1))
    x = shares * first + (1 - shares) * second + rng.standard_normal((count, 21))
    return x.astype(np.float32), labels


def spirals(count: int, rng: np.random.Generator, arms: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Points near the arms of a spiral, each arm a class."""
    labels = rng.integers(arms, size=count).astype(np.int32)
    radius = rng.uniform(0.1, 1, count)
    angle = 2 * np.pi * (labels / arms + 0.8 * radius) + 0.5 * rng.standard_normal(count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32), labels


@functools.cache
def snippets() -> tuple[np.ndarray, np.ndarray]:
    """Pieces of files of four languages, as bytes: type stubs, Python, Cython and C++, from installed packages."""
    rng, texts, labels = np.random.default_rng(0), [], []
    for label, (package, pattern) in enumerate(LANGUAGES.items()):
        root = Path(str(importlib.import_module(package).__file__)).parent
        whole = b"\n".join(path.read_bytes() for path in sorted(root.rglob(pattern))[:200])
        starts = rng.integers(len(whole) - SNIPPET, size=TEXTS)
        texts += [np.frombuffer(whole[start : start + SNIPPET], np.uint8) for start in starts]
        labels += [label] * TEXTS
    return np.minimum(np.stack(texts), 127).astype(np.int32), np.array(labels, np.int32)


def patches(count: int, rng: np.random.Generator, size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Grey patches of scikit-learn's two photographs: which quarter of which photograph? Eight classes.

    Each patch has mean 0 and standard deviation about 1.
    """
    quarters = []
    for photograph in datasets.load_sample_images().images:
        grey = photograph.mean(-1)
        rows, columns = grey.shape[0] // 2, grey.shape[1] // 2
        quarters += [grey[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns] for i in (0, 1) for j in (0, 1)]
    labels = rng.integers(len(quarters), size=count).astype(np.int32)
    tops, lefts = (rng.integers(quarters[0].shape[axis] - size, size=count) for axis in (0, 1))
    places = zip(labels, tops, lefts, strict=True)
    cut = [quarters[label][top : top + size, left : left + size] for label, top, left in places]
    x = np.stack(cut).reshape(count, -1)
    x = (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1)
    return x.reshape(count, size, size, 1).astype(np.float32), labels


def repeats(count: int, rng: np.random.Generator, length: int = 8, kinds: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Tokens, all different, or with one of them twice."""
    texts = np.stack([rng.permutation(kinds)[:length] for _ in range(count)]).astype(np.int32)
    labels = rng.integers(2, size=count).astype(np.float32)
    for text, label in zip(texts, labels, strict=True):
        if label:
            source, place = rng.choice(length, 2, replace=False)
            text[place] = text[source]
    return texts, labels[:, None]
