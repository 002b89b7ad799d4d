"""Two ranks, as torchrun starts them, against one device; three, four and 2 × 2 in `make
test-cluster`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = "contract,gradients,sequences,bits,adapters,copies,whole,updates,failing,nesting,groups,counts,skipping,differing"


def run_ranks(count: int, *args: str, env: dict[str, str] | None = None) -> str:
    """Run a Python file by so many ranks; return what they printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | (env or {})
    done = subprocess.run(
        [*command, "--nproc-per-node", str(count), *args],
        capture_output=True,
        text=True,
        timeout=280,
        env=environ,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def check_on(count: int, folder: Path, checks: str = CHECKS) -> dict[str, Any]:
    run_ranks(count, str(ROOT / "tests" / "cluster" / "on_ranks.py"), checks, str(folder))
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    assert list(results) == checks.split(",")
    return results


@pytest.fixture(
    scope="module",
    params=[
        2,
        pytest.param(3, marks=pytest.mark.cluster),
        pytest.param(4, marks=pytest.mark.cluster),
    ],
)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return check_on(request.param, tmp_path_factory.mktemp("ranks")) | {"size": request.param}


def test_learners_of_ranks_keep_the_contract_of_learners(seen: dict[str, Any]) -> None:
    assert seen["contract"] == "kept"


def test_the_gradient_of_ranks_is_that_of_one_device_to_rounding(seen: dict[str, Any]) -> None:
    assert len(seen["gradients"]) == 16
    for name, gap in seen["gradients"].items():
        assert gap <= (1e-5 if "critic" in name else 1e-12), name


def test_ranks_that_share_a_sequence_have_the_gradient_of_one_device(seen: dict[str, Any]) -> None:
    for name, gap in seen["sequences"].items():
        assert gap <= (1e-5 if "critic" in name else 1e-12), name


def test_a_sharded_model_scores_with_the_bits_of_the_plain_one(seen: dict[str, Any]) -> None:
    assert len(seen["bits"]) == 8
    assert all(seen["bits"].values()), seen["bits"]


def test_adapters_train_on_ranks_as_on_one_device(seen: dict[str, Any]) -> None:
    assert seen["adapters"] <= 1e-5


def test_two_copies_of_the_shards_train_as_one_device(seen: dict[str, Any]) -> None:
    assert seen["copies"] <= 1e-5


def test_a_rank_with_all_rows_trains_the_whole_model_and_no_copy_of_it(
    seen: dict[str, Any],
) -> None:
    is_whole, gap = seen["whole"]
    assert is_whole
    assert gap <= 1e-5


def test_the_number_of_ranks_changes_no_bit_of_deterministic_training(seen: dict[str, Any]) -> None:
    assert len(seen["updates"]) == 4
    assert not any(seen["updates"].values()), seen["updates"]


def test_an_error_of_the_first_rank_is_raised_on_all(seen: dict[str, Any]) -> None:
    assert seen["failing"] == ["there is no room"] * seen["size"]


def test_nothing_asks_for_all_ranks_while_the_first_acts_alone(seen: dict[str, Any]) -> None:
    assert seen["nesting"] == (
        "the first rank is alone at 'a write', so that 'an exchange' would wait for ranks that "
        "wait for it"
    )


def test_every_rank_samples_where_problems_are_fewer_than_ranks(seen: dict[str, Any]) -> None:
    is_same, *num_tokens = seen["groups"]
    assert is_same
    assert len(num_tokens) == seen["size"] and min(num_tokens) > 0


def test_ranks_that_disagree_end_in_a_sentence(seen: dict[str, Any]) -> None:
    assert seen["skipping"].startswith(
        "the ranks are not at the same place: rank 0 is at 'update 1, on 11 examples "
    )


def test_ranks_with_other_examples_end_in_a_sentence(seen: dict[str, Any]) -> None:
    sentence = seen["differing"]
    assert "rank 0 is at 'update 1, on 11 examples " in sentence
    assert "at 'update 1, on 10 examples " in sentence


def test_metrics_count_the_tokens_of_all_ranks_and_their_largest_peak(seen: dict[str, Any]) -> None:
    tokens, counted, peak = seen["counts"]
    assert counted == pytest.approx(tokens)
    assert peak == seen["size"]


def test_one_process_imports_nothing_of_torch_distributed_that_ranks_need() -> None:
    source = (
        "import sys, whet.recipes.rl, whet.train.policy, whet.pipeline.pipeline\n"
        "print([m for m in ('whet.cluster.ranks', 'torch.distributed.fsdp') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"


def run_alone(*args: str) -> str:
    """Run the bench of a single rank against the plain learner; return what it printed."""
    command = [sys.executable, str(ROOT / "bench" / "sharded.py"), *args]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_rank_by_itself_has_the_weights_of_the_plain_learner_in_all_bits() -> None:
    sizes = ("--model", "tiny", "--length", "64", "--tokens", "512", "--micro", "128")
    row = json.loads(run_alone(*sizes, "--steps", "2", "--deterministic"))
    assert row["ranks"] == 1
    assert row["equal_weights"] == row["weights"] == 18


@pytest.mark.cluster
def test_a_rank_by_itself_asks_no_more_of_the_host_than_the_plain_learner() -> None:
    _, plain, ranks = (line.split() for line in run_alone("--host").splitlines())
    assert plain[1] == ranks[1], "operations of a step's gradients"


@pytest.mark.cluster
def test_a_critic_takes_the_memory_of_its_shard_and_at_most_a_layer(tmp_path: Path) -> None:
    """When it is made, and when it is loaded, with the two moments of its optimizer."""
    saved = check_on(2, tmp_path, "save_critic")["save_critic"]
    loaded, made_peak, loaded_peak, shard, layer = check_on(2, tmp_path, "load_critic")[
        "load_critic"
    ]
    assert loaded == saved
    assert shard / 2 < made_peak <= shard + layer
    assert shard < loaded_peak <= 2 * shard + layer


@pytest.mark.cluster
def test_the_doctor_proves_ranks_on_this_machine() -> None:
    command = [sys.executable, "-m", "whet", "doctor", "--gpus", "2"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 3 proofs hold" in done.stdout
