"""Grading in processes: every answer gets its score, and what a grader does to its process harms no
other answer."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from troublesome import (
    Bounded,
    Late,
    Loud,
    LoudConfig,
    Patient,
    Shipped,
    Slow,
    Trouble,
    Unloadable,
    Worded,
    Wrong,
    problem,
)

from whet.errors import ConfigError, DataError, TrainError
from whet.grading.grader import BATCH_SECONDS, BatchSizer, Grader, GradingJob, take_jobs
from whet.grading.limits import GradingConfig
from whet.tasks.code.code_tests import CodeFunction, CodeFunctionConfig
from whet.tasks.math.task import Math
from whet.tasks.qa.judge import Judge, JudgeConfig
from whet.testing.fakes import SumTask, sum_problem
from whet.types import RAISED, Problem, Score, Verdict
from whet.user_code import load_user_file

HERE = Path(__file__).parent
LIMITS = GradingConfig(workers=2, wall=0.4, cpu=5.0, memory=1 << 26, unscored_fraction=1.0)


@pytest.fixture(scope="module")
def pool() -> Iterator[Grader]:
    with Grader(Trouble(), LIMITS) as grader:
        yield grader


def graded(grader: Grader, *texts: str, of: Problem | None = None) -> list[Score]:
    scores = dict(grader.grade((place, of or problem(), text) for place, text in enumerate(texts)))
    assert len(scores) == len(texts)
    return [scores[place] for place in range(len(texts))]


def alive(marker: str) -> int:
    """Count processes whose command line holds a marker."""
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found += marker.encode() in (entry / "cmdline").read_bytes()
            except OSError:
                continue
    return found


def soon(is_so: Callable[[], bool]) -> bool:
    """Wait for what another process does, ten seconds at most."""
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_so()


def test_scores_come_back_under_their_keys(pool: Grader) -> None:
    scores = dict(
        pool.grade([("a", problem(), "yes"), (("b", 2), problem(), "no"), (3, problem(), "")])
    )

    assert {key: score.verdict for key, score in scores.items()} == {
        "a": Verdict.CORRECT,
        ("b", 2): Verdict.WRONG,
        3: Verdict.NO_ANSWER,
    }
    assert scores["a"] == Score(verdict=Verdict.CORRECT, parts={"correct": 1.0}, answer="yes")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("loop", "grading took more than 0.4 s"),
        ("tower", "grading took more than 0.4 s"),
        ("sleep", "grading took more than 0.4 s"),
        ("allocate", "grading ran out of the memory it may take"),
        ("die", "the grading process was ended by SIGKILL"),
        ("leave", "the grading process ended with code 3"),
        ("exit", "the grader raised SystemExit: 0"),
        ("raise", "the grader raised ZeroDivisionError: on purpose"),
        ("refuse", "the problem cannot be graded: it has no numbers"),
        ("deep", "the grader raised RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_a_failure_is_unscored_with_its_reason_and_its_neighbours_are_graded(
    pool: Grader, text: str, note: str
) -> None:
    scores = graded(pool, "yes", "no", text, "no", "yes")

    assert scores[2] == Score(verdict=Verdict.UNSCORED, parts={}, note=note)
    right = [Verdict.CORRECT, Verdict.WRONG, Verdict.WRONG, Verdict.CORRECT]
    assert [score.verdict for score in (*scores[:2], *scores[3:])] == right


def test_what_a_dead_grader_left_is_graded_before_what_came_later() -> None:
    texts = ["sleep 0.1", "die", *"abcdefgh"]
    with Grader(Trouble(), LIMITS.model_copy(update={"workers": 1})) as grader:
        grader._batch_sizer.seconds = BATCH_SECONDS / 4
        keys = [key for key, _ in grader.grade((text, problem(), text) for text in texts)]

    assert keys == texts
    assert grader.num_lost == 1


@pytest.mark.parametrize("text", ["part nan", "part inf", "part -inf", "part 1e308", "part -1e10"])
def test_a_part_that_no_mean_survives_is_refused(text: str) -> None:
    with Grader(Wrong(), GradingConfig(workers=0, unscored_fraction=1.0)) as grader:
        (score,) = graded(grader, text, of=problem(task="wrong"))

    assert score.verdict is Verdict.UNSCORED
    assert "the part 'correct' of a score is" in score.note


def test_half_a_surrogate_pair_and_an_endless_note_do_not_leave_the_grader() -> None:
    with Grader(Wrong(), LIMITS) as grader:
        half, long = graded(grader, "surrogate", "long", of=problem(task="wrong"))

    assert half == Score(verdict=Verdict.WRONG, parts={"?": 1.0}, answer="?", note="?")
    assert len(long.note) == 10_000


@pytest.mark.parametrize("text", ["raise", "deep", "exit"])
def test_what_a_response_makes_a_shipped_grader_raise_is_wrong(text: str) -> None:
    with Grader(Shipped(), GradingConfig(workers=0)) as grader:
        (score,) = graded(grader, text, of=problem(task="shipped"))

    assert (score.verdict, dict(score.parts)) == (Verdict.WRONG, {"correct": 0.0})
    assert score.note.startswith(f"{RAISED}the grader raised ")


def test_a_problem_that_no_response_can_be_graded_on_is_unscored() -> None:
    with Grader(Shipped(), GradingConfig(workers=0, unscored_fraction=1.0)) as grader:
        broken, raising = (
            graded(grader, text, of=problem(answer, task="shipped"))[0]
            for text, answer in (("refuse", "yes"), ("raise", "raise"))
        )

    assert broken.note == "the problem cannot be graded: it has no numbers"
    assert (broken.verdict, raising.verdict) == (Verdict.UNSCORED, Verdict.UNSCORED)


def test_a_response_that_takes_a_shipped_grader_too_much_processor_time_is_wrong() -> None:
    row = replace(problem("7", task="math"), payload={})
    costly = "so " + "\\boxed{" + "(x+1)^{2}+" * 30_000 + "7}"
    with Grader(Math(), GradingConfig(workers=1, cpu=0.004)) as grader:
        (score,) = graded(grader, costly, of=row)

    assert score.verdict is Verdict.WRONG
    assert score.note == f"{RAISED}grading took more than 0.004 s of processor time"


def test_a_grader_that_forks_or_prints_is_graded_like_any_other(pool: Grader) -> None:
    scores = graded(pool, *["fork", "print", "yes"] * 5)

    assert [score.verdict for score in scores] == [
        Verdict.WRONG,
        Verdict.WRONG,
        Verdict.CORRECT,
    ] * 5


def test_hostile_answers_among_a_thousand_change_no_other(pool: Grader) -> None:
    texts = ["yes", "no"] * 500
    for place, what in enumerate(
        ["die", "leave", "raise", "exit", "deep", "fork", "refuse", "die"]
    ):
        texts[60 * place + 7] = what

    scores = graded(pool, *texts)

    kept = [place for place, text in enumerate(texts) if text in ("yes", "no")]
    assert len(kept) == 992
    assert all(
        (scores[place].verdict is Verdict.CORRECT) == (texts[place] == "yes") for place in kept
    )
    assert sum(score.verdict is Verdict.UNSCORED for score in scores) == 7


def test_what_a_killed_grader_started_is_ended_too(pool: Grader) -> None:
    marker = f"stray-of-{os.getpid()}"

    (score,) = graded(pool, f"spawn {marker}")

    assert score.note == "grading took more than 0.4 s"
    assert alive(marker) == 0


def test_processor_time_has_a_limit_of_its_own() -> None:
    with Grader(Trouble(), GradingConfig(workers=1, wall=60, cpu=0.2)) as grader:
        burned, slept = graded(grader, "loop", "sleep 0.5")

    assert burned.note == "grading took more than 0.2 s of processor time"
    assert slept.verdict is Verdict.WRONG


def test_the_clock_of_an_answer_starts_when_it_is_taken_up() -> None:
    with Grader(Trouble(), GradingConfig(workers=1, wall=0.4)) as grader:
        scores = graded(grader, *["sleep 0.15"] * 6)

    assert [score.verdict for score in scores] == [Verdict.WRONG] * 6


def test_a_task_that_keeps_time_itself_is_never_cut_short() -> None:
    with Grader([Patient(), Trouble()], GradingConfig(workers=1, wall=0.1)) as grader:
        (score,) = graded(grader, "sleep 0.4", of=problem(task="patient"))

    assert score.verdict is Verdict.WRONG
    assert grader.limits.wall > Patient.max_seconds
    assert Grader(Judge(), GradingConfig(workers=0)).limits.wall > JudgeConfig().endpoint.budget
    assert (
        Grader(CodeFunction(), GradingConfig(workers=0, wall=1)).limits.wall
        > CodeFunctionConfig().seconds
    )
    assert Grader(Trouble(), GradingConfig(workers=0, wall=1)).limits.wall == 1


def test_answers_come_back_as_they_finish() -> None:
    with Grader(Trouble(), GradingConfig(workers=2)) as grader:
        order = [
            key
            for key, _ in grader.grade(
                (text, problem(), text) for text in ("sleep 0.5", "yes", "no")
            )
        ]

    assert order == ["yes", "no", "sleep 0.5"]


def test_scores_of_an_endless_source_come_back_while_it_is_read(pool: Grader) -> None:
    endless = ((index, problem(), "yes") for index in count())

    answers = pool.grade(endless)
    for _ in range(100):
        assert next(answers)[1].verdict is Verdict.CORRECT
    answers.close()


def test_a_slow_grader_never_keeps_the_source_waiting() -> None:
    num_pulled = 0

    def source() -> Iterator[tuple[int, Problem, str]]:
        nonlocal num_pulled
        for num_pulled in range(1, 61):
            yield num_pulled, problem(), "sleep 0.2"

    with Grader(Trouble(), GradingConfig(workers=1)) as grader:
        scores = grader.grade(source())
        next(scores)
        next(scores)

    assert num_pulled == 60, "every answer is pulled before the second is scored"


def test_a_call_that_was_given_up_leaves_nothing_to_the_next(pool: Grader) -> None:
    first = pool.grade((f"old {place}", problem(), "sleep 0.1") for place in range(6))
    next(first)
    first.close()

    assert set(dict(pool.grade([("new", problem(), "yes")]))) == {"new"}


def test_a_second_call_before_the_first_has_ended_is_refused(pool: Grader) -> None:
    first = pool.grade((index, problem(), "yes") for index in count())
    next(first)

    with pytest.raises(AssertionError, match="an earlier call of grade"):
        next(pool.grade([(0, problem(), "no")]))

    assert next(first)[1].verdict is Verdict.CORRECT
    first.close()
    assert [score.verdict for score in graded(pool, "no")] == [Verdict.WRONG]


def test_a_worker_that_died_while_nobody_asked_is_replaced(pool: Grader) -> None:
    pids = {int(score.note) for score in graded(pool, *["pid", "sleep 0.05"] * 4) if score.note}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)

    scores = graded(pool, *["yes"] * 20)

    assert {score.verdict for score in scores} == {Verdict.CORRECT}


@pytest.mark.parametrize("text", ["yes", "x" * 10_000_000])
def test_a_worker_that_is_stuck_at_no_answer_is_replaced(text: str) -> None:
    with Grader(Trouble(), GradingConfig(workers=1, wall=0.1, silence=0.5)) as grader:
        os.kill(int(graded(grader, "pid")[0].note), signal.SIGSTOP)

        (score,) = graded(grader, text)

    assert score.verdict is not Verdict.UNSCORED
    assert grader.num_lost == 1


def test_a_worker_that_reads_nothing_is_replaced_while_answers_keep_coming() -> None:
    num_responses = 100_000
    num_pulled = 0

    def source() -> Iterator[tuple[int, Problem, str]]:
        nonlocal num_pulled
        for index in range(num_responses):
            num_pulled += 1
            yield index, problem(), "yes" if index else "x" * 10_000_000

    with Grader(Trouble(), GradingConfig(workers=1, wall=0.1, silence=0.5)) as grader:
        os.kill(int(graded(grader, "pid")[0].note), signal.SIGSTOP)
        answers = grader.grade(source())
        next(answers)
        answers.close()

    assert num_pulled < num_responses


def test_a_worker_that_is_stuck_after_some_scores_is_replaced() -> None:
    limits = GradingConfig(workers=1, wall=0.3, silence=0.3, unscored_fraction=1.0)
    with Grader(Trouble(), limits) as grader:
        graded(grader, *["yes"] * 100)  # from now on a batch holds many answers
        scores = graded(grader, "sleep 0.05", "jam", "yes")

    assert [score.verdict for score in scores] == [
        Verdict.WRONG,
        Verdict.UNSCORED,
        Verdict.CORRECT,
    ]


@pytest.mark.parametrize("text", ["allocate", "leak 40_000_000"])
def test_a_worker_that_has_grown_makes_room_for_another(text: str) -> None:
    with Grader(
        Trouble(), GradingConfig(workers=1, memory=1 << 26, unscored_fraction=1.0)
    ) as grader:
        before, _, after = (graded(grader, what)[0].note for what in ("pid", text, "pid"))

    assert before.isdecimal() and after.isdecimal()
    assert before != after
    assert grader.num_lost == 0


def test_no_worker_counts_as_stuck_while_its_task_is_loaded() -> None:
    with Grader(Late(), GradingConfig(workers=1, wall=0.4, silence=0.2)) as grader:
        (score,) = graded(grader, "sleep 0.2", of=problem(task="late"))

    assert score.verdict is Verdict.WRONG
    assert grader.num_lost == 0


def test_a_worker_that_sends_scores_now_and_then_is_not_stuck() -> None:
    with Grader(Trouble(), GradingConfig(workers=1, wall=0.4, silence=0.4)) as grader:
        graded(grader, *["yes"] * 100)
        scores = graded(grader, *["sleep 0.2"] * 6)

    assert [score.verdict for score in scores] == [Verdict.WRONG] * 6
    assert grader.num_lost == 0


def test_a_text_of_ten_million_characters_arrives_whole(pool: Grader) -> None:
    long = "x" * 10_000_000

    (score,) = graded(pool, long)

    assert score.answer == long


def test_a_batch_too_large_to_read_fails_alone() -> None:
    with Grader(
        Trouble(), GradingConfig(workers=1, memory=1 << 25, unscored_fraction=1.0)
    ) as grader:
        graded(grader, *["yes"] * 100)  # quick ones, so that the next three are one batch
        scores = graded(grader, "yes", "x" * 50_000_000, "no")

    assert [score.verdict for score in scores] == [Verdict.CORRECT, Verdict.UNSCORED, Verdict.WRONG]


def test_an_answer_is_blamed_for_the_third_worker_that_dies_with_it() -> None:
    with Grader(
        Trouble(), GradingConfig(workers=1, memory=1 << 25, unscored_fraction=1.0)
    ) as grader:
        (score,) = graded(grader, "x" * 50_000_000)

    assert score.verdict is Verdict.UNSCORED
    assert grader.num_lost == 3


def test_deaths_are_counted_and_blamed_also_after_a_worker_that_left() -> None:
    with Grader(
        Trouble(), GradingConfig(workers=1, memory=1 << 25, unscored_fraction=1.0)
    ) as grader:
        graded(grader, "leak 20_000_000", "die")
        assert grader.num_lost == 1

        (score,) = graded(grader, "x" * 50_000_000)

    assert score.verdict is Verdict.UNSCORED
    assert grader.num_lost == 4


def test_a_response_that_was_in_a_crash_is_sent_alone() -> None:
    queue = deque(
        GradingJob(number=number, problem=problem(), text="yes", num_crashes=num_crashes)
        for number, num_crashes in enumerate((1, 0, 0, 1, 0, 0, 0))
    )

    batches = []
    while queue:
        batches.append([job.number for job in take_jobs(queue, 2)])

    assert batches == [[0], [1, 2], [3], [4, 5], [6]]


def test_a_batch_is_sized_by_the_time_of_one_answer_however_many_come_together() -> None:
    sizer = BatchSizer()
    for size in (1, 8, 64) * 40:
        sizer.update(seconds=size * BATCH_SECONDS / 50.5, count=size)

    assert sizer.size == 50


def test_every_character_survives_the_way(pool: Grader) -> None:
    text = "a\n\x00\U0010ffff\u2028é漢\\\"'\t"

    (score,) = graded(pool, text, of=replace(problem(), answer=text))

    assert score.verdict is Verdict.CORRECT
    assert score.answer == text.strip()


def test_sets_have_the_same_order_in_all_workers_of_all_runs(pool: Grader) -> None:
    with Grader(Trouble(), GradingConfig(workers=1)) as other:
        notes = [graded(grader, "hash word")[0].note for grader in (pool, other)]

    assert notes[0] == notes[1]


def test_workers_have_no_torch(pool: Grader) -> None:
    assert "torch" in sys.modules or __import__("torch")

    assert graded(pool, "modules")[0].note == ""


def test_workers_load_the_files_of_their_tasks_and_no_other_of_the_users(tmp_path: Path) -> None:
    loss = tmp_path / "my_loss.py"
    loss.write_text("import torch\n")
    load_user_file(loss)

    with Grader(Trouble(), GradingConfig(workers=1)) as grader:
        assert graded(grader, "modules")[0].note == ""


def test_a_task_warms_up_before_workers_are_forked() -> None:
    with Grader(Slow(), GradingConfig(workers=1)) as grader:
        assert graded(grader, "x", of=problem(task="slow"))[0].note == "warm True"


def test_a_task_is_made_anew_from_its_settings() -> None:
    with Grader(Loud(LoudConfig(word="LOUD")), GradingConfig(workers=1)) as grader:
        assert graded(grader, "x", of=problem(task="loud"))[0].note == "LOUD"


def test_what_is_no_score_is_unscored() -> None:
    with Grader(Wrong(), GradingConfig(workers=1)) as grader:
        none, number = graded(grader, "none", "x", of=problem(task="wrong"))

    assert none.note == (
        "the grader raised TypeError: score gave NoneType, not a Score: return "
        "to_score(is_right, …) of whet.tasks.answers"
    )
    assert number.verdict is Verdict.UNSCORED


def test_answers_that_are_sent_together_are_graded_by_their_own_problems(pool: Grader) -> None:
    graded(pool, *["yes"] * 100)  # from now on a batch holds many answers
    answers = ["yes", "no"] * 50

    scores = dict(pool.grade((i, problem(answer), "yes") for i, answer in enumerate(answers)))

    assert [scores[i].verdict is Verdict.CORRECT for i in range(100)] == [True, False] * 50


def test_several_tasks_are_told_apart_by_their_problems() -> None:
    with Grader([Trouble(), Slow()], GradingConfig(workers=1)) as grader:
        scores = dict(grader.grade([(0, problem(), "yes"), (1, problem(task="slow"), "yes")]))

    assert (scores[0].verdict, scores[1].note) == (Verdict.CORRECT, "warm True")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_problem_of_another_task_is_refused(workers: int) -> None:
    with (
        Grader(Trouble(), GradingConfig(workers=workers)) as grader,
        pytest.raises(DataError, match="this grader has trouble"),
    ):
        graded(grader, "3", of=sum_problem(1, 2))


@pytest.mark.parametrize("workers", [0, 2])
def test_too_many_failures_stop_the_run_with_a_sentence(workers: int) -> None:
    limits = GradingConfig(workers=workers, unscored_fraction=0.25, unscored_count=5)
    texts = ["yes"] * 8 + ["raise"] * 4

    with Grader(Trouble(), limits) as grader:
        graded(grader, *texts)
        with pytest.raises(
            TrainError, match=r"5 of the last 1\d responses could not be scored.*on purpose.*0\.25"
        ):
            graded(grader, "raise")


def test_a_few_failures_in_a_row_among_many_answers_stop_nothing() -> None:
    with Grader(
        Trouble(), GradingConfig(workers=0, unscored_fraction=0.25, unscored_count=5)
    ) as grader:
        scores = graded(grader, *["yes"] * 100, *["raise"] * 10)

    assert sum(score.verdict is Verdict.UNSCORED for score in scores) == 10


def test_failures_of_just_the_fraction_that_is_allowed_stop_nothing() -> None:
    limits = GradingConfig(workers=0, unscored_fraction=0.25, unscored_count=1)
    with Grader(Trouble(), limits) as grader:
        scores = graded(grader, "yes", "yes", "yes", "raise")

    assert sum(score.verdict is Verdict.UNSCORED for score in scores) == 1


def test_a_bounded_task_of_whets_own_is_graded_in_this_process_unless_told_otherwise() -> None:
    with Grader(SumTask()) as inside, Grader(SumTask(), GradingConfig(workers=1)) as outside:
        assert (inside.workers, outside.workers) == (0, 1)
    with Grader([SumTask(), Trouble()]) as both:
        assert both.workers == 2


def test_a_task_of_the_users_own_is_graded_outside_although_it_inherits_that_it_is_bounded() -> (
    None
):
    with Grader(Bounded()) as grader:
        scores = graded(grader, "pid", "leave", of=problem(task="bounded"))

    assert scores[0].note != str(os.getpid())
    assert scores[1].note == "the grading process ended with code 3"


def test_failures_in_this_process_are_unscored_too() -> None:
    with Grader(Trouble(), GradingConfig(workers=0)) as grader:
        scores = graded(grader, "raise", "exit", "refuse", "deep", "yes")

    assert [score.verdict for score in scores] == [Verdict.UNSCORED] * 4 + [Verdict.CORRECT]


def test_a_task_defined_in_a_function_is_refused_with_a_sentence() -> None:
    class Local(Trouble):
        pass

    with pytest.raises(ConfigError, match=r"cannot be sent to grading processes.*its own file"):
        Grader(Local(), GradingConfig(workers=1))


def test_a_task_made_of_more_than_its_settings_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match="its constructor should take nothing, or `config`"):
        Grader(Worded("loud"), GradingConfig(workers=1))


def test_a_task_that_does_not_load_in_the_worker_is_reported() -> None:
    with (
        Grader(Unloadable(), GradingConfig(workers=1)) as grader,
        pytest.raises(ConfigError, match="not in this process"),
    ):
        graded(grader, "yes")


def test_closing_in_the_midst_of_endless_responses_ends_every_process() -> None:
    with Grader(Trouble(), GradingConfig(workers=2)) as grader:
        pids = {
            int(score.note) for score in graded(grader, *["pid", "sleep 0.05"] * 4) if score.note
        }
        texts = ("yes", "sleep", "loop")
        next(grader.grade((text, problem(), text) for text in texts))

    assert pids and not any(Path(f"/proc/{pid}").exists() for pid in pids)
    grader.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_parent_that_is_killed_or_interrupted_leaves_no_process(how: signal.Signals) -> None:
    program = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from troublesome import Trouble, problem\n"
        "from whet.grading.limits import GradingConfig\n"
        "from whet.grading.grader import Grader\n"
        "with Grader(Trouble(), GradingConfig(workers=2, wall=3600, cpu=3600)) as grader:\n"
        "    for _, score in grader.grade([(0, problem(), 'pid'), (1, problem(), 'loop'), (2, problem(), 'loop')]):\n"
        "        print(score.note, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(HERE)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        server = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        os.killpg(parent.pid, how)
        parent.wait()

    assert server != parent.pid
    assert soon(
        lambda: not Path(f"/proc/{worker}").exists() and not Path(f"/proc/{server}").exists()
    )


def test_a_server_that_is_killed_is_told_in_a_sentence() -> None:
    with Grader(Trouble(), GradingConfig(workers=1)) as grader:
        worker = graded(grader, "pid")[0].note
        server = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(server, signal.SIGKILL)

        assert soon(lambda: not Path(f"/proc/{worker}").exists())
        with pytest.raises(TrainError, match="ended from outside"):
            graded(grader, "yes", "yes")


def test_quick_answers_travel_many_to_a_message(pool: Grader) -> None:
    graded(pool, *["yes"] * 1_000)

    # An answer takes far less than a millisecond, and a message is filled for BATCH_SECONDS.
    assert pool._batch_sizer.size >= 1000 * BATCH_SECONDS
