"""Graph implication: everyone who is A is B, ...; name the next step from a start to a goal.

answer the word of the next step payload {"edges": [[word, word], ...], "start": word, "goal":
word}, for reading only

The graph is a few chains of equal length from the start, one of which ends at the goal, plus
distractors: words that nothing implies and that imply two words of chains, and words that two words
of chains imply and that imply nothing. They are drawn for all chains alike, so that the right chain
can only be found by following it from end to end. `bench/graph_shortcuts.py` measures the scores of
shortcuts.
"""

import re
from collections.abc import Sequence
from random import Random
from typing import Literal

from whet.answers.doubt import is_doubtful
from whet.answers.final_answer import visible_text
from whet.answers.withdrawal import is_disowned
from whet.level_bands import level_band
from whet.tasks.generated import GeneratedConfig, GeneratedTask, grade_final_answer
from whet.tasks.logic.vocabulary import PEOPLE, invent_adjectives
from whet.types import Json, Problem, Score, Split

_Edge = tuple[str, str]

_SHAPES: tuple[tuple[int, int, int], ...] = (
    (2, 2, 1),
    (3, 2, 3),
    (5, 3, 8),
    (9, 3, 16),
    (16, 4, 32),
)
"""For each fifth of difficulty: the chain length, the number of chains, the number of
distractors."""
_EVERYONE = re.compile(r"\b(?:(?:every|any)(?:one|body) who is|all who are)\b", re.IGNORECASE)
"""Words of an implication in the question: `Everyone who is`."""
_POINTED_AT = re.compile(
    r"(?:[←⟵⇐]|<[-=]+)[ *]*(?:this is )?(?:the |our )?(?:next step|answer)[ *.]*\Z", re.IGNORECASE
)
_OF_CHAIN = re.compile(r"[\W\d]*+(?:\w++ is )?+\W*+\w*+\W*+")
"""A line of a chain of implications: `⇒ Ada is vex`."""
_MARKS = ("</answer>", "boxed", "```")
_ASK = (
    "{facts} {name} is {start}. We want to show, one implication at a time, that {name} is {goal}. "
    "What is the next step: what else is {name}, on the way to {goal}? "
    "End with that one word between answer tags: <answer>word</answer>"
)


class GraphLogicConfig(GeneratedConfig):
    name: Literal["graph_logic"] = "graph_logic"


class GraphLogic(GeneratedTask):
    """Generated graphs with exactly one right next step, proved by search, and an exact grader."""

    name = "graph_logic"
    config: GraphLogicConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare one word, ignoring case. Parts: `correct` 0 or 1."""
        text = _EVERYONE.sub("each", _keep_pointed_at(text))
        return grade_final_answer(
            problem, text, word_of, _compare, needs="one word", may_be_stated=True
        )

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        ahead, num_chains, num_more = _SHAPES[level_band(level)]
        words = invent_adjectives(rng, 1 + ahead * num_chains + num_more)
        start = words[0]
        chains = [words[1 + i * ahead :][:ahead] for i in range(num_chains)]
        goal = chains[0][-1]
        edges = _draw_edges(start, chains, words[-num_more:], rng)
        steps = next_steps(edges, start, goal)
        assert steps == [chains[0][0]], "only the first chain reaches the goal"
        name = rng.choice(PEOPLE)
        facts = " ".join(f"Everyone who is {a} is {b}." for a, b in edges)
        prompt = _ASK.format(facts=facts, name=name, start=start, goal=goal)
        rows: list[Json] = [[a, b] for a, b in edges]
        payload: dict[str, Json] = {"edges": rows, "start": start, "goal": goal}
        return self.make_problem(prompt, steps[0], payload, level, core=[start, goal])


def word_of(text: str) -> str | None:
    """Read one word, alone or as `Ada is blomish`, with or without a full stop; None otherwise."""
    words = text.strip("\"'`*").removesuffix(".").split()
    if len(words) == 3 and words[1] == "is":
        words = words[2:]
    word = words[0].strip("\"'`*").casefold() if len(words) == 1 else ""
    return word if word.isalpha() and len(word) <= 40 else None


def _keep_pointed_at(text: str) -> str:
    """Rewrite the only line of a chain that an arrow calls the next step as the answer.

    >>> _keep_pointed_at("Ada is blip\\n⇒ Ada is **vex** ← next step\\n⇒ Ada is zorp")
    'Ada is blip\\nAnswer: Ada is **vex**'
    """
    lines = text.rstrip().split("\n")
    places = [place for place, line in enumerate(lines) if _POINTED_AT.search(line)]
    is_marked = any(map((visible_text(text) or "").__contains__, _MARKS))
    if len(places) != 1 or is_marked or "think>" in "".join(lines[places[0] :]):
        return text
    *above, line = lines[: places[0] + 1]
    lead = next((one for one in above[::-1] if not _OF_CHAIN.fullmatch(one)), "")
    is_led_away = lead.endswith(":") and (is_disowned(lead) or is_doubtful(lead))
    if is_led_away or not all(map(_OF_CHAIN.fullmatch, lines[places[0] + 1 :])):
        return text
    own = _POINTED_AT.sub("", line).strip().lstrip(" -=>⟹⇒→.)0123456789")
    return "\n".join([*above, f"Answer: {own}"])


def next_steps(edges: Sequence[_Edge], start: str, goal: str) -> list[str]:
    """List the words that follow from the start in one step and lead to the goal."""
    back: dict[str, list[str]] = {}
    for a, b in edges:
        back.setdefault(b, []).append(a)
    reaching = {goal}
    fringe = [goal]
    while fringe:
        for word in back.get(fringe.pop(), ()):
            if word not in reaching:
                reaching.add(word)
                fringe.append(word)
    return [b for a, b in edges if a == start and b in reaching]


def _compare(word: str, gold: str) -> tuple[dict[str, float], str]:
    return {}, "the next step" if word == gold else f"the next step is not {word}"[:100]


def _draw_edges(
    start: str, chains: Sequence[Sequence[str]], strays: Sequence[str], rng: Random
) -> list[_Edge]:
    """Build the chains, and connect each stray word to two of their words, all from it or all to
    it.

    No path passes through a stray word, so no chain reaches another, and one step is right. Edges
    are equally likely for all chains: only the goal distinguishes them.
    """
    edges = {(a, b) for chain in chains for a, b in zip((start, *chain), chain, strict=False)}
    for stray in strays:
        is_source = rng.random() < 0.5
        for _ in range(2):
            word = rng.choice(rng.choice(chains))
            edges.add((stray, word) if is_source else (word, stray))
    shuffled = sorted(edges)
    rng.shuffle(shuffled)
    return shuffled
