"""The site of the documentation: it builds, loads nothing from elsewhere, fits on narrow screens, and can be searched."""

import functools
import http.server
import importlib.util
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rfho2 as rf
from tests.support.browser import BROWSER, HEADLESS, MISSING

ROOT = Path(__file__).parents[1]
WIDTHS = (400, 800, 1400)
WORDS = ("hyper-cleaning", "clipnorm", "schedule")
PROBE = """
<iframe style="height: 900px"></iframe>
<script>
const frame = document.querySelector("iframe"), problems = [];
const load = (url, width) => new Promise(resolve => {
  frame.style.width = width + "px"; frame.onload = resolve; frame.src = url;
});
const pause = () => new Promise(resolve => setTimeout(resolve, 50));
(async () => {
  for (const page of PAGES) for (const width of WIDTHS) {
    await load(page, width);
    const root = frame.contentDocument.documentElement, needed = root.scrollWidth;
    if (needed > root.clientWidth) problems.push(`${page} needs ${needed} of ${width} pixels`);
    for (const entry of frame.contentWindow.performance.getEntriesByType("resource"))
      if (!entry.name.startsWith(location.origin)) problems.push(`${page} loads ${entry.name}`);
  }
  for (const word of WORDS) {
    await load("search.html?q=" + word, 800);
    const results = () => frame.contentDocument.querySelectorAll("ul.search li").length;
    for (let i = 0; i < 100 && !results(); i++) await pause();
    if (!results()) problems.push(`the search does not find ${word}`);
  }
})().catch(error => problems.push(String(error))).finally(
  () => fetch("/problems", {method: "POST", body: JSON.stringify(problems)}));
</script>
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("sphinx is not installed")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    command += ["-d", place / "trees", ROOT / "docs", place / "html"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr[-3000:]
    return place / "html"


@pytest.mark.slow
def test_it_builds_without_warnings_and_has_every_public_name(site):
    page = "".join((site / f"{name}.html").read_text() for name in ("api", "methods"))
    for public in rf.__all__:
        assert f'id="rfho2.{public}"' in page or f'id="module-rfho2.{public}"' in page, public
    assert "<math" in page


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=MISSING)
def test_a_browser_shows_every_page_at_every_width_loads_nothing_from_elsewhere_and_finds_words(site, tmp_path):
    answers: queue.Queue[list[str]] = queue.Queue()
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if "_static" not in path.parts)
    probe = PROBE
    for name, value in (("PAGES", pages), ("WIDTHS", WIDTHS), ("WORDS", WORDS)):
        probe = probe.replace(name, json.dumps(value))
    (site / "probe.html").write_text(probe)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_POST(self):
            answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("localhost", 0), functools.partial(Handler, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [BROWSER, *HEADLESS, "--window-size=1600,1000", f"--user-data-dir={tmp_path}", "--remote-debugging-port=0"]
    command.append(f"http://localhost:{server.server_port}/probe.html")
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert answers.get(timeout=200) == []
    finally:
        browser.terminate()
        browser.wait()
        server.shutdown()
        server.server_close()
