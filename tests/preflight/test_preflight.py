"""What is wrong with a file is found before its first stage runs: all of it, a line each, without
weights."""

import json
import re
import shutil
from pathlib import Path

import pytest
from small import TINY, Pipeline, Said, whet, write

from whet.testing.server import chat_reply, serve_replies

RL = """kind = "rl"
task.name = "game24"
steps = 2
problems_per_step = 2
group_size = 2
model = {{ path = "{model}" }}
sampling = {{ max_tokens = 32 }}
"""


@pytest.fixture
def file(tiny: Pipeline, tmp_path: Path) -> Path:
    return write(tmp_path / "rl.toml", RL.format(model=tiny.folder / "03-sft"))


def lines(said: Said, level: str) -> list[str]:
    """The findings of a level, without the level."""
    return [line.partition("  ")[2] for line in said.out.splitlines() if line.startswith(level)]


def problems(tiny: Pipeline, to: Path) -> Path:
    return Path(shutil.copytree(tiny.folder / "01-problems", to))


def change_rows(file: Path, indices: tuple[int, ...], **fields: object) -> None:
    """Change rows of a file, counted among those that have a solution."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    solvable = [row for row in rows if row["payload"].get("solvable") is not False]
    for index in indices:
        solvable[index].update(fields)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_file_that_can_run_passes_with_code_0_and_a_line_for_each_check(file: Path) -> None:
    said = whet("check", file)

    assert said.code == 0 and lines(said, "wrong") == []
    subjects = [line.split()[0] for line in lines(said, "ok")]
    assert sorted(set(subjects)) == sorted(
        ["settings", "model", "data", "prompts", "grader", "reward", "memory", "disk"]
    )
    assert said.out.splitlines()[-1] == f"{file} can run"


def test_a_reward_of_the_users_own_is_named(file: Path, tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.py", "def brief(rollout, score):\n    return 0.0\n")
    said = whet("check", file, "--reward", f"{mine}:brief")
    assert [line.strip() for line in lines(said, "ok") if "reward" in line] == [
        f"reward    terms {mine}:brief"
    ]


def test_a_teacher_that_does_not_reply_is_noted_before_the_stages_that_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    file = write(tmp_path / "teach.toml", 'kind = "teach"\ntask = "game24"\nteacher.model = "m"\n')
    words = ("check", file, "--teacher.kind", "server", "--teacher.url")

    with serve_replies(lambda _: chat_reply("4")) as server:
        said = whet(*words, server.url)
        url, asked = server.url, server.asked
    assert f"teacher: a server replies at {url}" in said.out and asked == []
    said = whet(*words, url)
    assert said.code == 0, "it can be started later"
    assert [line.strip() for line in lines(said, "note")] == [
        f"model     teacher.url = '{url}' cannot be reached: Connection refused; this stage stops "
        "without it"
    ]


def test_a_misspelt_reward_part_of_the_last_stage_is_found_before_the_first(tmp_path: Path) -> None:
    text = TINY.replace("finished = 1.0", "finishd = 1.0")
    said = whet("run", write(tmp_path / "p.toml", text), "--out", tmp_path / "run")

    assert said.code == 2 and not (tmp_path / "run").exists()
    assert said.err.splitlines()[1] == (
        "- stages.rl: reward.weights names 'finishd', which game24 does not score: correct, "
        "finished, length, lines, process, progress; did you mean 'finished'?"
    )


def test_all_mistakes_in_settings_are_listed_a_line_each(file: Path) -> None:
    said = whet("check", file, "--stepss", 3, "--group_size", "many", "--train.lr", -1)

    assert said.code == 2
    assert [line.strip() for line in lines(said, "wrong")] == [
        "settings  train.lr = -1: should be greater than 0.0",
        'settings  group_size = "many": should be a whole number',
        'settings  unknown flag --stepss; did you mean "steps"?',
    ]


def test_all_findings_of_all_kinds_are_listed_together(
    tiny: Pipeline, tmp_path: Path, file: Path
) -> None:
    folder = problems(tiny, tmp_path / "problems")
    (folder / "problems-dev.jsonl").write_text("{")
    flags = ("--problems", folder, "--reward.weights.lenght", 1.0, "--train.micro_batch_tokens", 8)
    said = whet("check", file, *flags)

    assert said.code == 2
    wrong = [line.split(maxsplit=1) for line in lines(said, "wrong")]
    assert [subject for subject, _ in wrong] == ["data", "prompts", "reward"]
    assert "broken JSON" in wrong[0][1] and "problems-dev.jsonl" in wrong[0][1]
    assert "train.micro_batch_tokens = 8 is below" in wrong[1][1]
    assert "did you mean 'length'?" in wrong[2][1]
    assert said.out.splitlines()[-1] == f"3 to change before {file} can run"


def test_no_weights_are_read(tiny: Pipeline, tmp_path: Path, file: Path) -> None:
    assert whet("export", tiny.folder, tmp_path / "model").code == 0
    (tmp_path / "model" / "model.safetensors").write_bytes(b"no weights")

    assert whet("check", file, "--model.path", tmp_path / "model").code == 0


def test_a_model_without_a_chat_template_is_told_how_to_have_one(
    tiny: Pipeline, tmp_path: Path, file: Path
) -> None:
    assert whet("export", tiny.folder, tmp_path / "model").code == 0
    config = tmp_path / "model" / "tokenizer_config.json"
    row = json.loads(config.read_text())
    del row["chat_template"]
    config.write_text(json.dumps(row))

    said = whet("check", file, "--model.path", tmp_path / "model")
    assert said.code == 2 and "set model.chat_template to a jinja file" in lines(said, "wrong")[0]
    flags = ("--model.path", tmp_path / "model", "--model.chat_template", "raw")
    assert whet("check", file, *flags).code == 0


def test_rows_of_another_task_are_named(tiny: Pipeline, tmp_path: Path, file: Path) -> None:
    folder = problems(tiny, tmp_path / "problems")
    change_rows(folder / "problems-rl.jsonl", (3,), task="math")

    said = whet("check", file, "--problems", folder)
    assert said.code == 2
    assert "of the split rl is of the task 'math'; this grader has game24" in said.out


def test_a_reference_that_is_graded_wrong_is_named_with_its_row(tmp_path: Path, file: Path) -> None:
    task = write(
        tmp_path / "own.py",
        """
from whet.tasks.base import Task
from whet.types import Message, Problem, Score, Verdict

class Own(Task):
    name = "own"
    right = "yes"

    def problems(self, split):
        for number in range(6):
            prompt = (Message(role="user", content=f"{number} 1 1 1"),)
            yield Problem(id=f"own/{number}", task=self.name, prompt=prompt, answer="yes", payload={}, level=0.5, split=split, source="own", source_id=None)

    def solve(self, problem, seed):
        return "yes"

    def score(self, problem, text):
        is_right = text == self.right
        return Score(verdict=Verdict.CORRECT if is_right else Verdict.WRONG, parts={"correct": float(is_right)}, answer=text)

class Deaf(Own):
    right = "no"

class Kind(Own):
    def score(self, problem, text):
        return Score(verdict=Verdict.CORRECT, parts={"correct": 1.0}, answer=text)
""",
    )

    assert whet("check", file, "--task", f"{task}:Own").code == 0
    said = whet("check", file, "--task", f"{task}:Deaf")
    assert said.code == 2 and "'yes', the reference of own/0, is graded wrong" in said.out
    said = whet("check", file, "--task", f"{task}:Kind")
    assert said.code == 2 and "is graded correct for own/0" in said.out


def test_a_reward_function_that_fails_on_an_answer_is_found_before_the_run(
    tmp_path: Path, file: Path
) -> None:
    write(tmp_path / "mine.py", "def mine(rollout, score):\n    return score.parts['beauty']\n")
    said = whet("rl", file, "--reward", f"{tmp_path}/mine.py:mine", "--out", tmp_path / "run")

    assert said.code == 2 and "mine.py:mine' raised KeyError in line 2" in said.last
    assert not (tmp_path / "run").exists()


def test_long_prompts_are_counted_and_named_in_all_rows_by_check_and_in_a_sample_before_a_run(
    tiny: Pipeline, tmp_path: Path, file: Path
) -> None:
    folder = problems(tiny, tmp_path / "problems")
    long = [{"role": "user", "content": "4 6 8 1 " * 20}]
    change_rows(folder / "problems-rl.jsonl", (0, 200), prompt=long)

    said = whet("check", file, "--problems", folder)
    notes = lines(said, "note")
    assert said.code == 0
    assert re.search(
        r"2 of \d+ prompts of the split rl leave no room in a context of 48 tokens", notes[0]
    )
    said = whet("rl", file, "--problems", folder, "--out", tmp_path / "run", "--steps", 1)
    assert said.code == 0
    assert re.search(r"note: 1 of the first \d\d prompts of the split rl", said.err)


def test_prompts_that_leave_less_than_the_longest_response_are_counted(file: Path) -> None:
    said = whet("check", file, "--sampling.max_tokens", 45)

    assert said.code == 0
    assert any("leave less than sampling.max_tokens = 45" in line for line in lines(said, "note"))


def test_a_stage_that_has_no_model_cannot_be_started_from(tmp_path: Path) -> None:
    text = TINY.replace('model = { path = "@rl" }', 'model = { path = "@traces" }')
    said = whet("check", write(tmp_path / "p.toml", text))

    assert said.code == 2
    assert "model.path = \"@traces\" has no model, since traces is of kind 'teach'" in said.out


def test_checkpoints_that_do_not_fit_on_the_disk_are_said_with_both_numbers(
    tmp_path: Path, tiny: Pipeline
) -> None:
    """A model of 700 billion weights at 12 bytes each, in four checkpoints of which one is being
    written: 33,600 GB."""
    from whet.pipeline.pipeline_config import load_stages
    from whet.preflight.findings import Findings, Level
    from whet.preflight.machine import check_disk

    file = write(tmp_path / "rl.toml", RL.format(model="nobody/Nothing-700B") + "save.every = 1\n")
    findings = Findings()
    check_disk(findings, load_stages(file, []), tmp_path / "run")

    (finding,) = findings.of(Level.WRONG)
    assert finding.message.startswith("33,600.0 GB of checkpoints do not fit into the ")
    assert f"free in {tmp_path}: choose another --out, or lower save.keep" in finding.message
