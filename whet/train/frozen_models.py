"""Teachers, and what frozen models add to preference pairs."""

from collections.abc import Sequence
from dataclasses import replace

from whet.batching.examples import Example, PreferencePair
from whet.errors import ConfigError
from whet.models.source import ModelSource, load_model, read_tokenizer, torch_dtype
from whet.text.tokenizer import Tokenizer
from whet.train.learner import LogprobModel, add_logprobs
from whet.train.policy import Policy
from whet.train.served_model import SERVED_SECONDS, ServedModel
from whet.train.settings import TrainConfig


def load_teacher(
    source: ModelSource, policy: Policy, cfg: TrainConfig, *, url: str | None = None
) -> LogprobModel:
    """Load a teacher or use a served one; check that it can read everything the policy writes."""
    if url is not None:
        shape, tokenizer = read_tokenizer(source)
        _check_teacher(source, tokenizer, shape.max_positions, policy)
        return ServedModel(url, setting="teacher_url", wait=SERVED_SECONDS)
    teacher, tokenizer = load_model(
        source, dtype=torch_dtype(cfg.dtype), device=policy.model.device, texts=[], seed=0
    )
    _check_teacher(source, tokenizer, teacher.cfg.max_positions, policy)
    teacher.requires_grad_(False)
    offloaded = [*teacher.parameters()] if cfg.offload_reference else ()
    return policy.learner_factory.build_frozen_model(teacher, cfg, offloaded=offloaded)


def _check_teacher(source: ModelSource, tokenizer: Tokenizer, longest: int, policy: Policy) -> None:
    if tokenizer.vocabulary != policy.tokenizer.vocabulary:
        raise ConfigError(
            f"teacher.path = {source.path!r} has a different tokenizer from the model, so it "
            "cannot read its tokens; choose a teacher of the same family"
        )
    if longest < policy.engine.max_model_len:
        raise ConfigError(
            f"teacher.path = {source.path!r} reads {longest} tokens, fewer than the "
            f"{policy.engine.max_model_len} of the policy; set engine.max_model_len to at most "
            f"{longest}"
        )


def add_pair_ref_logprobs(
    pairs: Sequence[PreferencePair], reference: LogprobModel
) -> list[PreferencePair]:
    """Add the reference's log-probabilities; a response in several pairs is computed once."""
    examples = list(dict.fromkeys(item for pair in pairs for item in (pair.chosen, pair.rejected)))
    added = add_logprobs(examples, "ref_logprob_M", reference)
    with_logprobs = dict(zip(examples, added, strict=True))
    return [
        PreferencePair(chosen=with_logprobs[pair.chosen], rejected=with_logprobs[pair.rejected])
        for pair in pairs
    ]


def set_pair_loss_weights(pairs: Sequence[PreferencePair]) -> list[Example]:
    """Number the pairs of an optimizer step, give each the same weight, and list their examples."""
    loss_weight = 1.0 / len(pairs)
    return [
        replace(item, pair=number, is_chosen=is_chosen, loss_weight=loss_weight)
        for number, pair in enumerate(pairs)
        for item, is_chosen in ((pair.chosen, True), (pair.rejected, False))
    ]
