import json
from collections import defaultdict
from pathlib import Path

from small import Pipeline, whet, write

from whet.evals.stats import Estimate
from whet.evals.summary import F1, EvalSummary, summarise
from whet.recipes.evaluate import GREEDY, SAMPLED
from whet.recipes.evaluate import _describe_results as sentence
from whet.store.run import RunStore
from whet.types import Group, Rollout


def groups(rollouts: list[Rollout]) -> list[Group]:
    found: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        found[rollout.group_id].append(rollout)
    return [tuple(group) for group in found.values()]


def test_every_problem_is_answered_as_often_as_asked_and_once_greedily(tiny: Pipeline) -> None:
    run = RunStore.view(tiny.folder / "04-sft_eval")
    assert run.rollout_steps("eval") == [SAMPLED, GREEDY]
    for number, samples in ((SAMPLED, 2), (GREEDY, 1)):
        found = groups(run.rollouts("eval", number))
        assert len(found) == 547
        assert {len(group) for group in found} == {samples}
        assert {rollout.problem.split for group in found for rollout in group} == {"test"}


def test_stored_rollouts_summarise_to_the_stored_numbers(tiny: Pipeline) -> None:
    for stage in ("04-sft_eval", "06-rl_eval"):
        run = RunStore.view(tiny.folder / stage)
        for number, ks in ((SAMPLED, [1, 2]), (GREEDY, [1])):
            again = summarise(groups(run.rollouts("eval", number)), ks=ks)
            assert json.loads(json.dumps(again.to_json())) == run.evals()[number]


def test_unsolvable_hands_stand_apart(tiny: Pipeline) -> None:
    summary = EvalSummary.from_json(RunStore.view(tiny.folder / "04-sft_eval").evals()[SAMPLED])
    assert summary.num_problems == summary.pass_at[1].count == 409
    assert summary.unsolvable is not None
    assert summary.unsolvable.count == 138


def test_greedy_answers_do_not_depend_on_the_seed_and_sampled_ones_do(
    tiny: Pipeline, tmp_path: Path
) -> None:
    text = f'kind = "eval"\ntask.name = "game24"\nsplit = "dev"\nsamples = 1\nmodel = {{ path = "{tiny.folder}" }}\n'
    file = write(tmp_path / "eval.toml", text)
    for seed in (1, 2):
        assert whet("eval", file, "--out", tmp_path / str(seed), "--seed", seed).code == 0
    one, two = (RunStore.view(tmp_path / seed) for seed in ("1", "2"))

    def texts(run: RunStore, number: int) -> list[str]:
        return [rollout.text for rollout in run.rollouts("eval", number)]

    assert texts(one, GREEDY) == texts(two, GREEDY)
    assert texts(one, SAMPLED) != texts(two, SAMPLED)


def test_the_summary_of_the_run_holds_both_evaluations(tiny: Pipeline) -> None:
    run = RunStore.view(tiny.folder / "06-rl_eval")
    assert run.summary() == {"sampled": run.evals()[SAMPLED], "greedy": run.evals()[GREEDY]}


def test_the_f1_of_a_subset_is_printed_with_the_pass_rate() -> None:
    share = Estimate(mean=0.5, low=0.4, high=0.6, count=2)
    summary = EvalSummary(
        pass_at={1: share}, by_level={}, unsolvable=None, tokens=share, unfinished=share,
        no_answer=share, num_problems=2, num_rollouts=2, num_unscored=0,
        f1={"gsm8k": F1(value=0.375, halves={})},
    )  # fmt: skip

    assert sentence(summary, summary).endswith("; F1 of gsm8k 37.5 % sampled, 37.5 % greedy")
