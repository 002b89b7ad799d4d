"""Habits: loops anywhere in a text, repeated n-grams, the form of tags."""

import random
import time

import pytest

from whet.rewards.text_stats import (
    has_block,
    has_thinking,
    is_think_answer_format,
    is_think_format,
    ngram_repetition,
    repeated_fraction,
    tag_count,
    words,
)


def _brute_force(text: str, min_unit: int, min_repeats: int) -> float:
    """Cover, for every period, each stretch that equals itself a period later for all repeats but
    one."""
    size = len(text)
    covered = [False] * size
    for period in range(min_unit, size // min_repeats + 1):
        stretch = 0
        for place in range(size - period + 1):
            if place < size - period and text[place] == text[place + period]:
                stretch += 1
                continue
            if stretch >= (min_repeats - 1) * period:
                covered[place - stretch : place + period] = [True] * (stretch + period)
            stretch = 0
    return sum(covered) / size if size else 0.0


def _looping_text(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randrange(1, 4)):
        letters = rng.choice(["a", "ab", "abc", "abcdefgh"])
        unit = "".join(rng.choices(letters, k=rng.randrange(1, 50)))
        parts += [unit * rng.choice([1, 2, 4, 5, 6, 8]), unit[: rng.randrange(len(unit) + 1)]]
        parts.append("".join(rng.choices(letters, k=rng.randrange(40))))
    return "".join(parts)


def test_the_share_in_loops_equals_brute_force_on_random_texts() -> None:
    rng = random.Random(8)
    for _ in range(250):
        text, unit, repeats = (
            _looping_text(rng),
            rng.choice([1, 2, 3, 16, 17, 20, 31]),
            rng.choice([5, 5, 6, 7]),
        )

        found = repeated_fraction(text, min_unit=unit, min_repeats=repeats)

        assert found == pytest.approx(_brute_force(text, unit, repeats)), (text, unit, repeats)


def _has_loop_by_binary_search(text: str) -> bool:
    """The original rule: for each start, a binary search over the unit's length, as if longer units
    were harder."""
    for start in range(len(text) - 100):
        low, high = 20, (len(text) - start) // 5
        while low <= high:
            unit = (low + high) // 2
            if text[start : start + 5 * unit] == text[start : start + unit] * 5:
                return True
            high = unit - 1
    return False


def test_a_loop_in_the_middle_is_found_which_the_original_rule_misses() -> None:
    rng = random.Random(3)
    unit, tail = (
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=size)) for size in (100, 250)
    )
    text = unit * 6 + tail

    assert not _has_loop_by_binary_search(text)
    assert repeated_fraction(text) == pytest.approx(600 / 850, abs=0.01)


def test_four_times_is_no_loop_and_five_times_is() -> None:
    unit = "we then try again, "

    assert repeated_fraction(unit * 4 + "x" * 30, min_unit=10) == 0.0
    # 5 × 19 of 125 characters
    assert repeated_fraction(
        unit * 5 + "0123456789ABCDEFGHIJKLMNOPQRST", min_unit=10
    ) == pytest.approx(95 / 125)


def test_rulers_and_padding_shorter_than_five_units_are_no_loops() -> None:
    assert repeated_fraction("-" * 99 + " a table") == 0.0
    assert repeated_fraction("-" * 100) == 1.0


def test_empty_and_odd_texts_are_measured() -> None:
    assert repeated_fraction("") == 0.0
    assert repeated_fraction("\ud800" * 100) == 1.0
    assert repeated_fraction("ab" * 3, min_unit=1) == 0.0


@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, "so we try the next one: " * 42_000, "abcdefgh" * 125_000]
)
def test_a_megabyte_takes_less_than_a_second(text: str) -> None:
    start = time.process_time()
    share = repeated_fraction(text)

    assert time.process_time() - start < 1.0
    assert share == 1.0


def test_random_megabytes_take_less_than_a_second_and_hold_no_loop() -> None:
    text = "".join(random.Random(0).choices("ab", k=1_000_000))
    start = time.process_time()
    share = repeated_fraction(text)

    assert time.process_time() - start < 1.0
    assert share == 0.0


def test_ngrams_count_those_that_were_there_before() -> None:
    # 13 trigrams, 8 different
    assert ngram_repetition(words("A B C A B C E F G A B C A B C"), 3) == pytest.approx(5 / 13)
    assert ngram_repetition([5, 5, 5, 5, 5], 2) == 0.75
    assert ngram_repetition([1, 2], 3) == 0.0
    assert ngram_repetition([], 1) == 0.0


@pytest.mark.parametrize(
    ("text", "thinks"),
    [
        ("<think>\nso\n</think>\n[A]", True),
        ("so</think>[A]", True),
        ("<think>\n", False),
        ("<think>so</think>", False),
        ("<think></think>[A]", False),
        ("<think>a<think>b</think>c", False),
        ("<think>a</think>b</think>c", False),
        ("[A]", False),
    ],
)
def test_thinking_is_one_closed_block_with_something_in_it_and_after_it(
    text: str, thinks: bool
) -> None:
    assert has_thinking(text) == thinks


def test_eight_characters_earn_the_original_format_reward_and_none_here() -> None:
    text = "<think>\n"

    assert text.startswith("<think>\n")
    assert not has_thinking(text)


def test_tags_follow_the_rules_of_the_peers() -> None:
    whole = "<think>\nSome reasoning\n</think>\n<answer>\nThe answer\n</answer>"

    assert is_think_format("<think>a</think>b") and not is_think_format(" <think>a</think>b")
    assert is_think_answer_format(whole) and is_think_answer_format(f"{whole}\nmore")
    assert not is_think_answer_format(f"{whole}more") and not is_think_answer_format(f"x{whole}")
    assert tag_count(whole) == 1.0 and tag_count(whole + whole) == 0.0 and tag_count("") == 0.0
    assert has_block("<a>1</a>", "a") and not has_block("</a><a>", "a")


SENTENCE = "Let me check this once more. "


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{SENTENCE}{n} " for n in range(50)),
        "".join(f"Step {n}: {SENTENCE}" for n in range(1, 51)),
        "".join(f"{n}. {SENTENCE}\n" for n in range(97, 120)),
        "".join(f"Try {100 - 3 * n}, yes {100 - 3 * n}: {SENTENCE}" for n in range(20)),
        "".join(f"Line 7 of {n}: {SENTENCE}" for n in range(6)),
    ],
)
def test_a_running_number_does_not_hide_a_loop(text: str) -> None:
    assert repeated_fraction(text) > 0.9


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"For n = {n} the square is {n * n} here.\n" for n in range(1, 30)),
        "".join(
            f"For n = {n} the prime is {p} here.\n" for n, p in enumerate((2, 3, 5, 7, 11, 13))
        ),
        "".join(f"For x = {n} the value of f is {2 * n + 1}.\n" for n in range(1, 30)),
        ", ".join(map(str, range(400))),
        "".join(f"{SENTENCE}{n} " for n in range(4)),
        "".join(f"{n} + {n} = {2 * n}\n" for n in range(60)),
    ],
)
def test_numbers_that_tell_something_new_are_no_loop(text: str) -> None:
    assert repeated_fraction(text) == 0.0


def test_a_loop_with_a_running_number_is_measured_in_characters_of_the_text() -> None:
    loop = "".join(f"{SENTENCE}{n} " for n in range(100, 110))
    new = "Quite another thing is told here, word by word, and never twice."
    assert repeated_fraction(loop + new) == pytest.approx(len(loop) / len(loop + new), abs=0.02)


def test_any_signs_may_stand_beside_numbers() -> None:
    assert repeated_fraction("".join(f"\x00 {n} \ud800 ² ٣\n" for n in range(90))) == 0.0
