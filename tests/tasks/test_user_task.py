"""A user's own task: a file and a class in it, with every mistake named in one sentence."""

import re
from pathlib import Path

import pytest
from small import whet

from whet.config import Config, load_settings, to_toml
from whet.data.problems import load_problems
from whet.errors import ConfigError
from whet.grading.check_task import check_grader
from whet.grading.grader import Grader
from whet.grading.limits import GradingConfig
from whet.tasks.registry import Mix
from whet.tasks.task_config import TaskConfig, build_task
from whet.tasks.user_task import UserTaskConfig, load_user_task
from whet.types import Verdict

DOUBLES = '''
import dataclasses
from dataclasses import dataclass

from whet.config import Config
from whet.tasks.base import Task
from whet.types import content_id
from whet.types import Message, Problem, Score, Verdict


@dataclass
class Fine:
    words: str


class Doubles(Task):
    """Twice a number."""

    name = "doubles"

    def problems(self, split):
        for number in range(1, 9):
            yield Problem(
                id=content_id("doubles", number),
                task="doubles",
                prompt=(Message(role="user", content=f"Twice {number}?"),),
                answer=str(2 * number),
                payload={},
                level=None,
                split=split,
                source="own",
            )

    def score(self, problem, text):
        right = text.strip() == problem.answer
        verdict = Verdict.CORRECT if right else Verdict.WRONG
        return Score(verdict=verdict, parts={"correct": float(right)}, answer=text.strip() or None)

    def solve(self, problem, seed):
        return problem.answer


class Steep(Doubles):
    name = "steep"

    def problems(self, split):
        for problem in super().problems(split):
            yield dataclasses.replace(problem, level=3)


class Broken(Doubles):
    name = "broken"

    def problems(self, split):
        raise ValueError("no more numbers")


class Rows(Doubles):
    name = "rows"

    def problems(self, split):
        return [{"prompt": "Twice 1?", "answer": "2"}]


class Unsolved(Doubles):
    """Its gold responses are missing."""

    def solve(self, problem, seed):
        return problem.payload["gold"]


class Half(Task):
    name = "half"


class Needy(Doubles):
    def __init__(self, config):
        self.config = config


class TimesConfig(Config):
    factor: int = 3


class Times(Doubles):
    """A number some times over."""

    def __init__(self, config: TimesConfig | None = None) -> None:
        self.config = config or TimesConfig()

    def score(self, problem, text):
        right = text == str(int(problem.answer) // 2 * self.config.factor)
        verdict = Verdict.CORRECT if right else Verdict.WRONG
        return Score(verdict=verdict, parts={"correct": float(right)}, answer=text)
'''


class Settings(Config):
    task: TaskConfig


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_task.py"
    path.write_text(DOUBLES)
    return path


def test_a_task_from_a_file_is_graded_here_and_in_workers(file: Path) -> None:
    task = load_user_task(f"{file}:Doubles")
    problems = list(task.problems("rl"))

    assert task.score(problems[2], " 6\n").verdict is Verdict.CORRECT
    assert check_grader(task, problems, limits=GradingConfig(workers=0)).failures == ()
    assert check_grader(task, problems, limits=GradingConfig(workers=1)).failures == ()


def test_a_file_is_run_once(file: Path) -> None:
    first, again = load_user_task(f"{file}:Doubles"), load_user_task(f"{file}:Doubles")

    assert type(first) is type(again)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "{file}:Triples",
            "has no Triples; it has Fine, Doubles, Steep, Broken, Rows, Unsolved, Half, Needy, TimesConfig, Times",
        ),
        ("{file}:Fine", "Fine is not a class that inherits from whet.tasks.base.Task"),
        ("{file}:Half", r"lacks problems\(self, split\), score\(self, problem, text\), solve\("),
        ("{file}:Needy", "should need no arguments"),
        ("{file}", "should be a file and a name in it"),
        ("nowhere.py:Name", "there is no file nowhere.py"),
    ],
)
def test_mistakes_are_named(file: Path, name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_user_task(name.format(file=file))


def test_a_file_that_does_not_run_is_named_with_its_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def half(")

    with pytest.raises(ConfigError, match=r"broken\.py cannot be loaded: SyntaxError"):
        load_user_task(f"{broken}:Name")


def test_the_path_is_a_file_and_a_class_only() -> None:
    assert (
        load_settings(UserTaskConfig, None, ["--path", "my_task.py:Name"]).config.path
        == "my_task.py:Name"
    )
    with pytest.raises(
        ConfigError, match=r'should be a file and a name in it, such as "my_file\.py:name"'
    ):
        load_settings(UserTaskConfig, None, ["--path", "game24"])


def settings(tmp_path: Path, table: str) -> Settings:
    toml = tmp_path / "run.toml"
    toml.write_text(f"task = {table}\n")
    return load_settings(Settings, toml, []).config


@pytest.mark.parametrize("workers", [0, 1])
def test_settings_in_the_table_reach_the_task(file: Path, tmp_path: Path, workers: int) -> None:
    cfg = settings(tmp_path, f'{{ name = "{file}:Times", factor = 5 }}')

    task = build_task(cfg.task)
    [four, *_] = [problem for problem in task.problems("rl") if problem.answer == "8"]
    with Grader(task, GradingConfig(workers=workers)) as grader:
        scores = dict(grader.grade((text, four, text) for text in ("20", "12")))

    assert scores["20"].verdict is Verdict.CORRECT
    assert scores["12"].verdict is Verdict.WRONG


def test_settings_have_their_defaults(file: Path, tmp_path: Path) -> None:
    task = build_task(settings(tmp_path, f'"{file}:Times"').task)

    assert task.score(next(iter(task.problems("rl"))), "3").verdict is Verdict.CORRECT


def test_settings_are_written_and_read_again(file: Path, tmp_path: Path) -> None:
    cfg = settings(tmp_path, f'{{ name = "{file}:Times", factor = 5 }}')
    again = tmp_path / "again.toml"
    again.write_text(to_toml(cfg))

    assert load_settings(Settings, again, []).config == cfg
    assert "factor = 5" in again.read_text()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ('{{ name = "{file}:Times", facter = 5 }}', 'unknown key "facter"; did you mean "factor"?'),
        ('{{ name = "{file}:Times", factor = "x" }}', 'factor = "x": should be a whole number'),
        ('{{ name = "{file}:Doubles", factor = 5 }}', "Doubles takes no settings, but is given"),
    ],
)
def test_wrong_settings_are_named(file: Path, tmp_path: Path, table: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        settings(tmp_path, table.format(file=file))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("name = 5", "should have a text as its name, not 5"),
        ("name = ''", "should have a text as its name, not ''"),
        ("name = 'verify'", "is named 'verify', which is the task of a verifier's problems"),
        ("name = 'x'\n    def __init__(self): 1 / 0", "raised ZeroDivisionError in line"),
        ("name = 'x'\n    def __init__(self): open('/none')", "raised FileNotFoundError in line"),
    ],
)
def test_a_class_that_cannot_be_made_or_has_no_name_is_a_sentence(
    tmp_path: Path, body: str, reason: str
) -> None:
    rest = "problems = score = solve = lambda self, *given: None"
    file = tmp_path / "broken.py"
    file.write_text(
        f"from whet.tasks.base import Task\nclass Broken(Task):\n    {body}\n    {rest}\n"
    )

    with pytest.raises(ConfigError, match=reason):
        load_user_task(f"{file}:Broken")


def line_of(code: str) -> int:
    return DOUBLES[: DOUBLES.index(code)].count("\n") + 1


BROKEN = (
    f"the task 'broken' in {{file}} raised ValueError in line {line_of('raise ValueError')}: "
    "no more numbers"
)
ROWS = (
    "the task 'rows' in {file} raised TypeError: problems should yield whet.types.Problem, not "
    "{{'prompt': 'Twice 1?', 'answer': '2'}}"
)
STEEP = "the task 'steep' in {file} raised ValueError: level should be from 0 to 1, or None, not 3"
UNSOLVED = f"the task 'doubles' in {{file}} raised KeyError in line {line_of('payload[')}: 'gold'"


@pytest.mark.parametrize(
    ("words", "name", "sentence"),
    [
        ("run make.toml --out run", "Broken", BROKEN),
        ("run make.toml --out run", "Rows", ROWS),
        ("run make.toml --out run", "Steep", STEEP),
        ("tasks check {file}:Unsolved", "Unsolved", UNSOLVED),
        ("teach teach.toml --out run", "Broken", BROKEN),
        ("teach teach.toml --out run", "Unsolved", UNSOLVED),
        ("data make {file}:Broken -n 5 --out made.jsonl", "Broken", BROKEN),
        ("tasks check {file}:Broken", "Broken", BROKEN),
    ],
)
def test_an_error_in_the_users_task_is_one_sentence_with_its_file_and_line(
    file: Path, monkeypatch: pytest.MonkeyPatch, words: str, name: str, sentence: str
) -> None:
    monkeypatch.chdir(file.parent)
    task = f'task = "{file}:{name}"\n'
    Path("make.toml").write_text(f'kind = "run"\n{task}[stages.problems]\nkind = "make"\n')
    Path("teach.toml").write_text(f'kind = "teach"\n{task}')

    said = whet(*words.format(file=file).split())

    assert said.code == 2 and said.last == f"whet: {sentence.format(file=file)}"
    assert "Traceback" not in said.err


@pytest.mark.parametrize("name", ["{file}:Broken", "mix"])
def test_stages_that_read_the_tasks_own_problems_name_the_error_too(file: Path, name: str) -> None:
    part = load_user_task(f"{file}:Broken")
    task = Mix([part, load_user_task(f"{file}:Doubles")]) if name == "mix" else part
    with pytest.raises(ConfigError, match=BROKEN.format(file=file)):
        load_problems(task, None, "rl")
