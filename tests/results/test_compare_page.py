"""Every command of docs/compare.md runs, and leaves what the page says."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from small import Pipeline, whet

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"
STAGES = {"05-rl": "01-rl", "06-rl_eval": "02-rl_eval"}


def write_runs(tiny: Pipeline) -> None:
    """Write the six runs of the page: copies of one, with another seed or learning rate."""
    for name in [f"{arm}-{seed}" for arm in ("low", "high") for seed in (1, 2, 3)]:
        for stage, folder in STAGES.items():
            shutil.copytree(tiny.folder / stage, Path(name, folder))
            file = Path(name, folder, "config.toml")
            text = file.read_text().replace("seed = 3", f"seed = {name[-1]}", 1)
            lr = "0.001" if name.startswith("low") else "0.01"
            text = text.replace("lr = 0.001", f"lr = {lr}", 1)
            file.write_text(text.replace(str(tiny.folder / "05-rl"), f"{name}/01-rl"))


def test_the_commands_of_the_page_run_and_do_what_it_says(
    tiny: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_runs(tiny)
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    said = {line: whet(*shlex.split(line)[1:]) for block in blocks for line in block.splitlines()}
    assert {line: run.err for line, run in said.items() if run.code != 0} == {}
    first, two, stages, card, *_, verify = said.values()
    assert "rl.train.lr (peak learning rate): 0.001 against 0.01" in first.out
    assert "seeds 1, 2, 3" in first.out
    assert two.out.startswith("{")
    assert "last validation" in stages.out
    assert card.out.startswith("# Run card: high-1")
    assert "checks agree" in verify.out
    written = {file.name for file in tmp_path.iterdir() if file.is_file()}
    assert written == {"compare.html", "two.html", "stages.html", "card.json", "card.md"}
