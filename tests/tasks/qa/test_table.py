"""Table answers: numbers with units, texts, lists, declared tolerances, and all the golds of the
benchmark files."""

from dataclasses import replace
from fractions import Fraction

import pytest
from qa_rows import Row, fuzz, needs_data, problem, read

from whet.errors import DataError
from whet.tasks.qa.table import TableConfig, TableTask
from whet.tasks.qa.table_values import quantity, split_list
from whet.types import Json, Message, Verdict

TASK = TableTask()


def _is_right(gold: str, text: str, **payload: Json) -> bool:
    return TASK.score(problem("table", gold, **payload), text).verdict == Verdict.CORRECT


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("1062", "The sum is easy.\n\n1,062"),
        ("1062", "Final Answer: 1062.0"),
        ("1,234", "1234"),
        ("4.90", "4.9"),
        ("-3.24", "−3.24"),
        ("5/13", r"\boxed{\frac{5}{13}}"),
        ("12", "$$12$$"),
        ("10", "1e1"),
        ("5000000", "5 million"),
        ("800 m", "800"),
        ("69.75%", "Final Answer: 69.75"),
        ("69.75%", "0.6975"),
        ("0.6975", "69.75%"),
        ("37.64%", r"\boxed{37.64\%}"),
        ("37.64%", "The answer is 37.640 %."),
        ("Australia", "Final Answer: australia."),
        ("elephant", "<think>an animal</think>The elephant"),
        ("Hello123", "<answer>Hello-123!</answer>"),
        ("1994–95", "1994-95"),
        ("nicosia (cyp), 3 - 0", "Final Answer: nicosia (cyp), 3 - 0"),
        ("spain, france, united kingdom", "Final Answer: Spain, France, and United Kingdom."),
        ("Guercino, Rubens", "The answer is Guercino and Rubens."),
        ("1965, 0.80%", "1965, 0.8%"),
        ("2010, 663", "2010,663"),
        ("5,118,195, 1218.56", "5118195, 1,218.56"),
        ("a | b", "b | a"),
        ("no", "No."),
        ("None", "None"),
    ],
)
def test_the_same_value_is_right_in_another_writing(gold: str, text: str) -> None:
    assert _is_right(gold, text)


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("1062", "1062.5"),
        ("1062", "10.62"),
        ("50", "50%"),
        ("69.75", "69.75%"),
        ("69.75%", "6975"),
        ("-87", "87"),
        ("5", "5 million"),
        ("6", "6 or 7"),
        ("6", "6 or seven"),
        ("6", "<answer>6"),
        ("6", "<think>6"),
        ("8F", "8"),
        ("800 m", "800 km"),
        ("3 - 0", "30"),
        ("1, 234", "1234"),
        ("C++", "C"),
        ("no", "yes and no"),
        ("spain, france", "france, spain"),
        ("spain, france", "spain"),
        ("spain", "spain, france"),
        ("a | b", "a | a"),
        ("7.52", "7.5234"),
        ("Paris", "The answer is Paris or London"),
        ("1/3", "1/0"),
    ],
)
def test_another_value_is_not_right(gold: str, text: str) -> None:
    assert not _is_right(gold, text)


@pytest.mark.parametrize(
    ("gold", "text"), [("50", "5000"), ("50", "0.5"), ("500", "5"), ("0.5", "50")]
)
def test_a_hundredfold_is_wrong_which_the_original_rule_takes(gold: str, text: str) -> None:
    truth, said = float(gold), float(text)

    assert any(abs(said - near) <= 1e-3 * abs(near) for near in (truth, truth / 100, truth * 100))
    assert not _is_right(gold, text)


def test_program_text_is_a_text_where_the_original_rule_runs_it() -> None:
    text = r"\boxed{__import__('os').getpid() * 0 + 50}"

    assert eval("__import__('os').getpid() * 0 + 50") == 50
    assert TASK.score(problem("table", "50"), text).verdict == Verdict.WRONG


def test_the_unit_of_the_question_may_be_left_out_but_not_changed() -> None:
    assert _is_right("3,151", "$3,151.00", unit="$")
    assert _is_right("3,151", r"\boxed{\$3151}", unit="$")
    assert _is_right("3,151", "3151 dollars", unit="$")
    assert not _is_right("3,151", "3151 cents", unit="$")
    assert _is_right("8", "8 girls", unit="girls") and _is_right("8", "8", unit="girls")
    assert not _is_right("8", "8 boys", unit="girls")
    assert _is_right("7", r"\boxed{7\text{ games per year}}", unit="games per year")
    assert not _is_right("7", "$7", unit="games per year")
    assert _is_right("12.5", "12.5%", unit="%")


def test_a_tolerance_holds_only_where_it_is_declared() -> None:
    # 100 ± 0.1
    assert _is_right("100", "100.1", tolerance=0.001)
    assert not _is_right("100", "100.11", tolerance=0.001)
    assert not _is_right("100", "100.1")
    assert not _is_right("0", "0.0001", tolerance=0.001)
    # A tenth of 100, not of the answer; 0.3 is three tenths, not the float below it.
    assert _is_right("100", "110", tolerance=0.1) and not _is_right("100", "111.1", tolerance=0.1)
    assert _is_right("10", "13", tolerance=0.3)


def test_the_order_of_a_list_is_free_where_the_payload_says_so() -> None:
    assert _is_right("spain, france", "france, spain", order="free")
    assert not _is_right("spain, france", "france, france", order="free")


def test_the_percent_sign_may_be_required() -> None:
    strict = TableTask(TableConfig(percent_sign="required"))

    assert strict.score(problem("table", "37.64%"), "37.64").verdict == Verdict.WRONG
    assert strict.score(problem("table", "37.64%"), "37.64 percent").verdict == Verdict.CORRECT


def test_further_references_are_accepted() -> None:
    assert _is_right("United States", "USA", answers=["USA", "U.S."])
    assert not _is_right("United States", "UK", answers=["USA", "U.S."])


def test_nothing_stated_is_no_answer() -> None:
    for text in ("", "   ", "<think>12", r"\boxed{12", "word " * 200):
        assert TASK.score(problem("table", "12"), text).verdict == Verdict.NO_ANSWER


def test_quantities_are_exact_and_bounded() -> None:
    assert quantity("0.1").value == Fraction(1, 10)  # type: ignore[union-attr]
    assert quantity("9" * 65) is None
    assert quantity("-$5").value == -5  # type: ignore[union-attr]
    assert quantity(".") is None and quantity("km") is None
    assert quantity("3 dozen eggs").value == 36  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        (r"\boxed{\text{Champ's weight has changed the most}}", True),
        ("Champ's weight has changed the most.", True),
        (r"\boxed{\text{Champ has changed the most}}", True),
        (r"\boxed{\text{Champ's weight has not changed the most}}", False),
        (r"\boxed{\text{Champ has changed the least}}", False),
        (r"\boxed{\text{Champ has changed less than Rex}}", False),
        (r"\boxed{\text{Rex has changed the most}}", False),
        (r"\boxed{\text{Champ keeps eating}}", False),
        (r"\boxed{\text{Champ has changed}}", False),
    ],
)
def test_a_reference_that_restates_the_question_is_an_answer(text: str, is_right: bool) -> None:
    asked = (
        "Rex keeps eating the food of Champ. Which dog's weight has changed the most?\n\nReason."
    )
    row = replace(problem("table", "Champ"), prompt=(Message(role="user", content=asked),))

    assert (TASK.score(row, text).verdict is Verdict.CORRECT) is is_right


@pytest.mark.parametrize(
    ("gold", "text", "is_right"),
    [
        ("Brunel | Telford", "Brunel |A Telford", False),
        ("Telford", r"\boxed{A. Telford}", False),
        ("Telford", "A Telford has grown the most.", False),
        ("Minh", "An Minh", False),
        ("elephant", "An Elephant", True),
        ("Elephant", "An elephant", True),
        ("A Tale of Two Cities", "a tale of two cities", True),
        ("A Tale of Two Cities", "Tale of Two Cities", True),
        ("Harlequins", "The Harlequins", True),
        ("Who", "The Who", False),
        ("The Who", "Who", False),
        ("The Who", "the who", True),
        ("Guess", "The Guess", True),
    ],
)
def test_an_article_may_be_left_out_where_no_other_name_comes_of_it(
    gold: str, text: str, is_right: bool
) -> None:
    asked = "| band | year |\n| The Who | 1964 |\n| Who | 1999 |\nWhich of the Harlequins has grown the most?"
    row = replace(problem("table", gold), prompt=(Message(role="user", content=asked),))

    assert (TASK.score(row, text).verdict is Verdict.CORRECT) is is_right


@pytest.mark.parametrize(
    ("asked", "is_free"),
    [
        ("Which two engineers are named?", True),
        ("Who came first and second?", False),
        ("Rank the two engineers by age?", False),
        ("Which two are the tallest, in descending order?", False),
    ],
)
def test_a_list_with_bars_has_an_order_where_the_question_asks_for_one(
    asked: str, is_free: bool
) -> None:
    asked = f"| a | 1 |\n{asked}"
    prompt = (Message(role="user", content=asked),)
    row = replace(problem("table", "Brunel | Telford"), prompt=prompt)

    assert TASK.score(row, "Brunel, Telford").verdict is Verdict.CORRECT
    listing = "<answer>1. Brunel\n2. Telford</answer>"
    assert TASK.score(row, listing).verdict is Verdict.CORRECT
    assert (TASK.score(row, "Telford, Brunel").verdict is Verdict.CORRECT) is is_free


def test_lists_split_at_bars_semicolons_then_commas() -> None:
    assert split_list("[1, 2, 3]") == ["1", "2", "3"]
    assert split_list("a; b, c") == ["a", "b, c"]
    assert split_list("loughborough university,15160") == ["loughborough university", "15160"]


def test_random_text_never_raises_and_is_never_right() -> None:
    for gold, payload in (("3,151", {"unit": "$"}), ("a, b", {}), ("37.64%", {})):
        for text in fuzz(3, 2000, ["1", "2", "31", "c", "km", "million", "/", ".", "e9", "%"]):
            assert not _is_right(gold, text, **payload), text


def test_a_problem_needs_an_answer_and_a_sound_tolerance() -> None:
    with pytest.raises(DataError, match="needs an answer, not None"):
        TASK.score(problem("table", None), "5")
    for tolerance in (7, 1, -0.1, True, "1%"):
        with pytest.raises(DataError, match=f"needs a tolerance from 0 to 1, not '?{tolerance}"):
            TASK.score(problem("table", "5", tolerance=tolerance), "5")


def _payload(name: str, row: Row) -> dict[str, Json]:
    return {"unit": row["unit"]} if name == "tabmwp" and row["unit"] else {}


@needs_data
@pytest.mark.parametrize(
    ("name", "count"), [("tablebench", 450), ("tabmwp", 400), ("tablebench_outputs", 54)]
)
def test_every_gold_of_a_file_is_right_and_the_next_rows_is_not(name: str, count: int) -> None:
    rows = read(name)
    assert len(rows) == count
    for row, following in zip(rows, [*rows[1:], rows[0]], strict=True):
        gold, payload = str(row["answer"]), _payload(name, row)
        solved = TASK.solve(problem("table", gold), 0) or ""
        for text in (gold, solved, f"Final Answer: {gold}", f"So:\n\\boxed{{{gold}}}"):
            assert _is_right(gold, text, **payload), (gold, text)
        if following["answer"] != gold:
            assert not _is_right(gold, f"Final Answer: {following['answer']}", **payload), (
                gold,
                following["answer"],
            )


@needs_data
def test_the_published_outputs_are_graded_as_a_reader_would() -> None:
    """Rows with one right value; what the table's authors grade by overlap of words is left out."""
    kept = ("NumericalReasoning", "FactChecking")
    rows = [row for row in read("tablebench_outputs") if row["qtype"] in kept]

    wrong = [
        str(row["answer"])
        for row in rows
        if not _is_right(str(row["answer"]), str(row["prediction"]))
    ]

    assert len(rows) == 30
    assert wrong == ["838478.3", "20.3", "Radio Music Awards, edition #8 (2017)", "1994–95"]


@needs_data
def test_the_text_cases_of_other_graders_agree() -> None:
    rows = [row for row in read("equivalence") if row["category"] == "text"]

    wrong = [
        row
        for row in rows
        if _is_right(str(row["gold"]), str(row["prediction"])) != row["expected_equal"]
    ]

    assert len(rows) == 26
    assert wrong == []


def test_there_are_no_problems_of_its_own() -> None:
    assert list(TASK.problems("rl")) == []
    assert TASK.solve(problem("table", None), 0) is None
