"""The documents as a site: every page has its place, and the site builds without a warning."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import docs_site  # noqa: E402


def test_every_document_has_one_place_in_the_navigation() -> None:
    listed = [page for pages in docs_site.SECTIONS.values() for page in pages]
    there = {page.name for page in ROOT.glob("docs/*.md")} | set(docs_site.TOP.values())
    assert len(listed) == len(set(listed))
    assert there - set(listed) == set(), "add the page to SECTIONS in tools/docs_site.py"
    assert set(listed) == there


def test_the_navigation_leaves_out_pages_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "data.md").touch()
    assert docs_site.list_nav(tmp_path) == [
        {"Start": ["index.md"]},
        {"Data": ["data.md"]},
        {"Inside": ["contributing.md", "changelog.md"]},
    ]


def test_links_out_of_the_documents_lead_to_pages_of_the_site() -> None:
    text = "[a](../README.md), [b](../examples/grpo_loop.py), [c](data.md)"
    assert (
        docs_site.move_links(text, "../")
        == "[a](index.md), [b](examples/grpo_loop.py), [c](data.md)"
    )


def test_a_link_that_shows_a_file_shows_the_title_of_its_page() -> None:
    text = (
        "[docs/quickstart.md](quickstart.md), [data.md](data.md#rows), [it](data.md), [x.md](x.md)"
    )
    assert (
        docs_site.name_links(text)
        == "[Quickstart](quickstart.md), [Data](data.md#rows), [it](data.md), [x.md](x.md)"
    )


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "settings.html").read_text()
    assert (
        re.findall(r'<(?:script|img|iframe)[^>]* src="?http|<link[^>]* href="?http', page) == []
    ), "a page fetches nothing from elsewhere"
