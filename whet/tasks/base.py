"""The base class of tasks: problems, and grading. No torch here."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args, get_type_hints

from whet.config import Config
from whet.errors import ConfigError, DataError, WhetError
from whet.types import RAISED, SPLITS, Problem, Score, Split, Verdict
from whet.user_code import explain_exception, loaded_files

UNGRADABLE = "the problem cannot be graded: "
"""Start of the note on a problem that cannot be graded."""
NO_MEMORY = "grading ran out of the memory it may take"
MAX_PART = 1e9
"""Bound on score parts; sums and variances of larger ones could overflow."""
MAX_NOTE_CHARS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LineNote:
    """The grader's comment on one line of a response; `is_right` is None without a judgement."""

    line: str
    is_right: bool | None
    note: str


class Task(ABC):
    """Problems, a grader that never raises on model text, and a gold response for each problem."""

    name: str
    is_bounded: bool = False
    """Whether grading any text takes little time and memory, and so needs no separate process. It
    counts for whet's own tasks only: a user's is always graded in processes that can be killed."""
    has_one_answer: bool = True
    """Whether no two different answers are both right; False for a set, a route or a program. If
    True, maj@k counts the votes of all right answers together."""
    has_worked_solutions: bool = True
    """Whether `solve` writes responses to imitate; False if it writes the bare reference."""
    has_unrelated_answers: bool = False
    """Whether a text on something else may be right, as instructions on the form of a response
    are followed by any text of that form."""
    asks_sums: bool = False
    """Whether sums are valid problems; a smoke run makes some if the task generates no problems."""
    is_repeatable: bool = True
    """Whether grading a response again gives the same score at no cost; False for a judge."""

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    @property
    def max_seconds(self) -> float:
        """The task's own time limit for grading one response; 0 if it has none.

        Grading processes always get more time than this.
        """
        return 0.0

    @property
    def subtasks(self) -> "Sequence[Task]":
        """The tasks that grade its problems: only itself, unless it is a mix."""
        return (self,)

    @abstractmethod
    def problems(self, split: Split) -> Iterable[Problem]:
        """List the problems of a split, in the same order every time. whet calls `list_problems`
        instead, which checks the split and the problems."""

    @abstractmethod
    def score(self, problem: Problem, text: str) -> Score:
        """Score a response. Any text gives a Score; it never raises."""

    @abstractmethod
    def solve(self, problem: Problem, seed: int) -> str | None:
        """Write a gold response, or None if there is none; it may depend on the seed."""

    def parse_question(self, question: str) -> Problem | None:
        """Make a problem from a typed question; None if it is not a question of this task."""
        return None

    def vary(self, problem: Problem, seed: int) -> Problem:
        """Rephrase the problem with the same id and answer, if the task can."""
        return problem

    def preload(self) -> None:
        """Load the data that grading needs; called once before workers are forked."""
        return

    def comment(self, problem: Problem, text: str) -> Sequence[LineNote]:
        """Comment on each line of a response, for people to read."""
        return [LineNote(line=line, is_right=None, note="") for line in text.splitlines()]


class ConfiguredTask(Task):
    """A task with settings, of the class in the annotation of `config`."""

    config: Config

    def __init__(self, config: Config | None = None) -> None:
        settings = settings_class(type(self))
        assert settings is not None, f"{type(self).__name__} annotates its `config`"
        self.config = config or settings()

    def __repr__(self) -> str:
        return f"<task {self.name}: {self.config}>"


class FileTask(ConfiguredTask):
    """A task whose problems come from files."""

    has_worked_solutions = False

    def problems(self, split: Split) -> Iterable[Problem]:
        check_split(split)
        return ()

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else f"<answer>{problem.answer}</answer>"


def list_problems(task: Task, split: Split) -> Iterator[Problem]:
    """Yield the problems of a split; a mistake in a user's task is one sentence."""
    check_split(split)
    with explain_user_errors(task):
        for problem in task.problems(split):
            if not isinstance(problem, Problem):
                raise TypeError(f"problems should yield whet.types.Problem, not {problem!r:.60}")
            if problem.level is not None and not 0 <= problem.level <= 1:
                raise ValueError(f"level should be from 0 to 1, or None, not {problem.level!r}")
            yield problem


@contextmanager
def explain_user_errors(task: Task) -> Iterator[None]:
    """Turn an exception of a user's task into one sentence that names its file, task and line.

    Exceptions of whet's own tasks are bugs, and are raised unchanged.
    """
    try:
        yield
    except WhetError:
        raise
    except Exception as error:  # a user's task may raise anything
        files = loaded_files(type(subtask) for subtask in task.subtasks)
        if not files:
            raise
        label = f"the task {task.name!r} in {', '.join(files)}"
        raise explain_exception(label, error, files) from error


def make_unscored(note: str) -> Score:
    """Make an UNSCORED score; the note is the reason."""
    return Score(verdict=Verdict.UNSCORED, parts={}, note=note)


def grade_safely(task: Task, problem: Problem, text: str) -> Score:
    """Score a response without raising; if the grader fails, the note has the reason."""
    try:
        return _check_score(task.score(problem, text))
    except DataError as error:
        return make_unscored(f"{UNGRADABLE}{error}")
    except MemoryError:
        reason = NO_MEMORY
    except (Exception, SystemExit) as error:
        reason = f"the grader raised {type(error).__name__}: {_first_line(error)}"
    return score_failure(task, problem, reason)


def is_builtin(task: Task) -> bool:
    """Whether a task is whet's own."""
    return type(task).__module__.partition(".")[0] == "whet"


def describe_grader(task: Task) -> str:
    """Name a task's grader; that of a user's task with its file and class."""
    if is_builtin(task):
        return f"the grader of {task.name}"
    return f"the grader of {task.name} ({own_code_path(task)})"


def own_code_path(task: Task) -> str:
    """Write the code path of a user's task, such as `/home/me/my_task.py:Name`."""
    return f"{inspect.getfile(type(task))}:{type(task).__qualname__}"


def score_failure(task: Task, problem: Problem, reason: str) -> Score:
    """Score a response on which a grader failed: UNSCORED for a user's task, but WRONG if whet's
    own grader can grade the problem, since a policy could otherwise learn to avoid verdicts."""
    if not is_builtin(task):
        return make_unscored(reason)
    try:
        usual = _check_score(task.score(problem, task.solve(problem, 0) or ""))
    except (Exception, SystemExit):
        return make_unscored(reason)
    if usual.verdict is Verdict.UNSCORED:
        return usual
    parts = dict.fromkeys(usual.parts, 0.0)
    return Score(verdict=Verdict.WRONG, parts=parts, note=f"{RAISED}{reason}")


def _check_score(score: Score) -> Score:
    """Convert a score to plain values, and refuse an invalid score.

    An unpaired surrogate, which cannot be stored, becomes a question mark.
    """
    if not isinstance(score, Score):
        raise TypeError(
            f"score gave {type(score).__name__}, not a Score: return to_score(is_right, …) of "
            "whet.tasks.answers"
        )
    if not isinstance(score.answer, str | None) or not isinstance(score.note, str):
        raise TypeError("a score's answer must be text or None, and its note text")
    parts = {_clean(str(name)): float(part) for name, part in score.parts.items()}
    for name, part in parts.items():
        if not abs(part) <= MAX_PART:
            raise ValueError(f"the part {name!r} of a score is {part}, beyond ±{MAX_PART:g}")
    answer = None if score.answer is None else _clean(score.answer)
    note = _clean(score.note)[:MAX_NOTE_CHARS]
    return Score(verdict=Verdict(score.verdict), parts=parts, answer=answer, note=note)


def _clean(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _first_line(error: BaseException) -> str:
    try:
        return _clean(str(error).partition("\n")[0][:200])
    except Exception:  # formatting a hostile exception may raise again
        return "(no message)"


def check_split(split: str) -> None:
    """Refuse an unknown split."""
    if split not in SPLITS:
        raise ConfigError(f"there is no split {split!r}; the splits are {', '.join(SPLITS)}")


def data_error(problem: Problem, needs: str, value: object) -> DataError:
    """Make an error that says what grading a problem needs, and the value it has instead."""
    return DataError(f"problem {problem.id} needs {needs}, not {repr(value)[:100]}")


def is_solvable(problem: Problem) -> bool:
    """Whether a problem is not marked as having no solution."""
    return problem.payload.get("solvable") is not False


def keep_solvable(problems: Iterable[Problem]) -> list[Problem]:
    """Drop problems that are known to have no solution."""
    return [problem for problem in problems if is_solvable(problem)]


def settings_class(task_class: type[Task]) -> type[Config] | None:
    """Find the class of a task's settings in the annotations of its constructor or of `config`."""
    annotations = list(get_type_hints(task_class.__init__).values())
    own = (
        get_type_hints(task_class).get("config") if issubclass(task_class, ConfiguredTask) else None
    )
    inner = [option for annotation in annotations for option in get_args(annotation)]
    for option in (*annotations, *inner, own):
        if isinstance(option, type) and issubclass(option, Config) and option is not Config:
            return option
    return None
