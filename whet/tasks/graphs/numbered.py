"""GraphWiz's and NLGraph's questions about numbered graphs: drawn, asked and graded.

GraphWiz has nine kinds of questions, whose answers follow `###`: yes or no, a number, or an order
of the nodes. NLGraph has eight: yes or no, a number, or something to construct, such as a path,
pairs or embeddings. Its names `shortest_path` and `GNN` are `shortest` and `gnn` here. Constructed
answers are checked against the graph, so that every right answer counts.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Literal, NamedTuple

from whet.errors import ConfigError, DataError
from whet.tasks.graphs.instance import Sizes
from whet.tasks.graphs.node_lists import final_part, find_other_choice
from whet.tasks.graphs.numbered_answers import AnswerForm, compare_with_gold
from whet.tasks.graphs.questions import SPANS, GraphQuestion, draw_question, solve_question
from whet.tasks.graphs.sources import Payload
from whet.tasks.graphs.task import DrawnConfig, DrawnTask
from whet.types import Problem, Score

_WIDE = Sizes(levels=SPANS["wide"], easy=(4, 19), hard=(20, 100))


class NumberedConfig(DrawnConfig):
    name: Literal["graphwiz", "nlgraph"]
    kinds: tuple[str, ...] = ()
    """Kinds of questions to draw; an empty list means all."""


class NumberedKind(NamedTuple):
    form: AnswerForm
    question: str


class GraphBenchmark(NamedTuple):
    """Its kinds, how it asks a question, and the form of gold answers that do not follow `###`.

    In these forms, `{bare}` is the answer without brackets, and `{article}` is `a` for a yes, else
    `no`.
    """

    kinds: Mapping[str, NumberedKind]
    ask: Callable[[GraphQuestion], str]
    answers: Mapping[str, str]


class NumberedTask(DrawnTask):
    """The questions of one benchmark."""

    has_one_answer = False
    config: NumberedConfig
    sizes = _WIDE

    def __init__(self, config: NumberedConfig) -> None:
        self.config = config
        self.name = config.name
        self._kinds, self._ask, self._answers = BENCHMARKS[config.name]
        for kind in sorted(set(config.kinds) - set(self._kinds)):
            known = ", ".join(self._kinds)
            raise ConfigError(f"kinds of {self.name} are {known}; there is no {kind!r}")

    def score(self, problem: Problem, text: str) -> Score:
        """Grade the answer. Parts: `correct`, and `feasible`, 0 if the answer breaks the rules."""
        prompt = problem.prompt[-1].content if problem.prompt else ""
        question, form = self._parse(problem)
        gold = problem.answer or shorten_solution(form, solve_question(question)[0])
        shown = final_part(text, prompt)
        judgement = compare_with_gold(form, question, gold, shown)
        other = find_other_choice(shown)
        if other is not None and judgement.is_right:  # all of several lists must be right
            judgement = compare_with_gold(form, question, gold, other)
        return judgement.to_score()

    def solve(self, problem: Problem, seed: int) -> str:
        """Write the answer as the benchmark does, the same for every seed."""
        question, form = self._parse(problem)
        answer = problem.answer if form in ("yes_no", "shown", "number") else None
        answer = answer or shorten_solution(form, solve_question(question)[0])
        bare = answer.replace("[", "").replace("]", "")
        if form == "tour" and answer != "No":
            return f"Yes. The path can be: {bare.removeprefix('Yes, ')}"
        article = "a" if answer == "Yes" else "no"
        template = self._answers.get(question.kind, "### {answer}")
        return template.format(answer=answer, bare=bare, article=article)

    def draw(self, rng: Random, level: float, size: int) -> Payload | None:
        """Draw a kind and a size for it; graphs without a path or flow are drawn again."""
        kind = rng.choice(self.config.kinds or tuple(self._kinds))
        spans = Sizes(levels=SPANS.get(kind, SPANS["wide"]), easy=_WIDE.easy, hard=_WIDE.hard)
        payload = draw_question(rng, kind, spans.at(level))
        if kind not in ("shortest", "flow"):
            return payload
        answer, _ = solve_question(GraphQuestion.from_payload(payload))
        return None if answer in ("No", "0") else payload

    def answer(self, payload: Payload) -> tuple[str, str, Payload]:
        question = GraphQuestion.from_payload(payload)
        answer, visited = solve_question(question)
        answer = shorten_solution(self._kinds[question.kind].form, answer)
        return self._ask(question), answer, {"nodes_searched": visited}

    def _parse(self, problem: Problem) -> tuple[GraphQuestion, AnswerForm]:
        question = GraphQuestion.from_payload(problem.payload)
        if question.kind not in self._kinds:
            known = f"one of {', '.join(self._kinds)}"
            raise DataError(f"payload.kind of {self.name} should be {known}, not {question.kind!r}")
        return question, self._kinds[question.kind].form


def shorten_solution(form: AnswerForm, answer: str) -> str:
    """Reduce a solution to the form asked for: no path if a yes or a weight is enough.

    >>> shorten_solution("yes_no", "Yes, [1, 0, 2]")
    'Yes'
    >>> shorten_solution("number", "[0, 1] with a total weight of 5")
    '5'
    """
    if form in ("yes_no", "shown"):
        return answer.split(",", 1)[0]
    return answer.rsplit(" ", 1)[-1] if form == "number" else answer


_GRAPHWIZ = {
    "connectivity": NumberedKind(
        "yes_no", "Can one get from node {0} to node {1}? Answer Yes or No."
    ),
    "cycle": NumberedKind("yes_no", "Does the graph have a cycle? Answer Yes or No."),
    "bipartite": NumberedKind(
        "yes_no", "Leave directions aside. Is the graph bipartite? Answer Yes or No."
    ),
    "hamilton": NumberedKind(
        "yes_no", "Does some path visit every node exactly once? Answer Yes or No."
    ),
    "substructure": NumberedKind(
        "yes_no",
        "Can different nodes of G stand for the letters so that all edges of the pattern are "
        "there? Answer Yes or No.",
    ),
    "shortest": NumberedKind(
        "number", "What is the weight of the lightest path between node {0} and node {1}?"
    ),
    "flow": NumberedKind("number", "What is the maximum flow from node {0} to node {1}?"),
    "triplet": NumberedKind(
        "number",
        "Of all three nodes that are joined to each other, what is the largest sum of weights? If "
        "there are no such three, it is 0.",
    ),
    "topology": NumberedKind(
        "order", "Give an order of all nodes in which every edge leads forward."
    ),
}
_GRAPHWIZ_EXAMPLES = {
    "yes_no": "(Yes or No)",
    "number": "(number)",
    "order": "[first node, second node, ...]",
}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _ask_graphwiz(question: GraphQuestion) -> str:
    form, sentence = _GRAPHWIZ[question.kind]
    example = _GRAPHWIZ_EXAMPLES[form]
    closing = f"End with a line that has ### and the answer, as in `### {example}`."
    return f"{_write_graphwiz_graph(question)}\n{sentence.format(*question.pair)}\n{closing}"


def _write_graphwiz_graph(question: GraphQuestion) -> str:
    edge = "({}, {})"
    meaning = "(i, j) is an edge between i and j"
    if question.kind in ("bipartite", "flow", "substructure", "topology"):
        edge = "({}->{})"
        meaning = "(i->j) is an edge from i to j"
    if question.kind in ("shortest", "flow"):
        edge = edge.replace(")", ", {})")
        value = "is its weight" if question.kind == "shortest" else "its capacity"
        meaning += f", and the last number {value}"
    edges = " ".join(edge.format(*numbers) for numbers in question.edges)
    text = f"Graph G has the nodes 0 to {question.n - 1}; {meaning}.\nEdges: {edges}."
    if question.kind == "triplet":
        weights = " ".join(f"[{node}, {number}]" for node, number in enumerate(question.weights))
        text += f"\nWeights of the nodes, [node, weight]: {weights}."
    if question.kind == "substructure":
        pattern = " ".join(f"({_LETTERS[a]}->{_LETTERS[b]})" for a, b in question.pattern)
        last = _LETTERS[question.pattern_n - 1]
        text += f"\nA pattern has the nodes a to {last}; its edges: {pattern}."
    return text


_NLGRAPH = {
    "connectivity": NumberedKind(
        "shown", "Is there a path between node {0} and node {1}? Say yes or no."
    ),
    "cycle": NumberedKind("shown", "Is there a cycle? Say yes or no."),
    "topology": NumberedKind(
        "order",
        "Visit all nodes so that each comes after those it depends on. Write the order as numbers "
        "with commas.",
    ),
    "shortest": NumberedKind(
        "path",
        "Which path from node {0} to node {1} has the least weight? Write its nodes as numbers "
        "with commas.",
    ),
    "flow": NumberedKind("number", "What is the maximum flow from node {0} to node {1}?"),
    "matching": NumberedKind(
        "pairs",
        "Give jobs to as many applicants as possible: to each at most one job they want, and no "
        "job twice. Write one line for each who gets one, such as "
        "`applicant (number): job (number)`.",
    ),
    "hamilton": NumberedKind(
        "tour",
        "Is there a path that visits every node exactly once? If so, write its nodes as numbers "
        "with commas; if not, say no.",
    ),
    "gnn": NumberedKind(
        "rows",
        "In a layer every node's embedding becomes the sum of its neighbours' embeddings. What are "
        "they after {2} layers? Write one line a node, such as "
        "`node (number): [(number), (number)]`.",
    ),
}
_NLGRAPH_ANSWERS = {
    "connectivity": "The answer is {answer}.",
    "cycle": "{answer}, there is {article} cycle in this graph.",
    "topology": "The solution is: {bare}.",
    "shortest": "The lightest path is {bare}",
    "flow": "The maximum flow is {answer}.",
    "matching": "{answer}",
    "hamilton": "{answer}",
    "gnn": "The answer is:\n{answer}",
}


def _ask_nlgraph(question: GraphQuestion) -> str:
    sentence = _NLGRAPH[question.kind].question.format(*question.pair, question.layers)
    return f"{_write_nlgraph_graph(question)}\nQ: {sentence}"


def _write_nlgraph_graph(question: GraphQuestion) -> str:
    if question.kind == "matching":
        wishes = [f"Applicant {a} wants job {b}." for a, b in question.pairs]
        numbers = f"0 to {question.n - 1}, jobs 0 to {question.jobs - 1}"
        return "\n".join([f"Applicants have the numbers {numbers}.", *wishes])
    lines = [f"A graph has the nodes 0 to {question.n - 1}."]
    if question.kind == "topology":
        lines += [f"Node {b} depends on node {a}." for a, b in question.pairs]
    elif question.kind == "shortest":
        lines += [
            f"Edge: {a} and {b}, weight {weight}." for a, b, weight in question.weighted_edges
        ]
    elif question.kind == "flow":
        lines += [f"Edge: {a} to {b}, capacity {most}." for a, b, most in question.weighted_edges]
    else:
        lines.append("Edges, both ways: " + " ".join(f"({a},{b})" for a, b in question.pairs))
    if question.kind == "gnn":
        lines += [f"node {k}: [{x},{y}]" for k, (x, y) in enumerate(question.embeddings)]
    return "\n".join(lines)


BENCHMARKS = {
    "graphwiz": GraphBenchmark(_GRAPHWIZ, _ask_graphwiz, {}),
    "nlgraph": GraphBenchmark(_NLGRAPH, _ask_nlgraph, _NLGRAPH_ANSWERS),
}
