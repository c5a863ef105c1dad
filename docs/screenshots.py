"""Takes the pictures of docs/monitoring.md, from a real run, with a Chromium that is on the path.

python -m docs.screenshots   # two or three minutes
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.browser import BROWSER, HEADLESS, MISSING

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
RESULTS = Path("results") / "screenshots"
LOADING = 60  # seconds that TensorBoard may take to start
PATIENCE = 20_000  # milliseconds, of a virtual clock, that a page has to draw itself


def main() -> None:
    """Runs an experiment, and photographs TensorBoard and the page of results."""
    if BROWSER is None:
        raise SystemExit(f"There is {MISSING}; install one of them.")
    output = RESULTS / "data_hyper_cleaning"
    python(
        "experiments.data_hyper_cleaning", "--preset=quick", "--hyper_iterations=40", "--noresume", f"--output_dir={output}"
    )
    python("experiments.report", f"--results={RESULTS}")
    take((ROOT / RESULTS / "report.html").as_uri(), FIGURES / "report.png", 1300)
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    logs = ["tensorboard.main", "--logdir", str(output / "runs"), "--port", str(port)]
    board = subprocess.Popen([sys.executable, "-m", *logs], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, board)
        take(f"http://localhost:{port}/#histograms", FIGURES / "tensorboard.png", 900)
    finally:
        board.terminate()
        board.wait()


def python(*arguments: str) -> None:
    """Runs a module from the checkout, so that paths in the pictures are relative."""
    subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, check=True)


def wait_for(port: int, board: subprocess.Popen[bytes]) -> None:
    """Returns when TensorBoard listens, and has had a few seconds to read its logs."""
    end = time.monotonic() + LOADING
    while time.monotonic() < end and board.poll() is None:
        try:
            socket.create_connection(("localhost", port)).close()
        except OSError:
            time.sleep(0.5)
        else:
            time.sleep(5)
            return
    raise SystemExit(f"TensorBoard did not start within {LOADING} s.")


def take(address: str, picture: Path, height: int) -> None:
    """A picture of a page."""
    picture.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        size = ["--hide-scrollbars", f"--window-size=1200,{height}", f"--virtual-time-budget={PATIENCE}"]
        command = [str(BROWSER), *HEADLESS, f"--user-data-dir={profile}", *size, f"--screenshot={picture}", address]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    if not picture.exists():
        raise SystemExit(f"{BROWSER} has not written {picture.relative_to(ROOT)}.")
    print(f"Written to {picture.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
