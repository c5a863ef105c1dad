"""Installs the library alone; experiments, data and tests run from the checkout."""

import re
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
version = re.search(r'__version__ = "(.+)"', (here / "rfho2" / "__init__.py").read_text())
requirements = [line.strip() for line in (here / "requirements.txt").read_text().splitlines()]

setup(
    name="rfho2",
    version=version.group(1),
    description="Gradient-based hyperparameter optimisation for TensorFlow 2: reverse, forward and real time",
    long_description=(here / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_packages(include=["rfho2", "rfho2.*"]),
    package_data={"rfho2": ["py.typed"]},
    install_requires=[line for line in requirements if line and not line.startswith("#")],
    extras_require={
        "dev": ["bayesian-optimization>=3.4,<4", "hypothesis", "mypy", "pytest", "pytest-xdist", "ruff"],
        "docs": ["furo", "ipykernel", "myst-parser", "nbclient", "sphinx"],
        "search": ["bayesian-optimization>=3.4,<4"],
        "peers": ["higher", "jax", "torch==2.13.0", "torchopt"],
    },
)
