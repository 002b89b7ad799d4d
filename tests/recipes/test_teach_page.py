"""Every command of docs/teach.md runs, against a server on this machine."""

import re
import shlex
from pathlib import Path

import pytest
from small import whet, write

from whet.batching.rollout_datasets import read_data
from whet.testing.server import Asked, CannedReply, chat_reply, serve_replies

PAGE = (Path(__file__).parents[2] / "docs" / "teach.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def add(asked: Asked) -> CannedReply:
    numbers = [int(number) for number in re.findall(r"\d+", asked.prompt.split("?")[0])]
    return chat_reply(rf"They add up to \boxed{{{sum(numbers)}}}.")


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    rows = "".join(f"What is {n} + 4?,{n + 4}\n" for n in range(5))
    write(tmp_path / "sums.csv", f"question,gold\n{rows}")
    fields = "--map prompt=question --map answer=gold --task math --split sft"
    out = "--out data/mine/problems-sft.jsonl"
    assert whet("data", "import", "sums.csv", *f"{fields} {out}".split()).code == 0
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    assert len(lines) == 5
    with serve_replies(add) as server:
        settings = blocks("toml")[0].replace("http://127.0.0.1:8000/v1", server.url)
        write(tmp_path / "teach.toml", settings)
        said = [whet(*shlex.split(line.replace("FILE", "teach.toml"))[1:]) for line in lines]
    assert [one.code for one in said] == [0] * 5, [one.err for one in said]
    assert "20/20" in said[1].out and "20/20" in said[4].out
    alone, shared = ({row.text for row in read_data(f"runs/{n}")} for n in ("teach", "shared"))
    assert alone == shared == {rf"They add up to \boxed{{{n + 4}}}." for n in range(5)}
