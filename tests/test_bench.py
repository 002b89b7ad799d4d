"""The speed benches run from their command line to their last line, and their arithmetic is what
they say it is."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from speed import recorded  # noqa: E402
from speed.children import Record, Side  # noqa: E402
from speed.limits import Ceilings, Counts, decode_step_seconds, rollout_seconds, update_flops  # noqa: E402
from speed.plot import Cell, chart  # noqa: E402
from speed.shapes import QWEN  # noqa: E402
from speed.table import figures  # noqa: E402
from speed.work import Work  # noqa: E402
from svg import tag  # noqa: E402

TOY = [
    "--model",
    "tiny",
    "--prompts",
    "2",
    "--samples",
    "2",
    "--prompt-tokens",
    "4",
    "--new-tokens",
    "5",
]
TOP = Ceilings(copy_bytes_per_s=4.3e12, matmul_flops_per_s=790e12)


def work(**changes: object) -> Work:
    settings = {
        "model": "0.5b", "device": "cuda", "dtype": "bfloat16", "lengths": "fixed", "prompts": 64, "samples": 8,
        "prompt_tokens": 64, "new_tokens": 512, "cap": 512, "slots": 512, "threads": 0, "rounds": 1, "seed": 0,
    }  # fmt: skip
    return Work(**{**settings, **changes})  # type: ignore[arg-type]


def run(bench: str, *options: str, weights: Path) -> dict[str, object]:
    command = [
        sys.executable,
        str(ROOT / "bench" / f"{bench}.py"),
        *TOY,
        "--rounds",
        "1",
        "--threads",
        "1",
    ]
    done = subprocess.run(
        [*command, "--weights", str(weights), *options],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=weights,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    row: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return row


@pytest.mark.parametrize(("bench", "tokens"), [("rollout", 20), ("update", 36), ("rl_step", 20)])
def test_a_bench_without_a_peer_measures_our_side_alone(
    bench: str, tokens: int, tmp_path: Path
) -> None:
    row = run(bench, "--peer", "none", weights=tmp_path)
    ours = row["ours"]
    assert isinstance(ours, dict)
    assert ours["tokens_per_s"] * ours["seconds"] == pytest.approx(tokens)
    assert ours["rounds"] == 1
    assert 0 < ours["fraction_of_limit"] < 1
    assert row["peer"] is None
    assert row["ratio"] is None


@pytest.mark.slow
def test_a_bench_with_a_peer_divides_our_rate_by_its_best(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    row = run(
        "rollout",
        "--peer",
        "transformers",
        "--lengths",
        "natural",
        "--batches",
        "4",
        weights=tmp_path,
    )
    ours, peer, peers = row["ours"], row["peer"], row["peers"]
    assert isinstance(ours, dict)
    assert isinstance(peer, dict)
    assert isinstance(peers, list)
    assert row["failed"] == {}
    assert peer["tokens_per_s"] == max(side["tokens_per_s"] for side in peers)
    assert row["ratio"] == pytest.approx(ours["tokens_per_s"] / peer["tokens_per_s"])
    assert ours["largest_logprob_gap"] < 1e-4


def test_decode_limit_is_weights_or_products_plus_cached_keys_and_values() -> None:
    counts = Counts.of(QWEN["0.5b"], "bfloat16")
    assert counts.kv_bytes == 12_288
    # 494 million weights: 0.99 GB at 4.3 TB/s is 0.230 ms; 64 x 1,024 x 12,288 B is 0.187 ms.
    assert decode_step_seconds(counts, "bfloat16", 64, 1024, TOP) == pytest.approx(
        0.417e-3, rel=0.01
    )
    # At 512 rows the products take 0.640 ms, longer than reading; the cache takes 1.498 ms.
    assert decode_step_seconds(counts, "bfloat16", 512, 1024, TOP) == pytest.approx(
        2.14e-3, rel=0.01
    )


def test_rollout_limit_is_each_prompt_once_and_a_decode_step_a_token() -> None:
    # Prefill: 64 prompts of 2 x 357,826,560 x 64 + 2 x 21,504 x 64^2 + 2 x 136,134,656 products are
    # 3.747 ms. 511 steps of 512 rows at a mean context of 64 + 256: 0.640 ms of products and 0.468
    # ms of cache each, 566.4 ms.
    assert rollout_seconds(QWEN["0.5b"], work(), TOP) == pytest.approx(0.57018, rel=1e-4)


@pytest.mark.parametrize("model", ["0.5b", "1.5b"])
def test_recorded_rates_are_the_seconds_in_the_document(model: str) -> None:
    row = next(
        line
        for line in (ROOT / "docs" / "performance.md").read_text().splitlines()
        if f"vllm --model {model}" in line
    )
    shown = re.search(r"vLLM ([\d.]+) to ([\d.]+) s", row)
    assert shown is not None
    rates = [each.tokens_per_s for each in recorded.figures(work(model=model))]
    assert [round(262_144 / rate, 1) for rate in (max(rates), min(rates))] == [
        float(shown[1]),
        float(shown[2]),
    ]


def test_update_counts_the_head_for_response_tokens_only() -> None:
    cfg = QWEN["0.5b"]
    head = 6 * cfg.vocab_size * cfg.hidden_size
    assert (
        update_flops(cfg, "bfloat16", [10], [20]) - update_flops(cfg, "bfloat16", [20], [10])
        == 10 * head
    )


def test_natural_lengths_are_the_same_every_time_within_the_cap_and_near_their_mean() -> None:
    natural = work(lengths="natural", new_tokens=100, cap=400, prompts=512)
    limits = natural.limits()
    assert limits == natural.limits()
    assert max(limits) == 400
    assert min(limits) >= 1
    assert sum(limits) / len(limits) == pytest.approx(100, rel=0.05)


def test_rounds_have_prompts_of_their_own() -> None:
    assert work().prompt_ids(1000, 1) == work().prompt_ids(1000, 1)
    assert work().prompt_ids(1000, 1) != work().prompt_ids(1000, 2)


def test_figures_are_medians_and_leave_the_first_round_out() -> None:
    rounds = [{"seconds": seconds, "tokens": 60.0} for seconds in (2.0, 9.0, 3.0)]
    record = Record(
        side=Side(name="x", module="x"),
        warm_up={"seconds": 50.0, "tokens": 60.0, "gap": 0.5},
        rounds=rounds,
    )
    found = figures(record, limit_seconds=1.5)
    assert (found.seconds, found.fastest, found.slowest, found.first_seconds) == (
        3.0,
        2.0,
        9.0,
        50.0,
    )
    assert found.tokens_per_s == 20.0
    assert found.fraction_of_limit == 0.5
    assert found.more == {"gap": 0.5}


def test_the_chart_has_a_solid_and_a_dashed_line_for_each_batch() -> None:
    cells = [
        Cell(batch=batch, length=length, measured=100.0 * batch, limit=300.0 * batch)
        for batch in (1, 8)
        for length in (10, 100)
    ]
    drawn = chart(cells, "a < b")
    assert drawn.count("<polyline") == 4
    assert drawn.count("stroke-dasharray") == 2
    assert "a &lt; b" in drawn


def test_the_plan_is_compared_with_what_a_step_took() -> None:
    command = [sys.executable, str(ROOT / "bench" / "plan.py"), "--device", "cpu", "--steps", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    (row,) = result["pairs"]
    assert [*row["phases"]] == ["sample", "read", "update"]
    assert row["phases"]["update"]["note"] == "2 of 2 layers run twice"
    assert row["measured_step_seconds"] > 0 and row["memory_error"] is None, (
        "only a GPU counts its bytes"
    )


def test_settings_of_our_side_are_read_as_whet_reads_them(tmp_path: Path) -> None:
    row = run(
        "update",
        "--peer",
        "none",
        "--train",
        "offload_optimizer=true",
        "--train",
        "micro_batch_tokens=64",
        weights=tmp_path,
    )
    assert row["failed"] == {}


def test_attributes_and_children_are_escaped_once() -> None:
    inner = tag("b", "<&>")
    assert inner == "<b>&lt;&amp;&gt;</b>"
    assert tag("p", inner, title='"') == '<p title="&quot;"><b>&lt;&amp;&gt;</b></p>'
