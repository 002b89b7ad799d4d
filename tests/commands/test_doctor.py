"""whet doctor: it finds nothing wrong with what is right, and names each of the classic faults when
it is put in."""

import copy
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import Pipeline, whet
from torch import Tensor

from whet.algos import algorithm, losses
from whet.algos.settings import AlgoConfig
from whet.batching.examples import pack
from whet.commands.doctor import PROOFS
from whet.engine.native import NativeEngine
from whet.evals import stats
from whet.models.transformer import PackedAttention, SharedPrefixAttention
from whet.proofs.base import Measurement, Proof, run_proof
from whet.rewards.spec import RewardSpec
from whet.testing.tiny import tiny_policy
from whet.text.chat import ChatFormat
from whet.train import learner, rl_step
from whet.train.learner import LocalLearner
from whet.train.optim import Optimizer
from whet.train.policy import Policy
from whet.types import Group, Tokens

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def faults() -> list[str]:
    """The faults doctor names, the first one first."""
    return [
        row["fault"] for row in json.loads(whet("doctor", "--json").out)["proofs"] if not row["ok"]
    ]


def test_nothing_is_wrong_with_what_is_right() -> None:
    said = whet("doctor")

    assert said.code == 0, said.out
    lines = said.out.splitlines()
    assert [line[:2] for line in lines[:-1]] == ["ok"] * len(PROOFS)
    assert re.fullmatch(r"all 12 proofs hold, \w+ on \w+, \d+\.\d s", lines[-1])


def test_json_says_what_was_measured_and_against_which_limit() -> None:
    said = whet("doctor", "--json")

    report = json.loads(said.out)
    assert (said.code, report["ok"]) == (0, True)
    assert [row["name"] for row in report["proofs"]] == [proof.name for proof in PROOFS]
    assert all(row["gap"] <= row["limit"] and row["fault"] is None for row in report["proofs"])
    assert report["seconds"] < 60


def _divide_by_the_longest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        losses, "token_mean", lambda lengths: [1 / (max(lengths) * len(lengths))] * len(lengths)
    )


def _divide_pair_by_pair(patch: pytest.MonkeyPatch) -> None:
    right = learner.set_loss_weights

    def set_loss_weights(examples: Sequence[Any], rule: losses.LossWeightRule) -> list[Any]:
        return [
            item for at in range(0, len(examples), 2) for item in right(examples[at : at + 2], rule)
        ]

    patch.setattr(learner, "set_loss_weights", set_loss_weights)


def _shift_rewards(patch: pytest.MonkeyPatch) -> None:
    right = RewardSpec.apply

    def apply(self: RewardSpec, groups: Sequence[Group]) -> list[Group]:
        return [
            tuple(
                replace(one, reward=other.reward)
                for one, other in zip(group, group[1:] + group[:1], strict=True)
            )
            for group in right(self, groups)
        ]

    patch.setattr(RewardSpec, "apply", apply)


def _shift_advantages(patch: pytest.MonkeyPatch) -> None:
    right = rl_step.assign_advantages

    def shifted(*args: Any, **settings: Any) -> Any:
        examples, state = right(*args, **settings)
        around = [*examples[1:], *examples[:1]]
        return [
            replace(one, advantage=two.advantage) for one, two in zip(examples, around, strict=True)
        ], state

    patch.setattr(rl_step, "assign_advantages", shifted)


def _keep_stale_weights(patch: pytest.MonkeyPatch) -> None:
    right = Policy.__init__

    def init(self: Policy, *args: Any, **settings: Any) -> None:
        right(self, *args, **settings)
        self.engine.model = copy.deepcopy(self.model)

    def stamp(self: NativeEngine, named: object, version: int) -> None:
        self.version = version

    patch.setattr(Policy, "__init__", init)
    patch.setattr(NativeEngine, "load_weights", stamp)


def _keep_the_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Policy, "publish", lambda self, version: None)


def _see_neighbours(patch: pytest.MonkeyPatch) -> None:
    right = PackedAttention.__init__

    def init(
        self: PackedAttention,
        lengths_S: Tensor,
        longest: int | None = None,
        tokens: int | None = None,
    ) -> None:
        total = int(lengths_S.sum())
        right(self, lengths_S.new_tensor([total]), total, total)

    patch.setattr(PackedAttention, "__init__", init)
    laid_out = SharedPrefixAttention.__init__

    def one_line(self: SharedPrefixAttention, node_SC: Tensor, cell_U: Tensor) -> None:
        laid_out(self, node_SC.view(1, -1), cell_U)

    patch.setattr(SharedPrefixAttention, "__init__", one_line)


def _add_the_kl_twice(patch: pytest.MonkeyPatch) -> None:
    right = algorithm.build_algorithm

    def build(cfg: AlgoConfig, *, max_tokens: int) -> algorithm.Algorithm:
        return replace(
            right(cfg, max_tokens=max_tokens), kl_in_reward=cfg.kl_coef, kl_estimator="k1"
        )

    patch.setattr(algorithm, "build_algorithm", build)


def _double_the_kl(patch: pytest.MonkeyPatch) -> None:
    right = losses.kl
    patch.setattr(losses, "kl", lambda *args: 2 * right(*args))


def _bias_pass_at_k(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stats, "pass_at_k", lambda n, correct, k: 1 - (1 - correct / n) ** k)


def _cut_the_stop_token(patch: pytest.MonkeyPatch) -> None:
    def cut_before_stop(self: ChatFormat, tokens: Tokens) -> Tokens:
        return tokens[: np.flatnonzero(np.isin(tokens, list(self.stop_tokens)))[0]]

    patch.setattr(ChatFormat, "_cut_at_stop", cut_before_stop)


def _overlook_the_end_of_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ChatFormat, "_find_turn_end", lambda self: frozenset())


def _drop_the_last_micro_batch(patch: pytest.MonkeyPatch) -> None:
    def shorter(*args: Any, **settings: Any) -> Any:
        found = pack(*args, **settings)
        return found[:-1] if len(found) > 1 else found

    patch.setattr(learner, "pack", shorter)


def _average_over_micro_batches(patch: pytest.MonkeyPatch) -> None:
    right = LocalLearner.forward_backward

    def forward_backward(self: LocalLearner, batch: Any, objective: Any) -> Any:
        return right(
            self, replace(batch, loss_weight_M=batch.loss_weight_M / len(batch.label_M)), objective
        )

    patch.setattr(LocalLearner, "forward_backward", forward_backward)


def _forget_the_moments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Optimizer, "load", lambda self, tensors: None)


def _skew_the_ratio(patch: pytest.MonkeyPatch) -> None:
    right = losses.token_ratio
    patch.setattr(losses, "token_ratio", lambda terms: right(terms) + 1e-6)


SPLIT = "gradient depends on the split"
EIGHT: dict[str, tuple[Break, list[str]]] = {
    "wrong divisor": (_divide_by_the_longest, ["wrong divisor"]),
    "shifted rewards": (_shift_rewards, ["shifted rewards"]),
    "stale weights": (_keep_stale_weights, ["stale weights", "resumed run diverges"]),
    "cross-attending packed sequences": (
        _see_neighbours,
        ["packed sequences see each other", SPLIT, "engine and learner disagree", "stale weights"],
    ),
    "double-applied KL": (_add_the_kl_twice, ["KL applied wrongly or twice"]),
    "biased pass@k": (_bias_pass_at_k, ["biased pass@k"]),
    "template that drops a stop token": (_cut_the_stop_token, ["dropped stop token"]),
    "dropped last micro-batch": (
        _drop_the_last_micro_batch,
        ["dropped micro-batch", SPLIT, "first ratio is not 1"],
    ),
}
OTHERS: dict[str, tuple[Break, str]] = {
    "a divisor of every pair": (_divide_pair_by_pair, "wrong divisor"),
    "shifted advantages": (_shift_advantages, "shifted rewards"),
    "a version that stays": (_keep_the_version, "stale weights"),
    "a doubled estimate": (_double_the_kl, "KL applied wrongly or twice"),
    "an overlooked end of turn": (_overlook_the_end_of_turn, "dropped stop token"),
    "means over micro-batches": (_average_over_micro_batches, SPLIT),
    "forgotten moments": (_forget_the_moments, "resumed run diverges"),
    "a ratio that begins elsewhere": (_skew_the_ratio, "first ratio is not 1"),
}


@pytest.mark.parametrize("name", EIGHT)
def test_each_of_the_eight_faults_is_named_and_no_other_that_does_not_follow(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it, expected = EIGHT[name]
    break_it(monkeypatch)

    assert faults() == expected


@pytest.mark.parametrize("name", OTHERS)
def test_other_forms_of_the_faults_are_named_first(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it, expected = OTHERS[name]
    break_it(monkeypatch)

    assert next(proof.fault for proof in PROOFS if not run_proof(proof).ok) == expected


def test_a_fault_is_shown_with_what_to_do_and_ends_with_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _bias_pass_at_k(monkeypatch)

    said = whet("doctor")

    assert said.code == 1
    shown = said.out.splitlines()
    at = next(index for index, line in enumerate(shown) if line.startswith("FAULT"))
    assert re.match(
        r"FAULT +pass@k +off by \d\.\de-\d\d from enumeration.*\(limit 1e-09\)$", shown[at]
    )
    assert (
        shown[at + 1].strip()
        == "biased pass@k: use 1 - C(n - c, k) / C(n, k) in whet/evals/stats.py"
    )
    assert shown[-1].startswith("1 of 12 proofs fail") and shown[-1].endswith(
        "begin with the first: biased pass@k"
    )


def test_a_proof_that_cannot_be_carried_through_has_failed() -> None:
    def measure() -> Measurement:
        raise ZeroDivisionError("by nothing\nat all")

    found = run_proof(Proof(name="n", claim="c", fault="f", remedy="r", measure=measure))

    assert not found.ok
    assert found.text == "ZeroDivisionError: by nothing"
    assert found.to_json()["gap"] is None and found.to_json()["fault"] == "f"


@pytest.mark.parametrize("gap", [float("nan"), float("inf"), 1.1])
def test_what_is_no_number_or_beyond_the_limit_is_not_ok(gap: float) -> None:
    assert not Measurement(gap=gap, limit=1.0, text="").ok
    assert Measurement(gap=1.0, limit=1.0, text="").ok


def test_a_model_of_the_users_is_put_to_two_proofs_more(tiny: Pipeline) -> None:
    said = whet("doctor", tiny.folder, "--json")

    *_, template, engine = json.loads(said.out)["proofs"]
    assert said.code == 0, said.out
    assert (template["name"], engine["name"]) == ("your template", "your engine")
    assert template["measured"] == "responses end with one of '<eos>', and keep it"
    assert engine["limit"] == 1e-4


def test_a_template_of_the_users_that_drops_the_stop_token_is_named(tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.save(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    settings["chat_template"] = settings["chat_template"].replace(
        "message.content + eos_token", "message.content"
    )
    file.write_text(json.dumps(settings))

    said = whet("doctor", tmp_path)

    assert said.code == 1
    assert "the template writes no stop token after a response" in said.out
    assert said.out.splitlines()[-1].endswith("begin with the first: dropped stop token")


def test_a_model_that_is_not_there_is_one_sentence() -> None:
    said = whet("doctor", "nowhere at all")

    assert said.code == 2
    assert "nowhere at all" in said.last


def test_the_document_lists_the_proofs_with_their_faults() -> None:
    text = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)

    assert rows == [(proof.name, proof.claim, proof.fault) for proof in PROOFS]
    assert "inject sixteen faults" in " ".join(text.split()) and len(EIGHT) + len(OTHERS) == 16
