"""Draw the pictures of the documents: every page of the viewer, wide and as on a phone, or pages of
results as files, also in the dark.

    python tools/screenshots.py runs --first seed-1/05-rl --second seed-2/05-rl
    python tools/screenshots.py --page leaderboard=runs/board/leaderboard.html --out docs/pages

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
from playwright.sync_api import Page, sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
SIZES = {"": (1240, 800), "-phone": (390, 800)}
FILE_SIZES = {"": (1280, 1300), "-phone": (375, 1300)}
MAX_BYTES = 150_000


def list_views(first: str, second: str, step: int, results: str) -> dict[str, str]:
    run, other = quote(first, safe=""), quote(second, safe="")
    rollout = f"rollout?run={run}&file=train-{step:06d}.parquet&row=0&colour=logprob"
    return {
        "runs": f"runs?turned={quote(first.rpartition('/')[0], safe='')}",
        "run": f"run?run={run}",
        "curves": f"curves?runs={run},{other}&smooth=0.5",
        "rollouts": f"rollouts?run={run}&verdict=wrong",
        "rollout": rollout,
        "difficulty": f"difficulty?run={run}",
        "time": f"time?run={run}",
        "agreement": f"agreement?run={run}&part=finished",
        "settings": f"settings?a={run}&b={other}",
        "data": "data",
        "results": f"results?file={quote(results, safe='')}",
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
                save_picture(page, out / f"{name}{suffix}.png")
        browser.close()


def draw_files(files: dict[str, Path], out: Path) -> None:
    """Draw the beginning of pages that are files, light and dark."""
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for scheme, mark in {"light": "", "dark": "-dark"}.items():
            for suffix, (width, height) in FILE_SIZES.items():
                page = browser.new_page(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                for name, file in files.items():
                    page.goto(file.resolve().as_uri())
                    save_picture(page, out / f"{name}{suffix}{mark}.png")
        browser.close()


def save_picture(page: Page, path: Path) -> None:
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(
        256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    ).save(path, optimize=True)
    assert path.stat().st_size < MAX_BYTES, path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--first")
    parser.add_argument("--second")
    parser.add_argument("--step", type=int, default=80)
    parser.add_argument("--results", default="board/leaderboard.json")
    parser.add_argument("--page", action="append", default=[], help="NAME=FILE.html")
    parser.add_argument("--out", type=Path, default=Path("docs/viewer"))
    given = parser.parse_args()
    if given.page:
        pairs = (page.split("=", 1) for page in given.page)
        draw_files({name: Path(file) for name, file in pairs}, given.out)
        return
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "whet", "view", str(given.folder), "--port", "0"]
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            match = re.search(r"http://localhost:\d+/", server.stderr.readline())
            assert match is not None
            views = list_views(given.first, given.second, given.step, given.results)
            draw(match[0], views, given.out)
        finally:
            server.terminate()
            server.communicate(timeout=20)


if __name__ == "__main__":
    main()
