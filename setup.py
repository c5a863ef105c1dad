"""Installs the library alone; experiments, data and tests run from the checkout."""

import re
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
version = re.search(r'__version__ = "(.+)"', (here / "rfho2" / "__init__.py").read_text())
_, library, experiments = re.split(r"(?m)^# (?:library|experiments)$", (here / "requirements.txt").read_text())
matplotlib = [line for line in experiments.split() if line.startswith("matplotlib")]
search = ["bayesian-optimization>=3.4,<4", "cmaes>=0.11", "optuna>=4,<6"]
# A package index shows the README without the files that it links to: pictures go, links become their text.
readme = re.sub(r"(?m)^!\[.*\]\((?!http).*\)\n\n", "", (here / "README.md").read_text())
readme = re.sub(r"\[([^\]]+)\]\((?!http)[^)]*\)", r"\1", readme)

setup(
    name="rfho2",
    package_dir={"": "."},  # so that an editable install is found also from the folder that contains the checkout
    version=version.group(1),
    description="Gradient-based hyperparameter optimisation for TensorFlow 2: reverse, forward and real time",
    long_description=readme,
    long_description_content_type="text/markdown",
    license="MIT",
    keywords="hyperparameter-optimization hypergradient bilevel-optimization meta-learning tensorflow keras",
    project_urls={"Paper": "https://arxiv.org/abs/1703.01785"},
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    packages=find_packages(include=["rfho2", "rfho2.*"]),
    package_data={"rfho2": ["py.typed"]},
    install_requires=library.split(),
    extras_require={
        "experiments": experiments.split(),
        "plot": matplotlib,
        "dev": [*experiments.split(), *search, "coverage", "hypothesis", "mypy", "pytest", "pytest-xdist", "ruff"],
        "docs": ["furo", "ipykernel", "latex2mathml>=3.78", "myst-parser", "nbclient", "sphinx"],
        "release": ["build", "cyclonedx-bom>=7", "pip-audit", "setuptools>=77", "twine", "uv"],
        "search": search,
        "peers": ["cleanlab", "higher", "jax", "jaxopt", "torch==2.13.0", "torchopt"],
    },
)
