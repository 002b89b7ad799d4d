"""Programs and predictions as models put them: several blocks, samples of input, bare text, prose
around a literal."""

from whet.tasks.registry import build_default_task
from whet.types import Problem, Verdict


def test_a_response_with_code_is_graded_as_a_person_would(
    spoken_case: tuple[Problem, str, bool],
) -> None:
    problem, response, is_right = spoken_case
    score = build_default_task(problem.task).score(problem, response)

    assert score.verdict in (Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER)
    assert (score.verdict is Verdict.CORRECT) is is_right, score.note
