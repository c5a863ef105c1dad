"""The wheel: what is in it, what it needs, and that it works outside the checkout."""

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests import matrix
from tests.support.markdown import python_blocks

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, because setuptools would leave a folder `build` in the checkout."""
    copy, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    subprocess.run(["git", "-C", ROOT, "checkout-index", "--all", f"--prefix={copy}/"], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", output, copy]
    subprocess.run(command, check=True)
    (wheel,) = output.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_the_wheel_has_the_library_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"rfho2"}
    assert "rfho2/py.typed" in names


@pytest.mark.slow
def test_the_metadata_name_what_the_library_imports(wheel):
    archive = zipfile.ZipFile(wheel)
    (path,) = [name for name in archive.namelist() if name.endswith("METADATA")]
    about = Parser().parsestr(archive.read(path).decode())
    needed = [line for line in about.get_all("Requires-Dist") if "extra ==" not in line]
    assert {re.match(r"[\w-]+", line)[0] for line in needed} == {"tensorflow", "keras", "numpy", "tqdm", "tensorboard"}
    assert {"experiments", "plot"} <= set(about.get_all("Provides-Extra"))
    assert "](docs/" not in about.get_payload(), "a link that leads nowhere on a package index"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_works_outside_the_checkout(wheel, tmp_path, version):
    interpreter = matrix.interpreter(version)
    if interpreter is None:
        pytest.skip(f"Python {version} is not on this machine")
    subprocess.run([interpreter, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
    blocks = [block.text for block in python_blocks(ROOT / "docs" / "tour.md")]
    first = next(i for i, block in enumerate(blocks) if "print(" in block)
    program = "\n".join([*blocks[: first + 1], "import sys; assert 'rfho2.keras_bridge' not in sys.modules"])
    completed = subprocess.run([python, "-c", program], cwd=tmp_path, text=True, capture_output=True, check=True)
    assert "error 0.634" in completed.stdout
