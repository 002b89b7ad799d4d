"""Overlap with evaluation questions: n-grams, short questions, frames, and rows of any layout."""

import json
from pathlib import Path

import numpy as np
import pytest

from whet.data.clean.contamination import (
    EvalIndex,
    build_index,
    hash_text,
    list_eval_files,
    read_row_question,
)
from whet.data.clean.word_hashes import hash_words, normalise
from whet.errors import ConfigError, DataError
from whet.testing.fakes import sum_problem

LONG = "a farmer has seventeen sheep and all but nine of them run away how many are left now"


def index(folder: Path, *questions: str, n: int = 13) -> EvalIndex:
    file = folder / "eval.jsonl"
    file.write_text(
        "".join(json.dumps({"id": i, "question": q}) + "\n" for i, q in enumerate(questions))
    )
    return build_index([file], n, lambda count: None)


def partners(of: EvalIndex, text: str) -> set[int]:
    normal = normalise(text)
    hashes = np.array([hash_text(normal)], dtype=np.uint64)
    return {int(of.owners[ngram]) for ngram in of.find(hash_words([normal]), hashes).ngrams}


def test_thirteen_words_in_a_row_are_an_overlap_and_twelve_are_none(tmp_path: Path) -> None:
    words = LONG.split()
    of = index(tmp_path, "something else", LONG)
    assert partners(of, "Say: " + " ".join(words[2:15]).upper() + "!") == {1}
    assert partners(of, "say " + " ".join(words[2:14]) + " or so") == set()
    assert str(of.texts[1]).endswith("eval.jsonl line 2") and of.texts[1].id == "1"


def test_a_question_of_eight_to_twelve_words_is_found_within_a_text(tmp_path: Path) -> None:
    of = index(tmp_path, "How many primes are there below one hundred?")
    assert partners(of, "I ask: how many primes are there below one hundred") == {0}
    assert partners(of, "how many primes are there below one thousand") == set()


def test_a_shorter_question_is_found_as_a_whole_text_alone(tmp_path: Path) -> None:
    of = index(tmp_path, "What is 2 + 3?")
    assert partners(of, "what is  2 + 3?") == {0}
    assert partners(of, "what is 2 + 3? and then what is 4 + 5?") == set()
    assert partners(of, "what is 2 - 3?") == set()


def test_the_frame_of_many_questions_is_no_overlap(tmp_path: Path) -> None:
    frame = "think step by step and write the final answer at the very end in a box"
    questions = [f"{frame} question {number} asks for word{number}" for number in range(11)]
    assert partners(index(tmp_path, *questions), f"something new {frame}") == set()
    assert partners(index(tmp_path, *questions[:10]), f"something new {frame}") == {0}


def test_equal_questions_are_one_and_the_first_is_named(tmp_path: Path) -> None:
    of = index(tmp_path, LONG, LONG.upper())
    assert (len(of.texts), of.num_rows) == (1, 2)


def test_the_question_is_read_from_problems_and_from_rows_of_other_systems() -> None:
    assert read_row_question(sum_problem(1, 2).to_json()) == "1 + 2"
    assert read_row_question({"Body": "Tom has 3.", "Question": "How many?", "Answer": "3"}) == (
        "Tom has 3.\nHow many?"
    )
    assert read_row_question({"problem": "same", "question": "same", "answer": "x"}) == "same"
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    assert read_row_question({"messages": list(messages)}) == "hi"
    assert read_row_question({"frage": "wie viele?", "n": 3}) == "wie viele?\n"


def test_a_folder_is_searched_for_data_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.jsonl", "deep/b.csv", "README.md", ".hidden.jsonl"):
        (tmp_path / name).touch()
    assert [file.name for file in list_eval_files([tmp_path])] == ["a.jsonl", "b.csv"]
    with pytest.raises(ConfigError, match="has no evaluation file"):
        list_eval_files([tmp_path / "README.md"])


def test_files_without_a_question_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no question in it"):
        index(tmp_path, "")
