"""What an update saw of one stored rollout, token by token, for pages that colour tokens.

    tokens = replay_tokens(Path("runs/game24/05-rl"), 5, "game24/4442927577e0:0/3")
    tokens.pieces, tokens.advantage, tokens.entropy, tokens.engine_gap

All arrays are over the response tokens of the rollout, in their order. They are computed again: the
stored updates are applied from the newest checkpoint before the step, and the update of the step is
taken, so a call costs one update, and more where the checkpoint is further back. All rollouts of a
step cost no more than one: `replay_step_tokens` returns them by id. The model is on the device that
training would use; the arrays are numpy's.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet.batching.examples import Example
from whet.errors import DataError
from whet.models.source import read_tokenizer
from whet.replay.stored_run import load_stored_run
from whet.replay.updates import (
    LogCheck,
    UpdateRecord,
    build_trainer,
    resolve_algo,
    start_record,
    state_before,
    step_trainer,
)
from whet.store.view_cache import cache_folder, write_token_columns
from whet.text.tokenizer import Tokenizer
from whet.track.progress import progress_bar
from whet.types import Floats, Rollout, Tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenReplay:
    """One rollout in the update of a step; None for quantities that the update did not have."""

    rollout_id: str
    is_trained: bool
    """Whether its tokens had a loss. If not, it was left out or masked, or its advantage is zero
    and there is neither a KL nor an entropy bonus; arrays of the update are then None."""
    tokens: Tokens
    pieces: tuple[str, ...]
    """Each token as text."""
    sampling_logprob: Floats
    """Log-probability at which the engine sampled the token."""
    advantage: Floats | None
    loss_weight: Floats | None
    """Multiplies the loss of the token."""
    logprob: Floats | None
    """The learner's log-probability, under the weights that its mini-batch met."""
    entropy: Floats | None
    """Entropy of the whole next-token distribution, in nats."""
    ratio: Floats | None
    """Probability over that at the start of the step; 1 with one mini-batch."""
    engine_gap: Floats | None
    """Learner's minus engine's log-probability; beyond rounding, it is the policy's movement since
    the token was sampled."""
    ref_logprob: Floats | None
    """The starting policy's log-probability, with a KL penalty."""
    value: Floats | None
    """The critic's value of the state before the token."""

    def to_columns(self) -> dict[str, Floats]:
        """Return the existing arrays by name; the mask is 1 for tokens that had a loss."""
        arrays = {
            "advantage": self.advantage,
            "loss_weight": self.loss_weight,
            "entropy": self.entropy,
            "ratio": self.ratio,
            "engine_gap": self.engine_gap,
            "ref_logprob": self.ref_logprob,
            "value": self.value,
        }
        weight = np.zeros(len(self.tokens)) if self.loss_weight is None else self.loss_weight
        known = {name: array for name, array in arrays.items() if array is not None}
        return {"mask": (weight != 0).astype(np.float32), **known}


def replay_tokens(folder: Path, step: int, rollout_id: str) -> TokenReplay:
    """Replay the update of a step, and return the token quantities of one of its rollouts."""
    replays = replay_step_tokens(folder, step)
    if rollout_id not in replays:
        known = ", ".join(list(replays)[:3])
        raise DataError(f"step {step} has no rollout {rollout_id!r}; it has {known} and others")
    return replays[rollout_id]


def replay_step_tokens(folder: Path, step: int) -> dict[str, TokenReplay]:
    """Replay the update of a step, and return the token quantities of each rollout, by id."""
    run = load_stored_run(folder)
    start = run.find_start(step)
    cfg = run.settings_at(step)
    groups = run.groups(step)
    record = UpdateRecord(has_tokens=True)
    with (
        progress_bar("replay", step - start.step) as advance,
        state_before(run, start, step, LogCheck(), advance) as state,
    ):
        trainer = build_trainer(run, cfg, state)
        start_record(trainer, record)
        step_trainer(trainer, cfg, step, groups)
        advance(1)
    _, tokenizer = read_tokenizer(cfg.model)
    is_engine = resolve_algo(run, cfg).old_logprobs == "engine"
    trained = {
        example.rollout_id: (example, array)
        for example, array in zip(record.examples, record.per_token, strict=True)
    }
    return {
        rollout.id: _to_replay(rollout, trained.get(rollout.id), tokenizer, is_engine=is_engine)
        for group in groups
        for rollout in group
    }


def write_step_tokens(folder: Path, step: int) -> Path:
    """Replay the update of a step, and write its token quantities where `whet view` finds them."""
    columns = {
        name: tokens.to_columns() for name, tokens in replay_step_tokens(folder, step).items()
    }
    rollouts = load_stored_run(folder).store.rollout_file("train", step)
    return write_token_columns(cache_folder(), rollouts, columns)


def _to_replay(
    rollout: Rollout,
    trained: tuple[Example, Floats] | None,
    tokenizer: Tokenizer,
    *,
    is_engine: bool,
) -> TokenReplay:
    sampled = rollout.completion.logprobs
    example, array = trained or (None, None)
    logprob = None if array is None else array[:, 0]
    ratio = None
    if example is not None and logprob is not None:
        old = sampled if is_engine else example.old_logprob_M
        ratio = np.ones_like(logprob) if old is None else np.exp(logprob - old)
    return TokenReplay(
        rollout_id=rollout.id,
        is_trained=example is not None,
        tokens=rollout.completion.tokens,
        pieces=_split_text(tokenizer, rollout.completion.tokens),
        sampling_logprob=sampled,
        advantage=None if example is None else _spread(example.advantage, example),
        loss_weight=None if example is None else _spread(example.loss_weight, example),
        logprob=logprob,
        entropy=None if array is None else array[:, 1],
        ratio=ratio,
        engine_gap=None if logprob is None else logprob - sampled,
        ref_logprob=None if example is None else example.ref_logprob_M,
        value=None if example is None else example.value_M,
    )


def _spread(value: float | Floats, example: Example) -> Floats:
    return np.broadcast_to(np.float32(value), (example.num_targets,))


def _split_text(tokenizer: Tokenizer, tokens: Tokens) -> tuple[str, ...]:
    text = tokenizer.decode(tokens, keep_special=True)
    return tuple(text[start:end] for start, end in tokenizer.spans(tokens, keep_special=True))
