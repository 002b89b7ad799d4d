"""Every command of docs/prompts.md runs, in the order of the page."""

import re
import shlex
from pathlib import Path

import pytest
from huggingface_hub import constants
from small import whet
from transformers import AutoModelForCausalLM

PAGE = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text()


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    said = {}
    for line in lines:
        said[line] = whet(*shlex.split(line)[1:])
        assert said[line].code == 0, f"{line}: {said[line].err}"
    assert len(lines) == 11
    assert " Think first." in said[lines[3]].out
    last = next(line for line in lines if "Answer with one line." in line)
    assert said[last].out.splitlines()[1].startswith("Answer with one line.")
    assert str(AutoModelForCausalLM.from_pretrained("model-bf16", dtype="auto").dtype) == (
        "torch.bfloat16"
    )


def test_the_download_of_the_page_is_a_command_that_asks_the_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = re.search(r"`whet (model pull [^`]+)`", PAGE)
    assert command is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    said = whet(*shlex.split(command[1]))
    assert said.code == 2
    assert said.last.startswith("whet: Qwen/Qwen3-0.6B could not be downloaded from the hub (")
