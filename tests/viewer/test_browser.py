"""The viewer in a real Chromium: how fast it is, that it follows a live run, that text of models does
nothing, that keys are enough, and that nobody is shut out.

Run by `make test-browser`; skipped with a reason where there is no browser.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_texts import TEXTS
from result_files import write_results
from viewer_runs import write_run

from bench.view import write_run as write_large_run
from whet.data.problems import write_problems
from whet.store.files import append_row, write_json
from whet.store.rollouts import write_rollouts
from whet.testing.fakes import rollout, sum_problem
from whet.types import Message, Score, Verdict

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
FIRST_PAINT_MS, FILTER_MS = 1_000, 300
TRIES = 5
"""Every time is the best of so many: other work on the machine is not the viewer's."""
FILTERS = {
    "rare text": ("q", ("right angle", "area zero", "twice twice", "hence wait", "sum sum")),
    "frequent text": ("q", ("the", "that", "so", "equal", "of")),
    "no text": ("q", ("", "a", "", "i", "")),
    "verdict": ("verdict", ("wrong",) * TRIES),
    "reward": ("reward", ("0.5..", "0.6..", "0.4..", "0.3..", "")),
    "step": ("step", ("10..60", "20..70", "30..", "..50", "")),
    "length": ("length", ("..280", "..290", "300..", "310..", "")),
}
"""Values in turn, so that no answer is one that was given before."""
NUM_ROLLOUTS, NUM_TOKENS = 100_000, 300
AXE = ("axe-core@4.14.0", "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878")
"""A package of npm, and the SHA-256 of its axe.min.js."""
ROOT = Path(__file__).parents[2]
PAGES = {
    "runs": "Runs",
    "run": None,
    "curves": "Curves",
    "rollouts": "Rollouts",
    "difficulty": "Difficulty",
    "time": "Time",
    "agreement": "Grader and judge",
    "settings": "Settings",
    "data": "Problems",
    "results": "Results",
}
KEYS = "rocadtjspl"


@contextmanager
def serve(folder: Path, cache: Path) -> Iterator[str]:
    """Start `whet view` on a free port, and give its address."""
    command = [sys.executable, "-m", "whet", "view", str(folder), "--port", "0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        match = re.search(r"http://localhost:\d+/", server.stderr.readline())
        assert match is not None
        yield match[0]
    finally:
        server.terminate()
        server.communicate(timeout=20)


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "playwright.Browser") -> Iterator["playwright.Page"]:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(20_000)
    yield page
    context.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder with everything that the pages show, small."""
    place = tmp_path_factory.mktemp("small")
    folder = place / "runs"
    write_run(folder / "one" / "05-rl")
    write_run(folder / "two" / "05-rl", seed=2, lr=2e-3)
    write_problems(folder, "rl", [sum_problem(left, 1) for left in range(30)])
    write_results(folder)
    other = {"rounds": [{"title": "lr", "arms": [{"name": "low"}]}]}
    write_json(folder / "other" / "study.json", other)
    with serve(folder, place / "cache") as address:
        yield address


def wait_until(page: "playwright.Page", condition: str, *, seconds: float = 20.0) -> None:
    """Wait for an expression to be true; the policy of the pages stops playwright's own way."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"{condition} is still false: {page.inner_text('main')}"
        page.wait_for_timeout(50)


def open_view(page: "playwright.Page", address: str, view: str) -> None:
    """Go to a view and wait until it, and not the one before, is shown."""
    page.goto(f"{address}#/{view}")
    shown = "main.dataset.asked === location.hash || main.dataset.asked.startsWith(asked)"
    condition = f"(() => {{ const main = document.querySelector('main'), asked = {json.dumps(f'#/{view}')}; return main.dataset.asked && ({shown}) && !main.hasAttribute('aria-busy'); }})()"
    wait_until(page, condition)


def test_a_run_of_100_000_rollouts_opens_within_a_second_and_filters_within_300_ms(
    page: "playwright.Page", tmp_path: Path
) -> None:
    write_large_run(tmp_path / "large", num_rollouts=NUM_ROLLOUTS, num_tokens=NUM_TOKENS)
    with serve(tmp_path / "large", tmp_path / "cache") as address:
        page.goto(f"{address}#/rollouts?run=.")
        wait_until(page, "document.body.innerText.includes('100,000 of 100,000 rollouts')")
        opened = [time_opening(page, f"{address}#/rollouts?run=.") for _ in range(TRIES)]
        times = {
            words: min(time_filter(page, name, value) for value in values)
            for words, (name, values) in FILTERS.items()
        }
    paint, rows = (min(column) for column in zip(*opened, strict=True))
    print(json.dumps({"first paint": paint, "rows are there": rows, **times}))
    # Where more processes want the cores than there are, everything takes so many times as long.
    crowd = max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)
    assert paint < FIRST_PAINT_MS * crowd and rows < FIRST_PAINT_MS * crowd
    assert {name: ms for name, ms in times.items() if ms >= FILTER_MS * crowd} == {}


def time_opening(page: "playwright.Page", address: str) -> tuple[float, float]:
    """Open a page afresh: milliseconds until its first paint, and until its rows are there."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("a.rollout")
    rows = page.evaluate("performance.now()")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return float(paint), float(rows)


def time_filter(page: "playwright.Page", name: str, value: str) -> float:
    """Change a filter as a user does, and time until the new list has been painted."""
    script = """async ([name, value]) => {
      const summary = document.querySelector("main .lead");
      const done = new Promise((resolve) => {
        const watcher = new MutationObserver(() => {
          watcher.disconnect();
          requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
        });
        watcher.observe(summary, { childList: true, subtree: true });
      });
      const start = performance.now();
      if (name === "verdict") {
        [...document.querySelectorAll(".chip")].find((chip) => chip.textContent.includes(value)).click();
      } else {
        const field = name === "q" ? "main input[type=search]" : `.filters label:has(input.range)`;
        const labels = [...document.querySelectorAll(field)];
        const input = name === "q" ? labels[0]
          : labels.find((label) => label.textContent.toLowerCase().includes(name)).querySelector("input");
        input.value = value;
        input.dispatchEvent(new Event(name === "q" ? "input" : "change", { bubbles: true }));
      }
      return (await done) - start;
    }"""
    elapsed = page.evaluate(script, [name, value])
    page.wait_for_timeout(100)
    return float(elapsed)


def test_live_curves_move_while_a_run_trains(page: "playwright.Page", tmp_path: Path) -> None:
    words = ["run", "experiments/game24_cpu.toml", "--out", str(tmp_path / "runs" / "live")]
    words += ["--stages.sft.steps", "400", "--stages.sft.batch_size", "16"]
    words += ["--stages.traces.per_problem", "4", "--stages.sft.validation.every", "0"]
    (tmp_path / "runs").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    training = subprocess.Popen(
        [sys.executable, "-m", "whet", *words],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        metrics = tmp_path / "runs" / "live" / "03-sft" / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not metrics.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        with serve(tmp_path / "runs", tmp_path / "cache") as address:
            page.goto(f"{address}#/curves?runs=live/03-sft")
            step = "() => Number(document.querySelector('main p.small[role=status]').textContent.match(/step (\\d+)/)?.[1] ?? 0)"
            page.wait_for_selector("figure canvas")
            first, picture = page.evaluate(step), page.locator("figure.chart").first.screenshot()
            wait_until(page, f"({step})() >= {first + 5}", seconds=60)
            page.wait_for_timeout(200)
            assert training.poll() is None, "the run ended before the curves could move"
            assert page.locator("figure.chart").first.screenshot() != picture
            page.goto(f"{address}#/runs")
            page.wait_for_selector("td.middle .state.running")
    finally:
        training.kill()
        training.wait()


def write_hostile_run(folder: Path) -> None:
    write_run(folder, steps=0)
    for number, text in enumerate(TEXTS):
        text = text.replace("\x00", "")
        message = Message(role="user", content=text)
        problem = replace(sum_problem(number, 1), id=f"p/{text}", prompt=(message,), task=text)
        score = Score(verdict=Verdict.WRONG, parts={text: 1.0}, answer=text, note=text)
        answers = [
            replace(
                rollout(problem=problem, score=score, reward=0.5, text=text, number=i),
                group_id=text,
            )
            for i in range(2)
        ]
        write_rollouts(folder / "rollouts" / f"train-{number + 1:06d}.parquet", [tuple(answers)])
        append_row(
            folder / "metrics.jsonl", {"step": number + 1, f"reward/{text}": 1.0, "loss": 1.0}
        )
        write_problems(folder.parent / str(number), "rl", [problem])
    write_json(folder.parent / "leaderboard.json", {text: [{text: text}] for text in TEXTS})
    config = folder / "config.toml"
    config.write_text(
        config.read_text()
        + "\n[prompt]\n"
        + "".join(
            f"key{i} = {json.dumps(text.replace(chr(0), ''))}\n" for i, text in enumerate(TEXTS)
        ).replace("\\u007f", "")
    )


def test_twenty_hostile_rollouts_do_nothing(page: "playwright.Page", tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "<img src=x onerror=window.pwned=1>"
    write_hostile_run(folder)
    asked: list[str] = []
    dialogs: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.on("popup", lambda popup: dialogs.append(popup.url))
    run = "%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E"
    with serve(tmp_path / "runs", tmp_path / "cache") as address:
        views = ["runs", f"run?run={run}", f"curves?runs={run}&all=1", f"rollouts?run={run}"]
        views += [f"difficulty?run={run}", f"agreement?run={run}", f"settings?a={run}", "results"]
        views += [f"data?file={number}%2Fproblems-rl.jsonl" for number in range(len(TEXTS))]
        for number in range(len(TEXTS)):
            place = f"rollout?run={run}&file=train-{number + 1:06d}.parquet&row=0"
            views += [place, f"{place}&view=rendered", f"{place}&view=raw"]
        for view in views:
            open_view(page, address, view)
            page.wait_for_timeout(30)
            check_nothing_happened(page, address)
        open_view(page, address, f"rollout?run={run}&file=train-000001.parquet&row=0&view=raw")
        assert TEXTS[0] in page.locator(".response.main pre.text").text_content()
    assert dialogs == []
    assert [url for url in asked if not url.startswith(address)] == []


def check_nothing_happened(page: "playwright.Page", address: str) -> None:
    found = page.evaluate("""() => ({
      pwned: typeof window.pwned,
      scripts: document.scripts.length,
      strange: document.querySelectorAll("main script, main img, main iframe, main style, main link, main form:not(.filters), main object, main embed, main meta, main base").length,
      links: [...document.querySelectorAll("a[href]")].filter((a) => !a.getAttribute("href").startsWith("#")).length,
      handlers: [...document.querySelectorAll("main *")].filter((e) => [...e.attributes].some((a) => a.name.startsWith("on"))).length,
      covered: [...document.querySelectorAll("main *")].filter((e) => getComputedStyle(e).position === "fixed").length,
    })""")
    expected = {"pwned": "undefined", "scripts": 3, "strange": 0, "links": 0, "handlers": 0}
    assert found == {**expected, "covered": 0}, page.url
    assert page.url.startswith(address)


def test_keys_alone_reach_every_page(page: "playwright.Page", small: str) -> None:
    page.goto(small)
    page.wait_for_selector("[data-item]")
    seen = []
    for key, title in zip(KEYS, PAGES.values(), strict=True):
        page.keyboard.press("g")
        page.keyboard.press(key)
        wait_until(
            page,
            f"document.querySelector('main h1')?.textContent.startsWith({json.dumps(title or 'one/05-rl')})",
        )
        seen.append(page.locator("main h1").inner_text())
    assert len(seen) == len(PAGES)
    page.keyboard.press("g")
    page.keyboard.press("a")
    wait_until(page, "document.querySelectorAll('a.rollout').length === 12")
    page.keyboard.press("/")
    page.keyboard.type("seven")
    wait_until(page, "document.querySelector('main .lead').textContent.startsWith('6 of 12')")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector(".response.main")
    page.keyboard.press("c")
    page.wait_for_selector(".token.negative, .token.positive")
    page.keyboard.press("v")
    page.wait_for_selector(".response.main .rendered")
    assert "1 of 6" in page.inner_text("main .steps"), (
        "the filter of the list is that of its rollouts"
    )
    before = page.url
    page.keyboard.press("j")
    wait_until(page, f"location.href !== {json.dumps(before)} && location.hash.includes('q=seven')")
    wait_until(page, "document.querySelector('main .steps').textContent.includes('2 of 6')")
    before = page.url
    page.keyboard.press("]")
    wait_until(page, f"location.href !== {json.dumps(before)}")
    # The rollout of before stays until the next is whole, and takes the focus with it when it goes.
    wait_until(page, "document.querySelector('main').dataset.asked === location.hash")
    wait_until(page, "!document.querySelector('main').hasAttribute('aria-busy')")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "This problem over training":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector(".distribution")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    wait_until(page, "!document.querySelector('dialog').open")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_an_address_is_the_whole_state(page: "playwright.Page", small: str) -> None:
    page.goto(f"{small}#/rollouts?run=two%2F05-rl&verdict=wrong&step=2..&sort=reward&q=seven")
    wait_until(page, "document.querySelector('main .lead')?.textContent.startsWith('4 of 12')")
    page.click("button.chip[aria-pressed=true]")
    wait_until(page, "!location.hash.includes('verdict')")
    page.reload()
    page.wait_for_selector("a.rollout")
    assert page.input_value("main input[type=search]") == "seven"
    assert page.input_value("select[name=sort]") == "reward"


def test_a_range_of_steps_is_dragged_and_undone(page: "playwright.Page", small: str) -> None:
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    open_view(page, small, "curves?runs=one%2F05-rl,two%2F05-rl")
    page.wait_for_selector("figure canvas")
    box = page.locator("figure.chart .u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 40, steps=4)
    page.mouse.up()
    wait_until(page, "/[?&]x=[0-9.]+[.][.][0-9.]+/.test(location.hash)")
    page.mouse.dblclick(box["x"] + 90, box["y"] + 40)
    wait_until(page, "!location.hash.includes('x=')")
    assert faults == []


def test_leaderboards_comparisons_and_studies_have_tables_of_their_own(
    page: "playwright.Page", small: str
) -> None:
    """Solved are a quarter and a half of 200 problems: the difference is 25 points, and clear."""
    for name, words in {
        "leaderboard.json": ("sums, all", "Differences from small"),
        "compare.json": ("lr 2 is better than lr 1.", "Peak learning rate"),
        "study.json": ("steps: many won.", "chosen: steps = many"),
    }.items():
        open_view(page, small, f"results?file={name}")
        text = page.inner_text("main")
        assert all(part in text for part in (*words, "+25.0 points", "better", "< 0.001")), text
    open_view(page, small, "results?file=other%2Fstudy.json")
    assert "low" in page.inner_text("main"), "a file of another shape is shown as it is"


def test_nothing_is_wider_than_a_phone(browser: "playwright.Browser", small: str) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 800}, has_touch=True)
    page = context.new_page()
    for name in PAGES:
        open_view(page, small, name)
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, name
    context.close()


def test_a_tap_on_a_token_shows_its_values(browser: "playwright.Browser", small: str) -> None:
    """The fake's tokens have log-probabilities of -0.1, -0.2 and -0.3."""
    context = browser.new_context(viewport={"width": 375, "height": 800}, has_touch=True)
    page = context.new_page()
    open_view(page, small, "rollout?run=one%2F05-rl&file=train-000002.parquet&row=0")
    page.locator(".token").nth(1).tap()
    wait_until(page, "document.querySelector('.token-value').textContent.includes('token 2 of 3')")
    assert "log-probability −0.2 (81.9 %)" in page.inner_text(".token-value")
    page.locator("pre.tokens").press("ArrowRight")
    assert "token 3 of 3" in page.inner_text(".token-value")
    context.close()


def test_a_value_of_a_curve_has_the_name_of_its_run(page: "playwright.Page", small: str) -> None:
    open_view(page, small, "curves?runs=one%2F05-rl,two%2F05-rl")
    page.wait_for_selector("figure canvas")
    box = page.locator("figure.chart .u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 40)
    wait_until(page, "!document.querySelector('.readout').hidden")
    assert page.locator(".readout").first.inner_text().split("\n") == [
        *("step 3", "one/05-rl", "0.3", "two/05-rl", "0.3")
    ]


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The checker's script, fetched by npm and compared with its hash."""
    place = tmp_path_factory.mktemp("axe")
    if shutil.which("npm") is None:
        pytest.skip("there is no npm to fetch axe-core with")
    done = subprocess.run(["npm", "pack", AXE[0]], cwd=place, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"npm cannot fetch {AXE[0]}")
    with tarfile.open(next(place.glob("*.tgz"))) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        script = member.read()
    assert hashlib.sha256(script).hexdigest() == AXE[1]
    return script.decode()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(
    browser: "playwright.Browser", small: str, axe: str, scheme: str
) -> None:
    context = browser.new_context(
        viewport={"width": 1280, "height": 860}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    place = "run=one%2F05-rl&file=train-000002.parquet&row=0"
    views = [*PAGES, f"rollout?{place}&colour=logprob", f"rollout?{place}&view=rendered&colour=x"]
    views += [f"results?file={name}.json" for name in ("leaderboard", "compare", "study")]
    faults = []
    for view in views:
        open_view(page, small, view)
        page.wait_for_timeout(200)
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        faults += [
            (view, fault["id"], fault["nodes"][0]["html"][:160])
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
    context.close()
    assert faults == []
