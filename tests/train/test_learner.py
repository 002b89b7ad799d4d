"""The learner: one gradient for any split, equal to the textbook's, from the tokens it should see
and no others."""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from whet.algos.losses import (
    LossInputs,
    LossWeightRule,
    constant,
    sequence_mean,
    sequence_sum,
    token_mean,
    token_ratio,
)
from whet.algos.objectives import (
    LogprobObjective,
    Objective,
    TokenLoss,
    policy_objective,
    sft_objective,
)
from whet.algos.settings import AlgoConfig
from whet.batching.examples import Example, pack, to_batch
from whet.models.transformer import PackedAttention, Transformer
from whet.testing.fakes import example
from whet.testing.rounding import logprob_bound
from whet.testing.tiny import tiny_model
from whet.train.learner import (
    LocalLearner,
    compute_logprobs_locally,
    forward_logprobs,
    set_loss_weights,
    split_micro_batches,
)
from whet.train.settings import TrainConfig
from whet.types import TokenFields

CPU = torch.device("cpu")
SHAPES = [(2, 1), (9, 3), (30, 10), (17, 16), (9, 1), (24, 4), (5, 2), (40, 1)]
FAMILIES = [("qwen2", True), ("qwen3", False), ("llama", True), ("mistral", False)]


def _examples() -> list[Example]:
    source = np.random.default_rng(5)
    made = []
    for index, (length, start) in enumerate(SHAPES):
        item = example(
            length=length,
            start=start,
            advantage=float(source.normal()),
            seed=index,
            temperature=[1.0, 0.7][index % 2],
        )
        reference = -source.random(item.num_targets).astype(np.float32) * 4
        made.append(replace(item, ref_logprob_M=reference, sampling_logprob_M=reference - 0.1))
    return made


def _packed(examples: list[Example], budget: int) -> list[list[Example]]:
    return [[examples[index] for index in group] for group in pack(examples, budget)]


def _gradient(
    model: Transformer, groups: list[list[Example]], objective: Objective
) -> tuple[dict[str, Tensor], dict[str, float]]:
    learner = LocalLearner(model, TrainConfig(), steps=1)
    sums: dict[str, float] = {}
    model.zero_grad()
    for group in groups:
        summed = learner.forward_backward(to_batch(group, CPU), objective)
        for name, value in ({"loss": summed.loss} | summed.metrics).items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }, sums


def _assert_equal(
    found: dict[str, Tensor], expected: dict[str, Tensor], relative: float = 1e-5
) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        assert float((found[name] - expected[name]).norm()) <= relative * float(
            expected[name].norm()
        ), name


def _split(kind: str) -> list[list[Example]]:
    examples = set_loss_weights(_examples(), sequence_mean)
    if kind == "one by one":
        return [[item] for item in examples]
    if kind == "backwards":
        return [examples[::-1]]
    if kind == "shuffled pairs":
        order = np.random.default_rng(0).permutation(len(examples))
        return [[examples[i] for i in order[k : k + 2]] for k in range(0, len(order), 2)]
    return _packed(examples, int(kind))


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
@pytest.mark.parametrize("kind", ["one by one", "backwards", "shuffled pairs", "40", "80", "123"])
def test_gradient_and_metrics_are_the_same_for_any_split_and_order(
    kind: str, family: str, tied: bool
) -> None:
    model = tiny_model(family=family, tied=tied)
    objective = policy_objective(AlgoConfig(kl_coef=0.1, entropy_coef=0.05))
    expected, expected_sums = _gradient(
        model, [set_loss_weights(_examples(), sequence_mean)], objective
    )

    found, sums = _gradient(model, _split(kind), objective)

    _assert_equal(found, expected)
    assert sums == pytest.approx(expected_sums, rel=1e-4)


@pytest.mark.parametrize("micro_batch_tokens", [40, 96, 4096])
def test_an_update_moves_the_weights_alike_for_any_micro_batch(micro_batch_tokens: int) -> None:
    whole, split = tiny_model(), tiny_model()
    examples = set_loss_weights(_examples(), token_mean)

    expected = LocalLearner(whole, TrainConfig(micro_batch_tokens=10**6), steps=1).update(
        examples, sft_objective()
    )
    found = LocalLearner(split, TrainConfig(micro_batch_tokens=micro_batch_tokens), steps=1).update(
        examples[::-1], sft_objective()
    )

    assert found == pytest.approx(expected, rel=1e-5)


def test_float16_updates_like_float32_also_where_gradients_are_below_its_smallest_number() -> None:
    # With weights of 1e-7, gradients are below the 6e-8 that is the least float16 can hold.
    examples = [
        replace(item, loss_weight=item.loss_weight * 1e-7)
        for item in set_loss_weights(_examples(), token_mean)
    ]
    whole = LocalLearner(tiny_model(), TrainConfig(), steps=1)
    half_model = tiny_model()
    rope = half_model.rope_CD
    half = LocalLearner(half_model.half(), TrainConfig(dtype="float16"), steps=1)
    half_model.rope_CD = rope

    expected = whole.update(examples, sft_objective())
    found = half.update(examples, sft_objective())

    assert 0 < found["train/grad_norm"] == pytest.approx(expected["train/grad_norm"], rel=0.02)


@torch.no_grad()
def test_the_packed_loss_is_the_sum_of_the_losses_alone() -> None:
    model, examples = tiny_model(), set_loss_weights(_examples(), sequence_mean)

    together, _ = forward_logprobs(model, to_batch(examples, CPU))
    alone = torch.cat([forward_logprobs(model, to_batch([item], CPU))[0] for item in examples])

    torch.testing.assert_close(together, alone, atol=logprob_bound(model), rtol=0)
    weights = to_batch(examples, CPU).loss_weight_M
    singles = [
        (forward_logprobs(model, batch)[0] * batch.loss_weight_M).sum()
        for batch in (to_batch([item], CPU) for item in examples)
    ]
    torch.testing.assert_close((together * weights).sum(), torch.stack(singles).sum())


@torch.no_grad()
def test_a_changed_neighbour_changes_nothing_bit_for_bit() -> None:
    model, [first, second, *_] = tiny_model(), _examples()
    other = replace(second, tokens=(second.tokens + 7) % 50)

    before, _ = forward_logprobs(model, to_batch([first, second], CPU))
    after, _ = forward_logprobs(model, to_batch([first, other], CPU))

    count = first.num_targets
    assert torch.equal(before[:count], after[:count])
    assert not torch.equal(before[count:], after[count:])


def _samples() -> list[Example]:
    """Three samples of one prompt, two of which begin alike, and one of another."""
    made = []
    for index, response in enumerate(([7, 8, 9], [7, 8, 1, 2, 3], [4], [7, 8, 9])):
        prompt = [11, 12, 13, 14] if index < 3 else [11, 12]
        tokens = np.array(prompt + response, dtype=np.int32)
        item = example(length=len(tokens), start=len(prompt), advantage=1.0 + index, seed=index)
        made.append(replace(item, tokens=tokens))
    return set_loss_weights(made, sequence_mean)


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
def test_what_samples_have_in_common_is_run_once_and_has_the_gradient_of_each_alone(
    family: str, tied: bool
) -> None:
    model, objective, seen = (
        tiny_model(family=family, tied=tied),
        policy_objective(AlgoConfig()),
        list[int](),
    )
    expected, expected_sums = _gradient(model, [[item] for item in _samples()], objective)

    handle = model.embed.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    found, sums = _gradient(model, [_samples()], objective)
    handle.remove()

    # The prompt of four, 7 and 8, and 1 and 2; the other prompt is the start of the first, its 7
    # and 8 are not.
    assert seen == [4 + 2 + 2 + 2]
    _assert_equal(found, expected)
    assert sums == pytest.approx(expected_sums, rel=1e-4)


def test_a_cpu_splits_into_small_passes_unless_an_example_is_long() -> None:
    short, long = (
        [example(length=1000, seed=index) for index in range(9)],
        example(length=5000, seed=9),
    )

    assert [len(group) for group in split_micro_batches(tiny_model(), short, 100_000)] == [4, 4, 1]
    assert [len(group) for group in split_micro_batches(tiny_model(), [long, *short], 100_000)] == [
        2,
        8,
    ]
    assert [len(group) for group in split_micro_batches(tiny_model(), short, 2000)] == [
        2,
        2,
        2,
        2,
        1,
    ]


def _textbook_logprobs(model: Transformer, item: Example) -> Tensor:
    """Log-probabilities of the response tokens, straight from the definition, one sequence
    alone."""
    tokens = torch.from_numpy(item.tokens.astype(np.int64))
    hidden = model(tokens, torch.arange(len(tokens)), PackedAttention(torch.tensor([len(tokens)])))
    table = torch.log_softmax(hidden @ model.head_weight_VH.T / item.temperature, -1)
    return torch.stack([table[t - 1, tokens[t]] for t in range(item.response_start, len(tokens))])


def _token_mean(losses: list[Tensor]) -> Tensor:
    return torch.cat(losses).mean()


def _sequence_mean(losses: list[Tensor]) -> Tensor:
    return torch.stack([loss.mean() for loss in losses]).mean()


def _sequence_sum(losses: list[Tensor]) -> Tensor:
    return torch.stack([loss.sum() for loss in losses]).mean()


def _constant(losses: list[Tensor]) -> Tensor:
    return torch.stack([loss.sum() / 32 for loss in losses]).mean()


@pytest.mark.parametrize(
    ("weights", "textbook"),
    [
        (token_mean, _token_mean),
        (sequence_mean, _sequence_mean),
        (sequence_sum, _sequence_sum),
        (constant(32), _constant),
    ],
)
def test_weights_give_the_gradient_of_their_textbook_form(
    weights: LossWeightRule, textbook: Callable[[list[Tensor]], Tensor]
) -> None:
    model = tiny_model()
    losses = [-item.advantage * _textbook_logprobs(model, item) for item in _examples()]
    textbook(losses).backward()
    expected = {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }

    found, sums = _gradient(
        model,
        _packed(set_loss_weights(_examples(), weights), 100),
        policy_objective(AlgoConfig(name="rloo")),
    )

    _assert_equal(found, expected)
    assert sums["loss"] == pytest.approx(float(textbook(losses).detach()), rel=1e-4)


def test_on_policy_clipping_has_the_gradient_of_the_plain_policy_gradient() -> None:
    model, groups = tiny_model(), _packed(set_loss_weights(_examples(), token_mean), 100)

    clipped, _ = _gradient(model, groups, policy_objective(AlgoConfig(name="grpo")))
    plain, _ = _gradient(model, groups, policy_objective(AlgoConfig(name="rloo")))

    _assert_equal(clipped, plain)


def test_on_policy_the_ratio_is_exactly_one() -> None:
    ratios: list[float] = []

    def loss(inputs: LossInputs) -> TokenLoss:
        ratio_M = token_ratio(inputs)
        ratios.extend(ratio_M.tolist())
        return TokenLoss(-ratio_M * inputs.advantage_M, {})

    LocalLearner(tiny_model(), TrainConfig(micro_batch_tokens=60), steps=1).update(
        _examples(), LogprobObjective(loss=loss)
    )

    assert ratios == [1.0] * sum(length - start for length, start in SHAPES)


@pytest.mark.parametrize("name", [item.name for item in fields(TokenFields)])
def test_a_quantity_declared_per_token_reaches_the_loss_under_its_name(name: str) -> None:
    made = [example(length=4, start=2), example(length=3, start=2, seed=1)]
    values = [np.float32([0.25, 0.5]), np.float32([0.75])]
    examples = [replace(item, **{name: value}) for item, value in zip(made, values, strict=True)]
    seen: list[float] = []

    def loss(inputs: LossInputs) -> TokenLoss:
        value_M = inputs.per_token()[name]
        assert value_M is not None
        seen.extend(value_M.tolist())
        return TokenLoss(inputs.logprob_M, {})

    LocalLearner(tiny_model(), TrainConfig(), steps=1).accumulate(
        examples, LogprobObjective(loss=loss)
    )

    assert seen == [0.25, 0.5, 0.75]


def test_the_entropy_bonus_has_the_exact_gradient_of_the_entropy() -> None:
    model, examples = tiny_model(), set_loss_weights(_examples(), token_mean)
    num_targets = sum(item.num_targets for item in examples)
    entropies = []
    for item in examples:
        tokens = torch.from_numpy(item.tokens.astype(np.int64))
        hidden = model(
            tokens, torch.arange(len(tokens)), PackedAttention(torch.tensor([len(tokens)]))
        )
        probs = torch.softmax(
            hidden[item.response_start - 1 : -1] @ model.head_weight_VH.T / item.temperature, -1
        )
        entropies.append(-(probs * probs.log()).sum(-1))
    (-0.5 * torch.cat(entropies).sum() / num_targets).backward()
    expected = {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }

    still = [replace(item, advantage=0.0, ref_logprob_M=None) for item in examples]
    found, _ = _gradient(model, _packed(still, 100), policy_objective(AlgoConfig(entropy_coef=0.5)))

    _assert_equal(found, expected)


def test_prompt_tokens_carry_no_loss_and_a_weight_of_zero_no_gradient() -> None:
    model, [item, *_] = tiny_model(), [replace(_examples()[2], loss_weight=1.0)]

    learner = LocalLearner(model, TrainConfig(), steps=1)
    found = learner.forward_backward(to_batch([item], CPU), sft_objective())
    assert float(found.loss) == pytest.approx(
        -float(_textbook_logprobs(model, item).detach().sum()), rel=1e-5
    )

    silent, _ = _gradient(model, [[replace(item, loss_weight=0.0)]], sft_objective())
    assert all(gradient.abs().sum() == 0 for gradient in silent.values())


def test_metrics_are_means_over_all_target_tokens() -> None:
    model, examples = tiny_model(), set_loss_weights(_examples(), sequence_mean)
    losses = [-_textbook_logprobs(model, item).detach() for item in examples]

    metrics = LocalLearner(model, TrainConfig(micro_batch_tokens=50), steps=1).update(
        examples, sft_objective()
    )

    assert metrics["sft/token_loss"] == pytest.approx(float(torch.cat(losses).mean()), rel=1e-4)
    assert metrics["loss"] == pytest.approx(float(_sequence_mean(losses)), rel=1e-4)


def test_losses_of_two_parts_add_up_and_their_metrics_are_means_over_tokens() -> None:
    examples = set_loss_weights(_examples(), sequence_mean)

    def measure(part: list[Example]) -> tuple[dict[str, float], int]:
        learner = LocalLearner(tiny_model(), TrainConfig(), steps=1)
        metrics = learner.accumulate(part, sft_objective()).means
        return metrics, sum(example.num_targets for example in part)

    (whole, total), (first, some), (second, rest) = map(
        measure, (examples, examples[:3], examples[3:])
    )
    assert first["loss"] + second["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    for name in ("sft/token_loss", "policy/entropy"):
        mean = (some * first[name] + rest * second[name]) / total
        assert mean == pytest.approx(whole[name], rel=1e-5)


def test_updates_follow_the_schedule_and_lower_the_loss() -> None:
    cfg = TrainConfig(lr=3e-3, warmup_steps=2, lr_schedule="linear")
    learner, examples = (
        LocalLearner(tiny_model(), cfg, steps=12),
        set_loss_weights(_examples(), token_mean),
    )

    history = [learner.update(examples, sft_objective()) for _ in range(12)]

    assert [metrics["train/lr"] for metrics in history[:4]] == pytest.approx(
        [1.5e-3, 3e-3, 3e-3, 2.7e-3]
    )
    assert learner.num_optim_steps == 12
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]


@pytest.mark.parametrize("micro_batch_tokens", [40, 100, 4096])
def test_scores_come_in_the_order_of_the_examples(micro_batch_tokens: int) -> None:
    model, examples = tiny_model(), _examples()

    found = LocalLearner(
        model, TrainConfig(micro_batch_tokens=micro_batch_tokens), steps=1
    ).compute_logprobs(examples)

    bound = logprob_bound(model)
    for item, logprobs in zip(examples, found, strict=True):
        np.testing.assert_allclose(
            logprobs, _textbook_logprobs(model, item).detach().numpy(), rtol=0, atol=bound
        )
        assert logprobs.dtype == np.float32
    assert compute_logprobs_locally(model, [], 10) == []
    assert all(weight.grad is None for weight in model.parameters())


def test_an_empty_batch_adds_nothing_to_the_gradient() -> None:
    learner = LocalLearner(tiny_model(), TrainConfig(), steps=1)

    assert learner.forward_backward(to_batch([], learner.device), sft_objective()) == (
        0.0,
        {},
        None,
    )

    assert all(weight.grad is None for weight in learner.model.parameters())
