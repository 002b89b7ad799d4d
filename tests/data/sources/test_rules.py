"""Rules keep rows by one column; a row without it cannot be read."""

import pytest

from whet.data.sources import ColumnRule
from whet.errors import ConfigError, DataError
from whet.types import Json


@pytest.mark.parametrize(
    ("rule", "kept", "reasons"),
    [
        ({"equals": "math"}, ["math"], {"code": 'is not "math"'}),
        ({"equals": 1}, [1, 1.0], {True: "is not 1"}),
        ({"one_of": ["a", "b"]}, ["b"], {"c": 'is none of ["a", "b"]', None: "is none of"}),
        ({"none_of": ["proof"]}, ["2", None], {"proof": 'is "proof"'}),
        ({"min": 0.1, "max": 0.9}, [0.1, "0.5", 0.9], {0.05: "is below 0.1", 1: "is above 0.9"}),
        ({"max": 0.9}, [-5], {None: "is not a number", "x": "is not a number"}),
        (
            {"min_chars": 2, "max_chars": 3},
            ["ab", "abc"],
            {"a": "fewer than 2", "abcd": "more than 3"},
        ),
        ({"empty": "no"}, ["a", 0, False], {"": "is empty", " ": "is empty", None: "is empty"}),
        ({"empty": "yes"}, [[], None, ""], {"a": "is not empty"}),
        ({"matching": r"^\d+$"}, ["12"], {"1a": r"does not match ^\d+$"}),
        ({"not_matching": "(?i)image"}, ["text", None], {"see Image 1": "matches (?i)image"}),
    ],
)
def test_a_rule_keeps_a_row_or_says_why_not(
    rule: dict[str, Json], kept: list[Json], reasons: dict[Json, str]
) -> None:
    checked = ColumnRule.model_validate({"column": "c", **rule})
    checked.check()
    assert [checked.explain({"c": value}) for value in kept] == [None] * len(kept)
    for value, reason in reasons.items():
        assert (checked.explain({"c": value}) or "").startswith("c ")
        assert reason in (checked.explain({"c": value}) or "")


def test_a_column_may_be_a_path_into_lists_and_tables() -> None:
    rule = ColumnRule(column="a.1.b", equals=2)
    assert rule.explain({"a": [{}, {"b": 2}]}) is None
    with pytest.raises(DataError, match=r"has no column 'a\.1\.b'; its columns are a"):
        rule.explain({"a": [{}]})


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({}, "the rule for the column 'c' has no condition"),
        ({"matching": "("}, r"'\(' is not a regular expression"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(rule: dict[str, Json], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ColumnRule.model_validate({"column": "c", **rule}).check()
