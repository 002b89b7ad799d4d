"""The bench that compares two checkouts: nothing that differs goes unsaid, and what is meant has
its cause."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from same_numbers import (  # noqa: E402
    CommandError,
    Explained,
    Result,
    Tree,
    Values,
    answer_rows,
    compare,
    moving_steps,
    read_weights,
)


def results(before: Values, after: Values) -> dict[str, dict[str, Result]]:
    return {"job": {"baseline": {"item": before}, "head": {"item": after}}}


def checkpoint(run: Path, step: str, weight: float) -> None:
    folder = run / "01-rl" / "checkpoints" / step / "critic"
    folder.mkdir(parents=True)
    save_file({"w": np.array([weight], dtype=np.float32)}, folder / "model.safetensors")


def test_changed_added_and_missing_values_all_differ() -> None:
    differences, rows = compare(
        results({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"}), []
    )
    assert [(row.id, row.baseline, row.head) for row in differences] == [
        ("b", "1", "2"),
        ("c", "1", None),
        ("d", None, "1"),
    ]
    assert rows == [("item", 4, 3, "b: 1 -> 2")]


def test_a_cause_covers_only_what_its_patterns_match() -> None:
    meant = Explained(item="it*", ids=["*/open"], cause="no answer")
    differences, _ = compare(
        results({"1/open": "1", "1/gold": "1"}, {"1/open": "2", "1/gold": "2"}), [meant]
    )
    assert [(row.id, row.cause) for row in differences] == [
        ("1/gold", None),
        ("1/open", "no answer"),
    ]


def test_one_bit_in_a_critic_of_the_last_checkpoint_is_seen(tmp_path: Path) -> None:
    for name, weight in (
        ("one", 1.0),
        ("other", float(np.nextafter(np.float32(1), np.float32(2)))),
    ):
        checkpoint(tmp_path / name, "000010", 5.0)
        checkpoint(tmp_path / name, "000020", weight)
    one, other = read_weights(tmp_path / "one"), read_weights(tmp_path / "other")
    assert list(one) == list(other) == ["01-rl/checkpoints/000020/critic/model.safetensors:w"]
    assert one != other


def test_steps_of_zero_gradient_do_not_count_as_steps(tmp_path: Path) -> None:
    checkpoint(tmp_path, "000003", 1.0)
    rows = [
        {"step": 1, "train/grad_norm": 0.5},
        {"step": 2, "train/grad_norm": 0.0},
        {"step": 3, "validation/pass@1": 1.0},
    ]
    (tmp_path / "01-rl" / "metrics.jsonl").write_text(
        "".join(f"{json.dumps(row)}\n" for row in rows)
    )
    assert moving_steps(tmp_path) == {"01-rl": 1}


def test_every_problem_is_answered_rightly_wrongly_and_by_models() -> None:
    problems = [
        {"task": "math", "answer": "1", "answers": ["a"]},
        {"task": "math", "answer": None, "answers": []},
    ]
    rows = {str(row["id"]): row for row in answer_rows("file", problems)}
    first = {"empty", "gold", "boxed", "stated", "open", "model-0"}
    assert rows.keys() == {f"file 0/{kind}" for kind in first} | {
        f"file 1/{kind}" for kind in ("empty", "next", "tagged")
    }
    assert rows["file 1/next"]["response"] == r"\boxed{1}"
    assert rows["file 0/model-0"]["problem"] == "math/file-0"


def test_a_command_that_fails_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    tree = Tree(name="head", root=ROOT, work=tmp_path)
    with pytest.raises(CommandError, match=r"head, exit code 2: .*unwell"):
        tree.run("-c", "import sys; sys.stderr.write('unwell'); sys.exit(2)")


@pytest.mark.slow
def test_the_files_of_a_step_and_of_a_grading_are_counted() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "trace_files.py")],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    counts = [int(line.split(": ")[1].split()[0]) for line in heads]
    assert len(counts) == 2 and sum(counts) == len(lines) - 2
    assert counts[0] > counts[1] > 1
    assert any(line.endswith(" engine/native.py") for line in lines)
