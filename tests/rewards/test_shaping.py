"""Shaping terms: the cases of TRL, Open R1 and NeMo RL, and numbers worked by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from whet.rewards.shaping import Shaping, Term
from whet.testing.fakes import rollout, sum_problem
from whet.types import Json, Rollout, Score, Verdict

CASES = Path(__file__).parents[2] / ".." / "shared" / "data" / "reward_shaping.jsonl"


def _term(**settings: Json) -> Shaping:
    return TypeAdapter(Term).validate_python(settings)


def _score(verdict: Verdict = Verdict.CORRECT, **parts: float) -> Score:
    return Score(verdict=verdict, parts={"correct": float(verdict is Verdict.CORRECT), **parts})


def _worth(term: Shaping, found: Rollout | None = None, score: Score | None = None) -> float:
    return term.weight * term.value(found or rollout(), score or _score())


def _of_length(size: int) -> Rollout:
    return rollout(tokens=[1] * size)


def _case(row: dict[str, Json]) -> tuple[Shaping, Rollout, Score]:
    """Write a peer's rule and parameters as a term, and its input as a rollout."""
    rule, given = str(row["rule"]), row["input"]
    params = row["params"]
    assert isinstance(params, dict)
    if isinstance(given, dict):
        found = _of_length(int(given["completion_tokens"]))  # type: ignore[arg-type]
        score = _score(Verdict.CORRECT if given.get("correct") else Verdict.WRONG)
    else:
        found = rollout(text=given) if isinstance(given, str) else rollout(tokens=given)  # type: ignore[arg-type]
        score = _score()
    if rule == "soft_overlong_punishment":
        term = _term(
            kind="overlong",
            max_tokens=params["max_completion_len"],
            buffer=params["soft_punish_cache"],
        )
    elif rule == "cosine_scaled":
        term = _term(
            kind="cosine",
            max_tokens=params["max_len"],
            correct_short=params["max_value_correct"],
            correct_long=params["min_value_correct"],
            wrong_short=params["min_value_wrong"],
            wrong_long=params["max_value_wrong"],
        )
    elif rule.startswith("ngram"):
        kind = "ngram_words" if rule.endswith("words") else "ngram_tokens"
        term = _term(kind=kind, size=params["ngram_size"], weight=params["max_penalty"])
    else:
        term = _term(kind=rule, **params)
    return term, found, score


@pytest.mark.skipif(not CASES.exists(), reason="../shared/data is not here")
def test_every_case_of_the_peers_gives_their_number() -> None:
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]

    wrong = [
        row["id"] for row in rows if abs(_worth(*_case(row)) - row["expected"]) > row["tolerance"]
    ]

    assert len(rows) == 51
    assert wrong == []


def test_overlong_falls_from_zero_to_minus_one_within_the_buffer() -> None:
    term = _term(kind="overlong", max_tokens=100, buffer=20)

    assert [_worth(term, _of_length(size)) for size in (10, 80, 85, 100, 150)] == [
        0.0,
        0.0,
        -0.25,
        -1.0,
        -1.0,
    ]


def test_linear_falls_from_the_free_length_to_the_limit() -> None:
    term = _term(kind="linear", max_tokens=100, free_tokens=20, weight=0.5)

    assert [_worth(term, _of_length(size)) for size in (1, 20, 60, 100, 120)] == [
        0.5,
        0.5,
        0.25,
        0.0,
        0.0,
    ]


def test_cosine_counts_a_missing_answer_as_wrong() -> None:
    term = _term(kind="cosine", max_tokens=100)

    assert _worth(term, _of_length(100), _score(Verdict.NO_ANSWER)) == pytest.approx(-0.5)


def test_outcome_gives_each_verdict_its_number() -> None:
    plain, own = _term(kind="outcome", correct=5, wrong=-5), _term(kind="outcome", no_answer=-2.0)

    assert [
        _worth(plain, score=_score(v)) for v in (Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER)
    ] == [5, -5, -5]
    assert _worth(own, score=_score(Verdict.NO_ANSWER)) == -2.0


def test_quality_is_the_ratio_to_the_optimum_whichever_way_is_better() -> None:
    term = _term(kind="quality", exact=2.0, feasible=0.5, other=-1.0)

    assert _worth(term, score=_score(feasible=1, value=4, optimum=4)) == 2.0
    for value, optimum in ((3.0, 4.0), (4.0, 3.0)):
        wrong = _score(Verdict.WRONG, feasible=1, value=value, optimum=optimum)
        assert _worth(term, score=wrong) == pytest.approx(0.375)
    assert _worth(term, score=_score(Verdict.WRONG, feasible=0, value=9, optimum=3)) == -1.0
    assert _worth(term, score=_score(Verdict.NO_ANSWER)) == -1.0
    assert _worth(term, score=_score(Verdict.WRONG, feasible=1, value=3, optimum=0)) == 0.0


def test_quality_never_pays_for_more_than_the_optimum_as_the_original_does() -> None:
    value, optimum = 100.0, 2.0
    original = 0.5 * value / optimum
    score = _score(Verdict.WRONG, feasible=1, value=value, optimum=optimum)

    assert original == 25.0
    assert _worth(_term(kind="quality"), score=score) == pytest.approx(0.01)


def test_the_ratio_of_named_tasks_is_squared() -> None:
    score = _score(Verdict.WRONG, feasible=1, value=4, optimum=2)
    found = rollout(problem=sum_problem(1, 2))

    assert _worth(_term(kind="quality", squared=["sums"]), found, score) == pytest.approx(0.125)
    assert _worth(_term(kind="quality", squared=["tsp"]), found, score) == pytest.approx(0.25)


def test_repeat_gives_the_share_or_whether_it_passes_a_threshold() -> None:
    found = rollout(
        text="we try it once more. " * 5 + "x" * 0 + "".join(chr(300 + n) for n in range(105))
    )

    assert _worth(_term(kind="repeat"), found) == pytest.approx(0.5)
    assert _worth(_term(kind="repeat", threshold=0.0, weight=-0.5), found) == -0.5
    assert _worth(_term(kind="repeat", threshold=0.5), found) == 0.0


def test_a_verification_is_held_to_the_steps_its_problem_names() -> None:
    text = (
        r"<step_verification><step>\boxed{CORRECT}</step></step_verification>"
        r"<final_verification>\boxed{CORRECT}</final_verification>"
    )
    term = _term(kind="verification_form")

    def worth(**payload: Json) -> float:
        problem = sum_problem(1, 2)
        return _worth(
            term,
            rollout(text=text, problem=type(problem)(**{**_fields(problem), "payload": payload})),
        )

    assert worth() == 1.0
    assert worth(num_steps=1) == 1.0
    assert worth(num_steps=2) == pytest.approx(0.2)
    assert worth(num_steps=2, form=0.6) == pytest.approx(0.2)
    assert worth(num_steps=2, form=0.59) == 1.0


def _fields(problem: object) -> dict[str, Json]:
    return {name: getattr(problem, name) for name in problem.__slots__}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("when", "counted"),
    [("always", [1, 1, 1]), ("correct", [1, 0, 0]), ("wrong", [0, 1, 1]), ("answered", [1, 1, 0])],
)
def test_a_term_counts_for_the_verdicts_it_names(when: str, counted: list[int]) -> None:
    term = _term(kind="thinking", when=when)

    assert [
        int(term.applies_to(v)) for v in (Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER)
    ] == counted


def test_a_random_term_differs_between_siblings_and_is_the_same_twice() -> None:
    term = _term(kind="random")
    siblings = [
        replace(rollout(text=text), id=id) for id, text in (("a", "1"), ("b", "1"), ("a", "2"))
    ]
    values = [_worth(term, sibling) for sibling in siblings]

    assert len(set(values)) == 3 and all(0.0 <= value < 1.0 for value in values)
    assert [_worth(term, sibling) for sibling in siblings] == values
