"""Faults of disks, files and numbers: each is one sentence before it can spoil a result."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from small import Pipeline, Said, cut_after, half_written, whet, write
from test_bad_input import NEW, RL, SFT, is_one_sentence

from whet.data.problems import write_problems
from whet.store.rollouts import write_rollouts
from whet.store.run import RunStore
from whet.tasks.game24 import Game24
from whet.types import Message, Rollout, Score, Split, Verdict

EVAL = 'kind = "eval"\ntask.name = "game24"\nsamples = 1\nmodel = {{ path = "{model}" }}\n'
DEEP = "[" * 100_000 + "]" * 100_000


def change_weights(model: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change the last norm of a model folder."""
    file = model / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"] = change(tensors["model.norm.weight"])
    save_file(tensors, file, metadata={"format": "pt"})


def with_nan(weight: torch.Tensor) -> torch.Tensor:
    weight[3] = float("nan")
    return weight


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-5] ^= 64
    file.write_bytes(bytes(data))


@pytest.fixture
def exported(tiny: Pipeline, tmp_path: Path) -> Path:
    assert whet("export", tiny.folder, tmp_path / "model").code == 0
    return tmp_path / "model"


def use(verb: str, model: Path, tmp_path: Path) -> Said:
    """Let a command work with a model: ask it, measure it, train it."""
    if verb == "try":
        return whet("try", model, "1 2 3 4")
    text = (EVAL if verb == "eval" else RL).format(model=model)
    return whet(verb, write(tmp_path / "use.toml", text), "--out", tmp_path / "used")


@pytest.mark.parametrize("flags", [(), ("--validation.every", "1")])
def test_weights_that_are_no_longer_finite_are_neither_measured_nor_saved(
    tiny: Pipeline, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    file = write(tmp_path / "sft.toml", SFT.format(data=tiny.folder / "02-traces", model=NEW))
    huge = ("--steps", 1, "--train.lr", "1e38", "--train.warmup_steps", 0)
    said = whet("sft", file, "--out", tmp_path / "run", *huge, *flags)
    assert is_one_sentence(said), said.err
    assert "is no longer finite" in said.last
    assert "validation at step 1" not in said.err
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("verb", ["try", "eval", "rl"])
def test_a_model_with_one_weight_that_is_not_finite_is_named(
    exported: Path, tmp_path: Path, verb: str
) -> None:
    change_weights(exported, with_nan)
    said = use(verb, exported, tmp_path)
    assert is_one_sentence(said), said.err
    assert "tensor model.norm.weight" in said.last
    assert "not finite" in said.last


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_whole_numbers_are_no_weights(exported: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    change_weights(exported, lambda weight: weight.to(dtype))
    said = use("try", exported, tmp_path)
    assert is_one_sentence(said), said.err
    assert f"is of {dtype}" in said.last


@pytest.mark.parametrize("verb", ["try", "eval", "rl", "export"])
@pytest.mark.parametrize("is_direct", [False, True])
def test_a_model_that_is_not_as_its_run_wrote_it_is_not_handed_on(
    tiny: Pipeline, tmp_path: Path, verb: str, is_direct: bool
) -> None:
    folder = tiny.copy(tmp_path / "run")
    handed_on = json.loads((folder / "05-rl" / "summary.json").read_text())["model"]
    model = folder / "05-rl" / handed_on
    flip_a_byte(model / "model.safetensors")
    location = model if is_direct else folder
    if verb == "export":
        said = whet("export", location, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    else:
        said = use(verb, location, tmp_path)
    assert is_one_sentence(said), said.err
    assert (
        f"the model in {model} is damaged (model.safetensors is not what was written" in said.last
    )


def test_a_model_copied_out_of_its_run_may_be_changed(tiny: Pipeline, tmp_path: Path) -> None:
    handed_on = json.loads((tiny.folder / "05-rl" / "summary.json").read_text())["model"]
    model = Path(shutil.copytree(tiny.folder / "05-rl" / handed_on, tmp_path / "mine"))
    change_weights(model, lambda weight: weight * 2)
    assert use("try", model, tmp_path).code == 0


def test_no_file_beside_the_weights_of_a_checkpoint_can_be_taken_for_weights(
    tiny: Pipeline,
) -> None:
    for folder in (tiny.folder / "05-rl" / "checkpoints").iterdir():
        if folder.is_dir():
            assert [file.name for file in folder.glob("*.safetensors")] == ["model.safetensors"]


@pytest.mark.parametrize("change", ["half", "twice"])
def test_problems_that_are_not_those_a_stage_made_are_refused(
    tiny: Pipeline, tmp_path: Path, change: str
) -> None:
    folder = tiny.copy(tmp_path / "run")
    cut_after(folder / "05-rl", 2)
    file = folder / "01-problems" / "problems-rl.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[::2] if change == "half" else [*lines, lines[0]]))
    said = whet("run", tiny.file, "--out", folder, "--resume")
    assert is_one_sentence(said), said.err
    assert "problems-rl.jsonl" in said.last


@pytest.mark.parametrize("kind", ["problems", "data"])
def test_a_run_goes_on_only_with_the_files_it_began_with(
    tiny: Pipeline, tmp_path: Path, kind: str
) -> None:
    traces = tmp_path / "traces.parquet"
    shutil.copy(tiny.folder / "02-traces" / "rollouts" / "train-000000.parquet", traces)
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(tiny.folder / "01-problems" / "problems-dev.jsonl", own)
    text = SFT.format(data=traces, model=NEW) + f'problems = "{own}"\nsave = {{ every = 1 }}\n'
    file = write(tmp_path / "sft.toml", text)
    assert whet("sft", file, "--out", tmp_path / "run").code == 0
    cut_after(tmp_path / "run", 1)
    if kind == "problems":
        lines = (own / "problems-dev.jsonl").read_bytes().splitlines(keepends=True)
        (own / "problems-dev.jsonl").write_bytes(b"".join(lines[1:]))
    else:
        shutil.copy(tiny.folder / "05-rl" / "rollouts" / "train-000001.parquet", traces)
    said = whet("sft", file, "--out", tmp_path / "run", "--resume")
    assert is_one_sentence(said), said.err
    assert f"is not the file that the run in {tmp_path / 'run'} began with" in said.last


@pytest.mark.parametrize("text", ["", "\x00\x01", "[1, 2]", "{}", DEEP])
def test_a_summary_that_says_nothing_does_not_make_a_stage_finished(
    tiny: Pipeline, tmp_path: Path, text: str
) -> None:
    folder = tiny.copy(tmp_path / "run")
    (folder / "05-rl" / "summary.json").write_text(text)
    said = whet("run", tiny.file, "--out", folder)
    assert is_one_sentence(said), said.err
    assert f"{folder / '05-rl'} holds an unfinished run" in said.last
    said = whet("run", tiny.file, "--out", folder, "--resume")
    assert said.code == 0, said.err
    again = (folder / "05-rl" / "summary.json").read_text()
    assert again == (tiny.folder / "05-rl" / "summary.json").read_text()


@pytest.mark.parametrize(
    "facts", [{"spent": None}, {"spent": "x"}, {"seconds": "x"}, {"seconds": None}, {"spent": [1]}]
)
def test_times_of_a_stage_that_are_no_numbers_do_not_matter(
    tiny: Pipeline, tmp_path: Path, facts: dict[str, object]
) -> None:
    folder = tiny.copy(tmp_path / "run")
    file = folder / "06-rl_eval" / "stage.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | facts))
    said = whet("run", tiny.file, "--out", folder, "--resume")
    assert said.code == 0, said.err


def test_a_metrics_row_without_a_step_is_left_out(tiny: Pipeline, tmp_path: Path) -> None:
    folder = tiny.copy(tmp_path / "run")
    cut_after(folder / "05-rl", 4)
    with (folder / "05-rl" / "metrics.jsonl").open("a") as file:
        file.write('{"loss": 1.0}\n{"step": "x"}\n')
    said = whet("run", tiny.file, "--out", folder, "--resume")
    assert said.code == 0, said.err
    rows = (folder / "05-rl" / "metrics.jsonl").read_text().splitlines()
    assert max(json.loads(row)["step"] for row in rows) == 6


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer_config.json", "generation_config.json", "adapter_config.json"],
)
def test_brackets_beyond_measure_in_a_model_folder_are_one_sentence(
    exported: Path, tmp_path: Path, name: str
) -> None:
    (exported / name).write_text(DEEP)
    said = use("try", exported, tmp_path)
    assert is_one_sentence(said), said.err
    assert name in said.last
    assert half_written(tmp_path) == []


def write_with_a_long_one(
    folder: Path, split: Split, *, task: str = "finished", only: bool = False
) -> str:
    """Write a few hands of the 24 game and one whose prompt no tiny model has room for."""
    hands = [replace(hand, task=task) for hand in islice(Game24().problems("rl"), 6)]
    message = Message(role="user", content="1 2 3 4 " * 30)
    long = replace(hands[2], id="game24/long", prompt=(message,))
    write_problems(folder, split, [long] if only else [*hands[:2], long, *hands[3:]])
    return long.id


ASKING = {
    "rl": "steps = 3\nproblems_per_step = 2\ngroup_size = 2\n",
    "distill": 'steps = 3\nproblems_per_step = 2\nsamples = 2\nteacher = {{ path = "{model}" }}\n',
    "eval": 'split = "rl"\nsamples = 2\n',
    "dpo": 'steps = 1\nown = {{ samples = 4 }}\npairs = {{ rules = ["correct", "short"] }}\n',
}


@pytest.mark.parametrize("kind", ASKING)
def test_a_prompt_without_room_is_named_and_left_out_before_the_start(
    tiny: Pipeline, tmp_path: Path, kind: str
) -> None:
    for split in ("rl", "dev"):
        name = write_with_a_long_one(tmp_path / "problems", split)
    text = f'''kind = "{kind}"
task = "{Path(__file__).parent}/finished.py:Finished"
problems = "{tmp_path}/problems"
model = {{ path = "{tiny.folder}/03-sft" }}
sampling = {{ max_tokens = 24 }}
''' + ASKING[kind].format(model=tiny.folder / "03-sft")
    said = whet(kind, write(tmp_path / "p.toml", text), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert (
        f"1 of 6 problems left out, whose prompt leaves no room in a context of 48 tokens: {name}"
        in said.err
    )
    events = RunStore.view(tmp_path / "run").events()
    assert next(name in str(row["problems"]) for row in events if row["event"] == "too_long")


def test_prompts_that_all_lack_room_stop_a_run_before_its_start(
    tiny: Pipeline, tmp_path: Path
) -> None:
    name = write_with_a_long_one(tmp_path / "problems", "test", task="game24", only=True)
    text = EVAL.format(model=tiny.folder / "03-sft") + f'problems = "{tmp_path}/problems"\n'
    said = whet("eval", write(tmp_path / "p.toml", text), "--out", tmp_path / "run")
    assert is_one_sentence(said), said.err
    assert f"every prompt leaves no room in a context of 48 tokens: {name}" in said.last


def write_graded(file: Path, verdicts: Sequence[Verdict | None]) -> Path:
    """Write an answer of each verdict; None is one that nothing has graded."""
    hands = islice(Game24().problems("sft"), len(verdicts))
    rows = []
    for hand, verdict in zip(hands, verdicts, strict=True):
        score = None if verdict is None else Score(verdict=verdict, parts={})
        rows.append((Rollout.from_text(hand, "1 + 2 = 3", model="someone", score=score),))
    write_rollouts(file, rows)
    return file


GRADED = (Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER, Verdict.WRONG, Verdict.UNSCORED, None)


@pytest.mark.parametrize(("keep", "count"), [("correct", 2), ("all", 6)])
def test_sft_imitates_answers_that_are_not_right_only_when_told_to(
    tmp_path: Path, keep: str, count: int
) -> None:
    data = write_graded(tmp_path / "graded.parquet", GRADED)
    file = write(tmp_path / "sft.toml", SFT.format(data=data, model=NEW))
    said = whet("sft", file, "--out", tmp_path / "run", "--keep", keep)
    assert said.code == 0, said.err
    assert f"{count} examples, 0 left out as longer than" in said.err
    counts = "4 of 6 responses left out as not right: 2 wrong, 1 no answer, 1 unscored"
    assert (counts in said.err) == (keep == "correct")


def test_sft_without_one_right_answer_says_what_there_is(tmp_path: Path) -> None:
    data = write_graded(tmp_path / "graded.parquet", [Verdict.WRONG] * 3)
    said = whet(
        "sft",
        write(tmp_path / "sft.toml", SFT.format(data=data, model=NEW)),
        *("--out", tmp_path / "run"),
    )
    assert is_one_sentence(said), said.err
    assert "has no right response among 3 (3 wrong)" in said.last


def test_nobody_is_told_to_delete_a_file_of_their_own(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.jsonl", '{"question": "1 + 1"}\n')
    said = whet(
        "sft",
        write(tmp_path / "sft.toml", SFT.format(data=mine, model=NEW)),
        *("--out", tmp_path / "run"),
    )
    assert is_one_sentence(said), said.err
    assert f"{mine} line 1 should hold messages, or prompt and response" in said.last
    assert "delete it" not in said.last


def test_lost_results_are_mentioned_when_a_run_goes_on(tiny: Pipeline, tmp_path: Path) -> None:
    folder = tiny.copy(tmp_path / "run")
    stage = folder / "05-rl"
    cut_after(stage, 4)
    rows = (stage / "metrics.jsonl").read_text().splitlines(keepends=True)
    (stage / "metrics.jsonl").write_text("".join(row for row in rows if '"step":2,' not in row))
    (stage / "evals" / "000003.json").write_text("{")
    (stage / "rollouts" / "train-000001.parquet").write_bytes(b"PAR1")
    said = whet("run", tiny.file, "--out", folder, "--resume")
    assert said.code == 0, said.err
    for words in ("metrics.jsonl lacks 1 of 4 steps", "000003.json", "train-000001.parquet"):
        assert any(words in line for line in said.err.splitlines() if line.startswith("lost since"))
    assert said.err.count("lost since") == 3


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("config.json", "num_hidden_layers", 10**6, "says 1000000 layers, but the weights are"),
        ("config.json", "intermediate_size", 2**45, "cannot be allocated"),
        ("config.json", "max_position_embeddings", 2**50, "cannot be allocated"),
        ("generation_config.json", "eos_token_id", 10**7, "eos_token_id 10000000 is not one of"),
    ],
)
def test_absurd_sizes_in_a_model_folder_are_one_sentence(
    exported: Path, tmp_path: Path, name: str, key: str, value: int, words: str
) -> None:
    row = json.loads((exported / name).read_text())
    (exported / name).write_text(json.dumps(row | {key: value}))
    said = use("try", exported, tmp_path)
    assert is_one_sentence(said), said.err
    assert words in said.last


@pytest.mark.parametrize("is_flag", [False, True])
def test_a_number_of_thousands_of_digits_is_one_sentence(tmp_path: Path, is_flag: bool) -> None:
    digits = "9" * 5000
    text = SFT.format(data="x", model=NEW)
    file = write(
        tmp_path / "s.toml", text if is_flag else text.replace("steps = 2", f"steps = {digits}")
    )
    said = whet("show", file, *(("--steps", digits) if is_flag else ()))
    assert is_one_sentence(said), said.err


def test_an_error_that_quotes_a_long_text_is_cut(tmp_path: Path) -> None:
    said = whet("show", write(tmp_path / "s.toml", f'kind = "{"k" * 1_000_000}"\n'))
    assert said.code == 2
    assert len(said.err) < 5_000
    assert "characters … kkk" in said.err
    assert said.err.rstrip().endswith("distill, tango, verifications, eval")


BROKEN_TASKS = """from whet.tasks.game24 import Game24
class Raises(Game24):
    name = "raises"
    def problems(self, split):
        yield next(iter(super().problems(split)))
        raise ValueError("there is no more")
class Varies(Game24):
    name = "varies"
    def vary(self, problem, seed):
        raise KeyError("words")
class Texts(Game24):
    name = "texts"
    def problems(self, split):
        return ["1 2 3 4"]
class Builds(Game24):
    name = "builds"
    def __init__(self, config=None):
        raise LookupError("no table")
class Parses(Game24):
    name = "parses"
    def parse_question(self, question):
        return int(question)
class Scores(Game24):
    name = "scores"
    def score(self, problem, text):
        return 1 / 0
"""


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("Raises", "raised ValueError in line 6: there is no more"),
        ("Varies", "raised KeyError in line 10: 'words'"),
        ("Texts", "problems should yield whet.types.Problem, not '1 2 3 4'"),
        ("Builds", "raised LookupError in line 18: no table"),
    ],
)
def test_a_task_of_ones_own_that_fails_is_one_sentence_with_its_line(
    tiny: Pipeline, tmp_path: Path, task: str, words: str
) -> None:
    own = write(tmp_path / "broken.py", BROKEN_TASKS)
    text = RL.format(model=tiny.folder / "03-sft")
    said = whet(
        "rl",
        write(tmp_path / "rl.toml", text.replace('task.name = "game24"', f'task = "{own}:{task}"')),
        *("--out", tmp_path / "run"),
    )
    assert is_one_sentence(said), said.err
    assert words in said.last


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("Parses", "raised ValueError in line 22: invalid literal"),
        ("Scores", "raised ZeroDivisionError in line 26: division by zero"),
    ],
)
def test_a_task_of_ones_own_that_fails_at_a_question_is_one_sentence_with_its_line(
    exported: Path, tmp_path: Path, task: str, words: str
) -> None:
    own = write(tmp_path / "broken.py", BROKEN_TASKS)
    write(exported / "config.toml", f'task.name = "{own}:{task}"\n')
    said = use("try", exported, tmp_path)
    assert is_one_sentence(said), said.err
    assert words in said.last


@pytest.mark.parametrize("question", [b"\xff", b"1 2 3 \xc3"])
def test_a_question_that_is_no_text_is_refused(exported: Path, question: bytes) -> None:
    said = whet("try", exported, os.fsdecode(question))
    assert is_one_sentence(said), said.err
    assert "is not text in UTF-8" in said.last


@pytest.mark.parametrize("column", ["q", "a", "r"])
def test_half_a_surrogate_pair_is_refused_at_import(tmp_path: Path, column: str) -> None:
    row = {"q": "1 + 1", "a": "2", "r": "It is 2."}
    rows = write(tmp_path / "rows.jsonl", json.dumps(row | {column: "2 \udfff"}) + "\n")
    maps = [word for pair in ("prompt=q", "answer=a", "response=r") for word in ("--map", pair)]
    said = whet("data", "import", rows, *maps, "--task", "math", "--out", tmp_path / "p.jsonl")
    assert said.code == 2, said.err
    assert "line 1: has a value that cannot be written" in said.err


@pytest.mark.parametrize("answer", ["null", '""'])
def test_a_row_that_no_grader_can_judge_is_refused_at_import(tmp_path: Path, answer: str) -> None:
    rows = write(tmp_path / "rows.jsonl", f'{{"q": "1 + 1", "a": {answer}}}\n')
    maps = ("--map", "prompt=q", "--map", "answer=a", "--task", "math")
    said = whet("data", "import", rows, *maps, "--out", tmp_path / "problems-rl.jsonl")
    assert said.code == 2, said.err
    assert "has no answer to grade against: 'a' is" in said.err


def test_a_row_cannot_name_code_to_be_graded_by(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.jsonl", '{"q": "1 + 1", "a": "2", "t": "evil.py:Evil"}\n')
    maps = ("--map", "prompt=q", "--map", "answer=a", "--map", "task=t")
    said = whet("data", "import", rows, *maps, "--out", tmp_path / "problems-rl.jsonl")
    assert said.code == 2, said.err
    assert "a file of code: give it with --task" in said.err
