"""Last letters: exact letters, and a right word on every step."""

import pytest

from whet.errors import DataError
from whet.tasks.warmup.letters import LastLetter, LastLetterConfig, write_gold_steps
from whet.text.steps import rate_solution
from whet.types import Json, Message, Problem, Verdict

TASK = LastLetter()


def asked(words: Json) -> Problem:
    prompt = (Message(role="user", content="?"),)
    payload = {"words": words}
    return Problem(
        id="l/0",
        task="last_letter",
        prompt=prompt,
        answer="an",
        payload=payload,
        level=None,
        split="rl",
        source="",
    )


ADA = asked(["Ada", "Ivan", "Noor"])
STEPS = write_gold_steps(["Ada", "Ivan", "Noor"])


@pytest.mark.parametrize(
    "response",
    [
        "Answer: anr",
        "answer: ANR.",
        '<answer>"anr"</answer>',
        "anr",
        "\\boxed{anr}",
        "Answer: anr (3 letters)",
        "Answer: anr, since Noor ends in r.",
    ],
)
def test_the_letters_are_right_in_their_usual_forms(response: str) -> None:
    assert TASK.score(ADA, response).verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("Answer: ann", Verdict.WRONG),
        ("Answer: anrr", Verdict.WRONG),
        ("Answer: AdaIvanNoor", Verdict.WRONG),
        ("Answer: a n r", Verdict.NO_ANSWER),
        ("Answer: anr or ann", Verdict.NO_ANSWER),
        ("Answer: anr (4 letters, which is wrong)", Verdict.NO_ANSWER),
        ("Answer: anr, as others claim it is", Verdict.NO_ANSWER),
        ("", Verdict.NO_ANSWER),
    ],
)
def test_other_letters_are_not_right(response: str, verdict: Verdict) -> None:
    assert TASK.score(ADA, response).verdict is verdict


def test_gold_steps_are_right_and_every_one_counts() -> None:
    gold = TASK.solve(ADA, 0)
    assert gold.splitlines() == [*STEPS, "Answer: anr"]
    assert [note.is_right for note in TASK.comment(ADA, gold)] == [True, True, True, None]
    assert TASK.score(ADA, gold).parts == {"correct": 1.0, "steps": 1.0}


def test_wrong_steps_are_found_whatever_the_answer_is() -> None:
    told = '1. The last letter of "Ada" is "d".\n- the last letter of Ivan is n\nThe last letter of "Bo" is "o".\nanr'
    notes = TASK.comment(ADA, told)
    assert [note.is_right for note in notes] == [False, True, False, None]
    assert (
        notes[0].note == "the last letter of Ada is a" and "not one of the words" in notes[2].note
    )
    assert TASK.score(ADA, told).parts == {"correct": 1.0, "steps": pytest.approx(1 / 3)}


@pytest.mark.parametrize(("count", "share"), [(1, 1 / 3), (3, 1 / 3), (12, 1 / 12)])
def test_repeating_a_right_step_earns_no_more_than_one(count: int, share: float) -> None:
    repeated = "\n".join([STEPS[0]] * count)
    assert TASK.score(ADA, repeated).parts["steps"] == pytest.approx(share)


def test_a_word_that_is_asked_twice_needs_two_steps() -> None:
    twice = asked(["Ada", "Ada"])
    assert TASK.score(twice, STEPS[0]).parts["steps"] == 0.5
    assert TASK.score(twice, f"{STEPS[0]}\n{STEPS[0]}").parts["steps"] == 1.0


def test_gold_steps_can_be_in_the_tags_that_step_verifiers_read() -> None:
    task = LastLetter(LastLetterConfig(layout="steps"))
    gold = task.solve(ADA, 0)
    assert task.score(ADA, gold).parts == {"correct": 1.0, "steps": 1.0}
    assert rate_solution(gold) == 1.0


def test_problems_carry_their_gold_steps() -> None:
    made = TASK.generate(1, 0.5)
    words = made.payload["words"]
    assert isinstance(words, list)
    assert made.payload["steps"] == write_gold_steps([str(word) for word in words])
    assert made.answer == "".join(str(word)[-1] for word in words)


@pytest.mark.parametrize("words", [None, [], ["a", 1], [""]])
def test_problems_without_words_are_the_fault_of_the_data(words: Json) -> None:
    with pytest.raises(DataError, match="list of words"):
        TASK.score(asked(words), "x")


def test_harder_lists_are_longer() -> None:
    lengths = [len(TASK.generate(3, level).answer or "") for level in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert lengths == sorted(set(lengths)), lengths
