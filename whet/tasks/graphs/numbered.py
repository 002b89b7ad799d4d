"""What GraphWiz and NLGraph share: kinds of questions about numbered graphs, drawn, asked and
judged."""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from whet.errors import ConfigError, DataError
from whet.tasks.graphs.checks import Form, judge
from whet.tasks.graphs.drawn import DrawnTask, GraphConfig, split_of
from whet.tasks.graphs.draws import SPANS, draw
from whet.tasks.graphs.instance import Sizes
from whet.tasks.graphs.kinds import solution
from whet.tasks.graphs.node_lists import final_part
from whet.tasks.graphs.sources import Payload
from whet.tasks.graphs.table import Table
from whet.types import Message, Problem, Score


class NumberedConfig(GraphConfig):
    kinds: tuple[str, ...] = ()
    """Kinds of questions to draw; none named means all."""


class NumberedTask(DrawnTask):
    """Questions of several kinds, each with the form its answer takes."""

    forms: ClassVar[Mapping[str, Form]]
    spans = Sizes(levels=SPANS["wide"], easy=(4, 19), hard=(20, 100))

    def __init__(self, config: NumberedConfig) -> None:
        super().__init__(config)
        unknown = set(config.kinds) - set(self.forms)
        if unknown:
            known = ", ".join(self.forms)
            raise ConfigError(
                f"kinds of {self.name} are {known}; there is no {sorted(unknown)[0]!r}"
            )
        self._kinds = config.kinds or tuple(self.forms)

    def question(self, table: Table) -> str:
        raise NotImplementedError

    def response(self, table: Table, answer: str) -> str:
        """Write an answer as the benchmark's own gold answers are written."""
        raise NotImplementedError

    def draw(self, rng: Random, level: float, size: int) -> Payload | None:
        kind = rng.choice(self._kinds)
        spans = Sizes(
            levels=SPANS.get(kind, SPANS["wide"]), easy=self.spans.easy, hard=self.spans.hard
        )
        payload = draw(rng, kind, spans.at(level))
        has_answer = kind not in ("shortest", "flow") or solution(Table.from_payload(payload))[
            0
        ] not in ("No", "0")
        return payload if has_answer else None

    def made(self, payload: Payload, level: float, id: str) -> Problem:
        table = Table.from_payload(payload)
        answer, nodes = solution(table)
        return Problem(
            id=id,
            task=self.name,
            prompt=(Message(role="user", content=self.question(table)),),
            answer=shortened(self.forms[table.kind], answer),
            payload={**payload, "nodes_searched": nodes},
            level=level,
            split=split_of(id),
            source=self.name,
        )

    def score(self, problem: Problem, text: str) -> Score:
        """State the parts `correct` and `feasible`: 0 where a path, order or pairing breaks the
        rules."""
        question = problem.prompt[-1].content if problem.prompt else ""
        table, form = self._read(problem)
        gold = problem.answer or shortened(form, solution(table)[0])
        return judge(form, table, gold, final_part(text, question)).to_score()

    def solve(self, problem: Problem, seed: int) -> str:
        """Write the answer as the benchmark does; any seed writes the same."""
        table, form = self._read(problem)
        if form in ("yes_no", "shown", "number") and problem.answer:
            return self.response(table, problem.answer)
        return self.response(table, shortened(form, solution(table)[0]))

    def _read(self, problem: Problem) -> tuple[Table, Form]:
        table = Table.from_payload(problem.payload)
        if table.kind not in self.forms:
            known = ", ".join(self.forms)
            raise DataError(
                f"payload.kind of {self.name} should be one of {known}, not {table.kind!r}"
            )
        return table, self.forms[table.kind]


def shortened(form: Form, answer: str) -> str:
    """Leave of a solution what the form asks: no path where yes or a weight is enough.

    >>> shortened("yes_no", "Yes, [1, 0, 2]"), shortened("number", "[0, 1] with a total weight of 5")
    ('Yes', '5')
    """
    if form in ("yes_no", "shown"):
        return answer.split(",", 1)[0]
    return answer.rsplit(" ", 1)[-1] if form == "number" else answer
