"""The documents as a site, for `make docs`: the order of the pages, and README, CONTRIBUTING and
CHANGELOG as pages of it. mkdocs calls `on_config` and `on_files`.

A page that is not there yet is left out; a test refuses one that is in docs/ and not here.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Documents beside docs/, and their names on the site."""
SECTIONS: Mapping[str, Sequence[str]] = {
    "Start": (
        "index.md",
        "quickstart.md",
        "tutorial.md",
        "coming_from.md",
        "troubleshooting.md",
        "glossary.md",
    ),
    "Look": ("viewer.md", "evaluation.md", "compare.md", "studies.md", "replay.md"),
    "Data": ("data.md", "sources.md", "clean_data.md", "teach.md", "prompts.md", "formats.md"),
    "Train": (
        "check.md",
        "algorithms.md",
        "rewards.md",
        "sampling.md",
        "many_gpus.md",
        "fleet.md",
        "scaling.md",
    ),
    "Reference": ("settings.md", "metrics.md", "recipes.md", "library.md"),
    "Inside": (
        "contributing.md",
        "architecture.md",
        "doctor.md",
        "performance.md",
        "add_a_stage.md",
        "add_an_engine.md",
        "add_a_learner.md",
        "add_a_model_family.md",
        "add_an_estimator.md",
        "LOG.md",
        "changelog.md",
    ),
}


def list_nav(root: Path = ROOT) -> list[dict[str, list[str]]]:
    """List the sections and those of their pages that are there."""
    there = {page.name for page in (root / "docs").glob("*.md")} | set(TOP.values())
    nav = [{title: [page for page in pages if page in there]} for title, pages in SECTIONS.items()]
    return [section for section in nav if all(section.values())]


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Set the order of the pages."""
    config.nav = list_nav()
    return config


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the documents and examples that are not in docs/."""
    from mkdocs.structure.files import File

    for name, page in TOP.items():
        text = move_links((ROOT / name).read_text(), "")
        files.append(File.generated(config, page, content=text))
    for file in sorted((ROOT / "examples").rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            files.append(
                File.generated(config, file.relative_to(ROOT).as_posix(), abs_src_path=str(file))
            )
    files.append(File.generated(config, "LICENSE.txt", abs_src_path=str(ROOT / "LICENSE")))
    return files


def on_page_markdown(markdown: str, *_: object, **__: object) -> str:
    """Lead links out of docs/ to where the site has their targets, and name pages by their titles."""
    return name_links(move_links(markdown, "../"))


def name_links(markdown: str, docs: Path = ROOT / "docs") -> str:
    """Show the title of a page, up to a colon, where a link shows its file.

    >>> name_links("[docs/data.md](data.md) and [its rows](data.md)")
    '[Data](data.md) and [its rows](data.md)'
    """

    def name(match: re.Match[str]) -> str:
        file = docs / f"{match[1]}.md"
        if not file.is_file():
            return match[0]
        title = file.read_text().partition("\n")[0].removeprefix("# ")
        return f"[{title.partition(':')[0]}]({match[1]}.md"

    return re.sub(r"\[(?:docs/)?(\w+)\.md\]\(\1\.md", name, markdown)


def move_links(markdown: str, top: str) -> str:
    """Rewrite links of a document, in which `top` leads to the repository, to those of the site.

    >>> move_links("[a](docs/data.md), [b](LICENSE), [c](README.md#settings)", "")
    '[a](data.md), [b](LICENSE.txt), [c](index.md#settings)'
    """
    names = {**TOP, "LICENSE": "LICENSE.txt"}
    for old, new in names.items():
        markdown = re.sub(rf"\]\({re.escape(top + old)}(#[^)]*)?\)", rf"]({new}\1)", markdown)
    return (
        markdown.replace("](../examples/", "](examples/")
        if top
        else markdown.replace("](docs/", "](")
    )
