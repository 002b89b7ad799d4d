"""Clauses beside an answer: what denies it, what leaves it standing."""

import time

import pytest

from whet.answers.clauses import split_clauses, stem
from whet.answers.final_answer import decided_text
from whet.answers.stances import judge
from whet.answers.withdrawal import is_given_away


def test_the_forms_of_a_word_have_one_stem() -> None:
    for forms in (
        "fail fails failed failing",
        "hold holds",
        "drop drops dropped dropping",
        "note notes",
    ):
        assert len({stem(form) for form in forms.split()}) == 1
    assert stem("noted") != stem("not")


def test_contractions_are_written_out() -> None:
    for text in ("it can't be", "it cannot be", "it can’t be", "it cant be", "it can not be"):
        (clause,) = split_clauses(text)
        assert clause.words == ("it", "can", "not", "be")


def test_a_clause_keeps_its_place_and_what_stands_around_it() -> None:
    text = "Fine, but it fails."
    _, clause = split_clauses(text)

    assert text[clause.start : clause.end] == " it fails"
    assert (clause.lead, clause.mark) == ("but", ".")


@pytest.mark.parametrize(
    ("remark", "stance"),
    [
        ("This is wrong.", "denied"),
        ("So the answer above is NOT correct.", "denied"),
        ("My path breaks clue 3.", "denied"),
        ("Actually no:", "denied"),
        ("Scratch that.", "denied"),
        ("It can't be the answer.", "denied"),
        ("Unfortunately that doesn't hold.", "denied"),
        ("I forgot the carry.", "denied"),
        ("I don't trust it.", "denied"),
        ("I can't find an answer.", "denied"),
        ("That student was mistaken.", "denied"),
        ("Not the answer.", "replaced"),
        ("Please disregard it.", "replaced"),
        ("It should be seven.", "replaced"),
        ("Double it.", "replaced"),
        ("It holds.", "confirmed"),
        ("This is not wrong.", "confirmed"),
        ("Wait.", "turned"),
        ("It cannot be larger.", None),
        ("The answer above is not the only one.", None),
        ("This arrangement of numbers cannot work.", None),
        ("This pile of one kind cannot work.", None),
        ("This does not depend on the order.", None),
        ("C could not be added.", None),
        ("It is not hard to see.", None),
        ("The set of all nodes fails.", None),
        ("The answer is no.", None),
        ('The answer is "Not possible".', None),
        ("We can't solve for both here.", None),
        ("The claim is false.", None),
        ("I had initially forgotten the carry.", None),
        ("I did not guess.", None),
        ("We reject the negative root.", None),
        ("I have to go on.", None),
        ("This set has no edge.", None),
    ],
)
def test_a_clause_is_judged_by_its_subject_and_predicate(remark: str, stance: str | None) -> None:
    (clause,) = split_clauses(remark)

    assert judge(clause, None) == stance


@pytest.mark.parametrize(
    ("remark", "is_denied"),
    [
        ("A friend says five, it fails.", False),
        ("Another set is larger. It fails.", False),
        ("Swapping two breaks a rule, which is wrong.", False),
        ("Two and three are linked, so it fails.", True),
        ("I checked it, and it fails.", True),
        ("Is it five? No.", False),
        ("I looked again. No.", True),
        ("I tried it and rejected it.", True),
        ("It stands, because it fails nothing.", False),
    ],
)
def test_a_pronoun_stands_for_what_was_spoken_of(remark: str, is_denied: bool) -> None:
    *_, before, clause = split_clauses(remark)

    assert (judge(clause, before) == "denied") is is_denied


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("[A, B] fails clue 3.", False),
        ("[A, B] is what one would expect.", False),
        ("[A, B] would have been my guess.", False),
        ("[A, B] is only a bound.", False),
        ("[A, B] is my friend's choice.", False),
        ("[A, B] meets every clue.", True),
        ("[A, B] is the largest set.", True),
        ("[A, B]?", False),
        ("[A, B]\n\nNo, it is right.", True),
        ("[A, B]\n\nIs that wrong? It is not.", True),
    ],
)
def test_an_answer_may_be_the_subject_of_what_follows(text: str, stands: bool) -> None:
    assert (decided_text(text) == text) is stands


@pytest.mark.parametrize(
    ("lead", "is_away"),
    [
        ("One might think it is", True),
        ("You would guess", True),
        ("I first thought it was", True),
        ("Rather than", True),
        ("As opposed to", True),
        ("Decoy:", True),
        ("I think it is", False),
        ("You get", False),
        ("Without the decoy it is:", False),
        ("This is what we first found", False),
    ],
)
def test_a_lead_gives_an_answer_away(lead: str, is_away: bool) -> None:
    clause = split_clauses(lead)[-1]

    assert is_given_away(clause.words, is_label=lead.endswith(":")) is is_away


def test_a_pronoun_far_behind_an_answer_stands_for_something_else() -> None:
    text = f"{'I looked at it again. ' * 10}It is wrong."
    *_, before, clause = split_clauses(text)

    assert judge(clause, before) is None


def test_long_remarks_are_split_in_bounded_time() -> None:
    start = time.process_time()
    clauses = split_clauses("it is not, so " * 20_000)
    for before, clause in zip([None, *clauses], clauses, strict=False):
        judge(clause, before)
    assert time.process_time() - start < 5
