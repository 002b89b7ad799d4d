"""Problems whose prompts leave a response no room in the context are left out of a run."""

from dataclasses import replace
from pathlib import Path

import pytest

from whet.errors import DataError
from whet.stages.training import drop_long_prompts
from whet.store.run import RunStore
from whet.testing.fakes import sum_problem
from whet.testing.tiny import tiny_policy
from whet.types import Message, Problem

CONTEXT = 64


def problem_of(num_tokens: int) -> Problem:
    """Make a problem whose prompt has this many tokens, 5 of them without a "7" more."""
    problem = sum_problem(2, 3)
    asked = Message(role="user", content=problem.prompt[0].content + " 7" * (num_tokens - 5))
    return replace(problem, id=f"sums/{num_tokens}", prompt=(asked,))


@pytest.mark.parametrize(("num_tokens", "is_kept"), [(63, True), (64, False), (65, False)])
def test_a_prompt_is_kept_while_it_leaves_room_for_one_token(
    num_tokens: int, is_kept: bool, tmp_path: Path
) -> None:
    chat_engine = tiny_policy().chat_engine
    short = problem_of(6)
    problem = problem_of(num_tokens)
    assert len(chat_engine.chat.encode_problem(problem)) == num_tokens
    assert chat_engine.engine.max_model_len == CONTEXT
    run = RunStore(tmp_path, lock=None)

    kept = drop_long_prompts([short, problem], chat_engine, run)

    assert kept == ([short, problem] if is_kept else [short])
    assert [row["problems"] for row in run.events()] == (
        [] if is_kept else [[f"sums/{num_tokens} ({num_tokens} tokens)"]]
    )


def test_a_single_prompt_of_exactly_the_context_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no room in a context of 64 tokens: sums/64 \(64 tokens"):
        drop_long_prompts(
            [problem_of(CONTEXT)], tiny_policy().chat_engine, RunStore(tmp_path, lock=None)
        )
