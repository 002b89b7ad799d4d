"""What an update saw of a stored rollout, token by token."""

import math
from pathlib import Path

import numpy as np
import pytest
from small import Pipeline, whet

from whet.errors import DataError
from whet.replay.tokens import replay_step_tokens, replay_tokens, write_step_tokens
from whet.store.run import RunStore
from whet.store.view_cache import cache_folder, read_token_columns
from whet.types import Floats


def test_token_means_are_the_metrics_that_the_step_logged(tiny: Pipeline) -> None:
    """The run has two mini-batches, whose means are averaged, and a KL in the loss."""
    folder = tiny.folder / "05-rl"
    step = replay_step_tokens(folder, 4)
    stored = RunStore.view(folder).rollouts("train", 4)
    assert list(step) == [rollout.id for rollout in stored]
    logged = next(row for row in RunStore.view(folder).metrics() if row["step"] == 4)
    trained = [tokens for tokens in step.values() if tokens.is_trained]
    assert len(trained) == 16
    # All ratios are 1 in the first mini-batch, and only there.
    batches: dict[bool, list[tuple[Floats, ...]]] = {True: [], False: []}
    for tokens in trained:
        assert tokens.ratio is not None and tokens.entropy is not None
        assert tokens.engine_gap is not None
        arrays = (tokens.entropy, np.abs(tokens.engine_gap), tokens.ratio)
        batches[bool(np.abs(tokens.ratio - 1).max() < 1e-5)].append(arrays)
    assert [len(batch) for batch in batches.values()] == [8, 8]
    names = ("policy/entropy", "policy/engine_gap", "policy/ratio")
    for index, name in enumerate(names):
        means = [
            np.concatenate([item[index] for item in batch]).mean() for batch in batches.values()
        ]
        assert math.isclose(float(np.mean(means)), logged[name], rel_tol=1e-5)


def test_the_arrays_of_a_rollout_have_its_tokens_and_text(tiny: Pipeline) -> None:
    folder = tiny.folder / "05-rl"
    rollout = RunStore.view(folder).rollouts("train", 2)[3]
    tokens = replay_tokens(folder, 2, rollout.id)
    count = len(rollout.completion.tokens)
    for array in (tokens.advantage, tokens.logprob, tokens.ref_logprob, tokens.pieces):
        assert array is not None and len(array) == count
    assert "".join(tokens.pieces).startswith(rollout.text)
    assert tokens.value is None, "there is no critic"
    with pytest.raises(DataError, match="step 2 has no rollout 'none'; it has game24/"):
        replay_tokens(folder, 2, "none")


def test_what_a_replay_leaves_for_the_viewer_is_what_the_update_saw(
    tiny: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tiny.folder / "05-rl"
    rollouts = RunStore.view(folder).rollout_file("train", 4)
    write_step_tokens(folder, 4)
    for name, tokens in replay_step_tokens(folder, 4).items():
        columns = read_token_columns(cache_folder(), rollouts, name)
        assert tokens.ratio is not None and np.array_equal(columns["ratio"], tokens.ratio)
        assert tokens.entropy is not None and np.array_equal(columns["entropy"], tokens.entropy)
        assert columns["mask"].tolist() == [1.0] * len(tokens.tokens)
        assert "value" not in columns
    assert read_token_columns(cache_folder(), rollouts, "another") == {}
    assert read_token_columns(cache_folder(), rollouts.with_name("train-000005.parquet"), "x") == {}


def test_tokens_of_an_alternative_are_refused_in_a_sentence(tiny: Pipeline) -> None:
    said = whet("replay", tiny.folder, "--step", 4, "--tokens", "--set", "algo.kl_coef=0")
    assert (said.code, said.last) == (
        2,
        "whet: --tokens is of the update as logged, so --set has no effect",
    )
