"""`whet init` writes a file that passes `whet check`, with what each setting means."""

import json
import re
from pathlib import Path

import pytest
from small import Pipeline, whet, write

from whet.stages.stage import TrainingConfig
from whet.testing.tiny import tiny_policy


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def settings(file: Path) -> list[tuple[str, str]]:
    """Read the settings of a file, each with the comment above it."""
    return re.findall(r"((?:^# .*\n)+)^([\w.]+) = ", file.read_text(), re.MULTILINE)


def test_without_a_model_it_is_a_pipeline_on_the_24_game(tmp_path: Path) -> None:
    said = whet("init")

    assert said.code == 0
    assert said.last == (
        "wrote experiment.toml: `whet check experiment.toml` checks it, `whet run "
        "experiment.toml` runs it"
    )
    assert whet("check", "experiment.toml").code == 0


@pytest.mark.parametrize("kind", ["rl", "run"])
def test_a_model_and_problems_make_a_file_that_can_run(
    kind: str, tiny: Pipeline, tmp_path: Path
) -> None:
    data = tiny.folder / "01-problems"
    said = whet("init", "--model", tiny.folder / "03-sft", "--data", data, "--kind", kind)
    assert said.code == 0, said.err

    said = whet("check", "experiment.toml")
    assert said.code == 0, said.out
    text = (tmp_path / "experiment.toml").read_text()
    assert f'problems = "{data}"' in text and 'task = "game24"' in text
    assert "sampling.max_tokens = 24\n" in text  # half of the model's 48 positions


@pytest.mark.parametrize("kind", ["rl", "run"])
def test_a_base_model_without_a_chat_template_is_given_one(
    kind: str, tiny: Pipeline, tmp_path: Path
) -> None:
    data = tiny.folder / "01-problems"
    policy = tiny_policy()
    policy.save(tmp_path / "base")
    settings_file = tmp_path / "base" / "tokenizer_config.json"
    fields = json.loads(settings_file.read_text())
    del fields["chat_template"]
    settings_file.write_text(json.dumps(fields))

    said = whet("init", "--model", "base", "--data", data, "--kind", kind)
    assert said.code == 0, said.err

    assert 'model.chat_template = "plain"\n' in (tmp_path / "experiment.toml").read_text()
    assert whet("check", "experiment.toml").code == 0


def test_answers_make_a_file_for_sft(tiny: Pipeline, tmp_path: Path) -> None:
    said = whet("init", "--data", tiny.folder / "02-traces", "--out", "sft.toml")

    assert said.code == 0, said.err
    assert whet("check", "sft.toml").code == 0
    assert 'new = "tiny"' in (tmp_path / "sft.toml").read_text()


def test_each_setting_stands_below_what_it_means(tiny: Pipeline, tmp_path: Path) -> None:
    assert whet("init", "--model", tiny.folder / "03-sft").code == 0
    file = tmp_path / "experiment.toml"
    keys = re.findall(r"^([\w.]+) = ", file.read_text(), re.MULTILINE)

    explained = settings(file)
    assert [key for _, key in explained] == [key for key in keys if key != "kind"]
    meaning = TrainingConfig.model_fields["steps"].description
    assert (f"# {meaning}\n", "steps") in explained


def test_rows_that_are_no_problems_yet_are_answered_with_the_command_that_makes_them(
    tmp_path: Path,
) -> None:
    write(tmp_path / "mine.csv", "question,gold,source\n1 + 1?,2,me\n")
    said = whet("init", "--model", "m", "--data", "mine.csv")

    assert said.code == 2 and not (tmp_path / "experiment.toml").exists()
    assert "columns question, gold, source" in said.last
    command = re.search(r"`whet (data import [^`]*)`", said.last)
    assert command is not None and whet(*command[1].split()).code == 0
    assert (tmp_path / "data" / "mine" / "problems-rl.jsonl").is_file()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--kind", "rl"), "--kind rl needs --model"),
        (("--kind", "sft"), "--kind sft needs --data"),
        (("--kind", "dance"), "--kind is 'dance', expected one of rl, sft, run"),
        (("--data", "nowhere"), "--data nowhere is neither a folder of problems nor"),
    ],
)
def test_what_is_missing_is_one_sentence(flags: tuple[str, ...], words: str) -> None:
    said = whet("init", *flags)
    assert said.code == 2 and words in said.last


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "experiment.toml", "mine")
    said = whet("init")
    assert said.code == 2 and "already exists" in said.last
    assert (tmp_path / "experiment.toml").read_text() == "mine"
