"""Draw the pictures of docs/viewer.md: every page of the viewer, wide and as on a phone.

    python bench/screenshots.py runs --first seed-1/05-rl --second seed-2/05-rl

Needs Chromium and playwright, as `make test-browser` does. The pictures have 256 colours, which keeps
each below 150 kB.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
SIZES = {"": (1240, 800), "-phone": (390, 800)}
MAX_BYTES = 150_000


def list_views(first: str, second: str, step: int) -> dict[str, str]:
    run, other = quote(first, safe=""), quote(second, safe="")
    rollout = f"rollout?run={run}&file=train-{step:06d}.parquet&row=0&colour=logprob"
    return {
        "runs": "runs",
        "run": f"run?run={run}",
        "curves": f"curves?runs={run},{other}&smooth=0.5",
        "rollouts": f"rollouts?run={run}&verdict=wrong",
        "rollout": rollout,
        "difficulty": f"difficulty?run={run}",
        "time": f"time?run={run}",
        "agreement": f"agreement?run={run}&part=finished",
        "settings": f"settings?a={run}&b={other}",
        "data": "data",
        "results": "results",
        "problem": "",
    }


def draw(address: str, views: dict[str, str], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        page = browser.new_page()
        page.goto(f"{address}#/{views['rollout']}")  # reads the rollouts once
        page.wait_for_selector(".response", timeout=60_000)
        for suffix, (width, height) in SIZES.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            for name, view in views.items():
                page.goto(f"{address}#/{view or views['difficulty']}")
                page.wait_for_timeout(2_500)
                if not view:
                    page.locator("td a[data-item]").nth(60).click()
                    page.wait_for_timeout(1_500)
                path = out / f"{name}{suffix}.png"
                page.screenshot(path=path)
                Image.open(path).convert("RGB").quantize(
                    256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
                ).save(path, optimize=True)
                assert path.stat().st_size < MAX_BYTES, path
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", required=True)
    parser.add_argument("--second", required=True)
    parser.add_argument("--step", type=int, default=80)
    parser.add_argument("--out", type=Path, default=Path("docs/viewer"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "whet", "view", str(given.folder), "--port", "0"]
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            match = re.search(r"http://localhost:\d+/", server.stderr.readline())
            assert match is not None
            draw(match[0], list_views(given.first, given.second, given.step), given.out)
        finally:
            server.terminate()
            server.communicate(timeout=20)


if __name__ == "__main__":
    main()
