"""A browser without a window, for tests of pages and for their pictures."""

import shutil

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HEADLESS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
MISSING = "no chromium, chromium-browser or google-chrome on PATH"
