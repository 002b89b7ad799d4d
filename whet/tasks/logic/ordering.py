"""Ordering puzzles: put things in a row from clues about who is left of whom.

answer JSON text of the list of names from left to right payload the parts of a generated puzzle,
only for reading; the grader needs only the answer
"""

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Literal

from whet.answers.doubt import cut_remarks
from whet.answers.final_answer import decided_text
from whet.answers.sentences import last_line
from whet.answers.withdrawal import is_disowned
from whet.level_bands import level_band
from whet.tasks.answers import strip_text_commands, to_score, write_in_line
from whet.tasks.generated import (
    GeneratedConfig,
    GeneratedTask,
    grade_final_answer,
    read_gold,
    split_of,
)
from whet.tasks.graphs.named_runs import compare_lists_of
from whet.tasks.literals import parse_literal, plain
from whet.tasks.logic.clue_choice import clues_for, draw_arrangement
from whet.tasks.logic.positions import Clue
from whet.tasks.logic.vocabulary import CATEGORIES
from whet.types import Json, Problem, Score, Split, Verdict

_SIZES = ((3, 3), (4, 5), (6, 6), (7, 8), (9, 10))
"""Fewest and most things in each fifth of difficulty."""
_KINDS = (
    ("before", "after", "left", "right", "apart"),
    ("before", "after", "left", "right", "apart"),
    ("before", "after", "before", "after", "left", "apart"),
    ("before", "after", "apart", "beside"),
    ("before", "after", "apart", "beside", "amid"),
)
_HEADING = re.compile(r"\**[^\n:*]{0,60}\bleft to right\b[^\n:*]{0,20}:\**\s*", re.IGNORECASE)
"""A heading such as `Order from left to right:`."""
_NAME = re.compile(r"[^\W_][\w'’-]*(?: [\w'’-]+){0,3}")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_SENTENCE = re.compile(
    r"(?:so|thus|therefore|hence|the|my|this|that|it|I|we)\b.*\b(?:is|are|be|get)\b", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"\w{3}[.!] +[A-Z]")
_MARKED = re.compile(r"</answer>|\\boxed|```")
_NEXT_SENTENCE = re.compile(r"(?<=[a-z])[.!]\s+(?=[A-Z])")
_NUMBER = re.compile("[0-9]+")
_PLACES = re.compile(
    r"(?:^[ \t]*[-*•]?[ \t]*(?:(?:position|place|spot|seat|no\.?) )?[0-9]{1,2}(?:st|nd|rd|th)?[:.)]"
    r"[^\n]{1,60}\n)+"
    r"[^\n]{1,80}\Z",
    re.IGNORECASE | re.MULTILINE,
)
"""Numbered places at the end of a text, one per line."""
_FILLER = (
    r"the|a|is|are|comes?|in|at|on|stands?|sits?|position|place|spot|seat|no|they|that|leaves|us"
    r"|order|must|be|from|left to right|goes?|so|hence|thus|therefore|final|this|gives?|it|answer"
    r"|as follows|reads|left-to-right|correct|sequence|row|line|arranged|placed|people|we|get|have"
)
"""Words that may stand around names without changing their order."""
_PLACE = r"(?<![0-9])[0-9]{1,2}(?:st|nd|rd|th)?(?![0-9a-z])"
_WORDS_FIRST = re.compile(
    rf"(?:\b(?:{_FILLER}|first|leftmost|1st|left(?=:))\b|{_PLACE}|[\s:,.;|()\[\]\"'=-])*+"
)
_BETWEEN = (
    rf"\b(?:{_FILLER}|then|next|and|followed by|second|third|fourth|fifth|first"
    rf"|(?:middle|cent(?:er|re))(?=:))\b|{_PLACE}"
)
_WORDS_BETWEEN = re.compile(rf"(?:{_BETWEEN}|[\s:,.;|()\"'<→–—=-])*+")
_WORDS_FINAL = re.compile(
    rf"(?:{_BETWEEN}|last(?:ly)?|finally|right(?=:)|rightmost|of all|[\s:,.;|()<→–—=-])*"
)
_WORDS_LAST = re.compile(
    r"(?:\b(?:is|comes|are|stands?|last|third|fourth|fifth|rightmost|at the end|from left to right"
    r"|in (?:this|that) order)\b|[\s,.!|)\]\"'*])*+"
)
_RANKS = ("first", "second", "third", "fourth", "fifth", "last")
_RANK = re.compile(rf"\b(?:{'|'.join(_RANKS)})\b")
_MAX_END = 1000
_MAX_LEAD = 200
_BRACKETS = re.compile(r"[()\[\]{}<>](?:[ ,]+[()\[\]{}<>])*")
"""Empty brackets or a list of them."""
_WORDS = {
    "before": "{} is to the left of {}",
    "after": "{} is to the right of {}",
    "left": "{} is immediately to the left of {}",
    "right": "{} is immediately to the right of {}",
    "beside": "{} and {} are next to each other",
    "amid": "{} is somewhere between {} and {}",
}
_ASK = (
    "Put the {plural} in order from left to right. The {plural} are {names}.\n{clues}\n"
    "End with the names in order, from left to right, as a list between answer tags: "
    "<answer>[...]</answer>"
)


class OrderingConfig(GeneratedConfig):
    name: Literal["ordering"] = "ordering"


class Ordering(GeneratedTask):
    """Generated orders of three to ten things, and an exact grader."""

    name = "ordering"
    config: OrderingConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare the order of the answer with the gold one, ignoring case."""
        score = grade_final_answer(problem, text, order_of, _compare, needs="a list of names")
        if score.verdict is Verdict.CORRECT or _MARKED.search(text):
            return score
        gold = read_gold(problem, order_of, "a list of names")
        shown = decided_text(text, same=compare_lists_of(gold))
        named = _read_sentence(shown or "", gold)
        if named is None or (named != gold and score.verdict is Verdict.WRONG):
            return score
        parts, note = _compare(named, gold)
        return to_score(named == gold, parts, ", ".join(named), note)

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        n = rng.randint(*_SIZES[level_band(level)])
        plural = rng.choice(sorted(CATEGORIES))
        names = rng.sample(CATEGORIES[plural], n)
        solution = draw_arrangement(n, 1, rng)
        order = [names[item] for item in solution.items[0]]
        if split not in (None, split_of(self.name, list(order))):
            return None
        clues = clues_for(solution, _KINDS[level_band(level)], rng)
        assert clues is not None, "the clues left of and right of tell any two orders apart"
        items = [name if plural == "people" else f"the {name}" for name in names]
        lines = [f"{n}. {_write_clue(clue, plural, items)}" for n, clue in enumerate(clues, 1)]
        prompt = _ASK.format(plural=plural, names=", ".join(names), clues="\n".join(lines))
        rows: list[Json] = [[clue.kind, *clue.items, clue.number] for clue in clues]
        payload: dict[str, Json] = {"clues": rows, "names": list(names)}
        return self.make_problem(prompt, json.dumps(order), payload, level, core=list(order))


def order_of(text: str) -> list[str] | None:
    """Read names in order: a list in brackets, with commas or arrows, one per line, or words.

    None if it is none of these.
    """
    text = _HEADING.sub("", strip_text_commands(text).replace("**", "").strip(), count=1)
    text = text.strip().removesuffix(".")
    names = _names_in_brackets(text) if text.startswith(("[", "(")) else _names_in_words(text)
    return None if names is None else [plain(name).removeprefix("the ") for name in names]


def _names_in_brackets(text: str) -> list[str] | None:
    if _BRACKETS.fullmatch(text):
        return text.replace(",", " ").split()
    if "," not in text:
        text = f"[{write_in_line(text[1:-1])}]"
    tree = parse_literal(text)
    names = [leaf for leaf in tree if isinstance(leaf, str)] if isinstance(tree, list) else []
    return names if isinstance(tree, list) and len(names) == len(tree) else None


def _names_in_words(text: str) -> list[str] | None:
    if _BRACKETS.fullmatch(text):
        return text.replace(",", " ").split()
    line = write_in_line(text)
    if "\n" in text:
        names = line.split(", ")
        return names if all(map(_NAME.fullmatch, names)) else None
    if _SENTENCE.match(line) or _SENTENCE_END.search(line):
        return None
    if "," in line:
        return _names_in_brackets(f"[{line}]")
    words = line.split()
    return words if len(words) > 1 and all(map(_WORD.fullmatch, words)) else None


def _read_sentence(text: str, names: Sequence[str]) -> list[str] | None:
    """Read the order in which the end of a text names all things, once each and in plain words.

    >>> _read_sentence("First comes the owl, then the crow.", ["crow", "owl"])
    ['owl', 'crow']
    """
    text = cut_remarks(text).replace("**", "")
    block = _PLACES.search(text, max(len(text) - _MAX_END, 0))
    line = last_line(text)
    if line is None or len(line.text) > _MAX_END or is_disowned(line.text[:_MAX_LEAD]):
        return None
    sentence = (block[0] if block else _NEXT_SENTENCE.split(line.text)[-1]).lower()
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    named = re.findall(rf"(?<!\w)(?:{known})(?!\w)", sentence)
    if len(names) < 2 or sorted(named) != sorted(names):
        return None
    *before, last = re.split(rf"(?<!\w)(?:{known})(?!\w)", sentence)
    if not _WORDS_FIRST.fullmatch(before[0]) or not _WORDS_LAST.fullmatch(last):
        return None
    *between, final = before[1:]
    if not all(map(_WORDS_BETWEEN.fullmatch, between)) or not _WORDS_FINAL.fullmatch(final):
        return None
    ranks = [_RANKS.index(word) for word in _RANK.findall(sentence)]
    if ranks != sorted(set(ranks)):
        return None
    numbers = [int(number) for number in _NUMBER.findall("".join(before))]
    return named if numbers in ([], [*range(1, len(names) + 1)]) else None


def _compare(order: list[str], gold: list[str]) -> tuple[dict[str, float], str]:
    if len(order) != len(gold):
        return {"placed": 0.0}, f"{len(order)} names for {len(gold)} places"
    right = sum(name == other for name, other in zip(order, gold, strict=True))
    return {"placed": right / len(gold)}, f"{right} of {len(gold)} places are right"


def _write_clue(clue: Clue, plural: str, names: Sequence[str]) -> str:
    items = [names[item] for item in clue.items]
    if clue.kind == "apart":
        singular = "person" if plural == "people" else plural.removesuffix("s")
        count = f"is 1 {singular}" if clue.number == 1 else f"are {clue.number or 'no'} {plural}"
        return f"There {count} between {items[0]} and {items[1]}"
    sentence = _WORDS[clue.kind].format(*items)
    return sentence[0].upper() + sentence[1:]
