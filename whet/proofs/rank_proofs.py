"""Proofs that ranks run together: gradients add up, shards equal the model, and the engine samples
from the trained weights.
"""

import copy
from collections.abc import Sequence

import torch

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.batching.examples import Example, to_batch
from whet.models.source import torch_dtype
from whet.models.transformer import Transformer, rope_table
from whet.proofs import fixtures
from whet.proofs.base import Measurement
from whet.train.fsdp_learner import FSDPLearner
from whet.train.learner import LocalLearner, forward_logprobs, set_loss_weights
from whet.train.settings import TrainConfig
from whet.train.shards import gather_rows, local_rows, rank_world, shard_model
from whet.world import get_world

CFG = TrainConfig(lr=1e-3, micro_batch_tokens=120)


def measure_rank_gradient() -> Measurement:
    """Compare the summed gradient of ranks with that of one device, in float64 on a CPU and in
    float32 on a GPU, whose kernels do not support float64."""
    is_cpu = fixtures.make_model().device.type == "cpu"
    model = fixtures.make_model(dtype=torch.float64 if is_cpu else torch.float32)
    examples = set_loss_weights(fixtures.make_random_examples(), token_mean)
    one = LocalLearner(copy.deepcopy(model), CFG, steps=1)
    ranks = FSDPLearner(model, CFG, steps=1)
    for learner in (one, ranks):
        learner.accumulate(examples, sft_objective())
    gap = 0.0
    for own, shard in zip(one.model.parameters(), ranks.model.parameters(), strict=True):
        assert own.grad is not None and shard.grad is not None, "every weight has a gradient"
        whole = next(gather_rows([local_rows(shard.grad)], [shard.shape], rank_world()))
        gap = max(gap, float((own.grad - whole).abs().max() / own.grad.abs().max()))
    return _agree(
        gap,
        limit=1e-12 if is_cpu else 1e-4,
        text=f"the gradient of {get_world().size} ranks differs from one device's by",
    )


def measure_sharded_logprobs() -> Measurement:
    """Count log-probabilities that differ in any bit between a sharded and the plain model."""
    model = _model()
    sharded = shard_model(model, rank_world())
    differ = _count_different(model, sharded, fixtures.make_random_examples())
    return _agree(differ, limit=0, text="log-probabilities of shards with other bits:")


def measure_gathered_weights() -> Measurement:
    """Count log-probabilities that differ after a step between shards and the engine's model."""
    model = _model()
    learner = FSDPLearner(model, CFG, steps=1)
    examples = set_loss_weights(fixtures.make_random_examples(), token_mean)
    before = [weight.detach().clone() for weight in model.parameters()]
    learner.update(examples, sft_objective())
    learner.sync_model()
    is_moved = any(
        not torch.equal(weight, old) for weight, old in zip(model.parameters(), before, strict=True)
    )
    differ = _count_different(model, learner.model, examples) if is_moved else float("nan")
    return _agree(differ, limit=0, text="log-probabilities of gathered weights with other bits:")


def _model() -> Transformer:
    model = fixtures.make_model(dtype=torch_dtype("auto"))
    with model.device:  # in float32, as in a loaded model
        model.rope_CD = rope_table(model.cfg)
    return model


@torch.no_grad()
def _count_different(
    plain: Transformer, sharded: Transformer, examples: Sequence[Example]
) -> float:
    batch = to_batch(list(examples), plain.device)
    one, other = (forward_logprobs(model, batch)[0] for model in (plain, sharded))
    return float((one != other).sum())


def _agree(gap: float, *, limit: float, text: str) -> Measurement:
    """Measure the largest gap of all ranks."""
    gap = max(get_world().all_gather(gap, text))
    return Measurement(
        gap=gap, limit=limit, text=f"{text} {gap:.1e}" if limit else f"{text} {gap:g}"
    )
