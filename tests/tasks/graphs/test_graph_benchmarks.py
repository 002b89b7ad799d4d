"""GraphArena, GraphWiz and NLGraph: gold answers, labelled responses, and graphs read out of
prompts."""

import json
from functools import cache
from pathlib import Path

import pytest
from graph_cases import asked, task

from whet.data.importers.graphs import GRAPH_KINDS, graph_in
from whet.tasks.graphs.numbered import BENCHMARKS
from whet.types import Message, Problem, Verdict

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "graphwiz.jsonl").exists(), reason="the benchmark files are not beside us"
)


@cache
def rows(name):
    with (DATA / f"{name}.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def named(row):
    return "connected" if row["task"] == "Component" else row["task"].lower()


@cache
def arena():
    problems = {}
    for row in rows("grapharena_problems"):
        best = ", ".join(map(str, row["one_optimal_answer"]))
        gold = best if row["task"] == "MCS" else f"[{best}]"
        prompt = Message(role="user", content=row["prompt"] or row["statement"])
        problems[row["id"]] = Problem(
            id=f"{named(row)}/0",
            task=named(row),
            prompt=(prompt,),
            answer=gold,
            payload={**row["graph"], "optimum": row["optimal_value"]},
            level=None,
            split="test",
            source="grapharena",
            source_id=row["id"],
        )
    return problems


@needs_data
def test_our_solvers_find_the_optima_of_graph_arena():
    for row in rows("grapharena_problems"):
        assert task(named(row)).best(row["graph"]).value == row["optimal_value"], row["id"]


@needs_data
def test_graph_arena_gold_is_right_and_the_next_gold_is_not():
    problems = list(arena().values())
    for problem, other in zip(problems, problems[1:] + problems[:1], strict=True):
        grader = task(problem.task)
        assert grader.score(problem, problem.answer).verdict == Verdict.CORRECT
        assert grader.score(problem, other.answer).verdict != Verdict.CORRECT
        assert grader.score(problem, problem.prompt[0].content).verdict != Verdict.CORRECT
    for row in rows("grapharena_problems"):
        if row["upstream_answer"]:
            problem = arena()[row["id"]]
            assert (
                task(problem.task).score(problem, row["upstream_answer"]).verdict == Verdict.CORRECT
            )


@needs_data
def test_labelled_responses_are_graded_as_labelled():
    for row in rows("grapharena_responses"):
        score = task(named(row)).score(arena()[row["problem_id"]], row["response"])
        if score.verdict == Verdict.WRONG:
            label = "suboptimal" if score.parts["feasible"] else "infeasible"
        else:
            label = {Verdict.CORRECT: "optimal", Verdict.NO_ANSWER: "missing"}[score.verdict]
        assert label == row["label"], row
        assert score.parts["value"] == (-1 if row["value"] is None else row["value"]), row


def gold_of(row):
    """GraphWiz's two demonstrations of an order say `valid order` where the order itself is in
    `answer`."""
    checked = row.get("checked_answer", row["answer"])
    return row["answer"] if checked == "valid order" else checked


@needs_data
@pytest.mark.parametrize(("name", "text"), [("graphwiz", "input_prompt"), ("nlgraph", "question")])
def test_gold_is_right_the_next_gold_is_not_and_our_own_solution_agrees(name, text):
    grader = task(name)
    problems = []
    for row in rows(name):
        prompt = (Message(role="user", content=row[text]),)
        problem = asked(name, graph_in(GRAPH_KINDS[row["task"]], row[text]), gold_of(row))
        problems.append(
            Problem(**{**problem_fields(problem), "prompt": prompt, "source_id": row["id"]})
        )
    for problem, other in zip(problems, problems[1:] + problems[:1], strict=True):
        unanswered = Problem(**{**problem_fields(problem), "answer": None})
        assert grader.score(problem, problem.answer).verdict == Verdict.CORRECT, problem.source_id
        assert grader.score(problem, grader.solve(unanswered, 0)).verdict == Verdict.CORRECT, (
            problem.source_id
        )
        assert grader.score(unanswered, problem.answer).verdict == Verdict.CORRECT, (
            problem.source_id
        )
        assert grader.score(problem, problem.prompt[0].content).verdict == Verdict.NO_ANSWER
        if other.answer.lower() != problem.answer.lower():
            assert grader.score(problem, other.answer).verdict != Verdict.CORRECT, problem.source_id


def problem_fields(problem):
    return {name: getattr(problem, name) for name in Problem.__dataclass_fields__}


@needs_data
def test_graph_wiz_rationales_are_read_to_their_end():
    for row in rows("graphwiz"):
        if row["rationale"]:
            problem = asked(
                "graphwiz", graph_in(GRAPH_KINDS[row["task"]], row["input_prompt"]), gold_of(row)
            )
            text = f"{row['rationale']}\n{row['answer']}"
            assert task("graphwiz").score(problem, text).verdict == Verdict.CORRECT, row["id"]


@pytest.mark.parametrize("kind", BENCHMARKS["graphwiz"].kinds)
def test_our_graph_wiz_questions_say_the_whole_graph(kind):
    problem = task("graphwiz", kinds=(kind,)).generate(5, 0.1)
    text = (
        problem.prompt[0].content.replace("(i->j)", "").replace("nodes 0 to", "numbered from 0 to")
    )
    read = graph_in(kind, text.replace("nodes a to", "numbered from a to"))

    assert read == {key: problem.payload[key] for key in read}
