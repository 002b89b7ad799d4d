"""On-policy distillation: a policy comes closer to its teacher on answers of its own."""

import shutil
from pathlib import Path
from statistics import fmean

import pytest
from small import Pipeline, Said, check_clock, check_metrics, whet, write

from bench.kill_resume import facts
from whet.store.run import RunStore
from whet.testing.tiny import tiny_policy
from whet.track.metrics import MACHINE_AREAS

DISTILL = """kind = "distill"
task.name = "game24"
seed = 4
steps = 20
problems_per_step = 16
samples = 4
model = {{ path = "{folder}/03-sft/checkpoints/000020" }}
teacher = {{ path = "{teacher}" }}
problems = "{folder}/01-problems"
sampling = {{ max_tokens = 24 }}
train = {{ lr = 4e-3 }}
validation = {{ samples = 1 }}
save = {{ every = 4 }}
"""


def distill(tiny: Pipeline, place: Path, *flags: object, teacher: Path | None = None) -> Said:
    text = DISTILL.format(
        folder=tiny.folder, teacher=teacher or tiny.folder / "03-sft" / "checkpoints" / "000040"
    )
    return whet("distill", write(place / "distill.toml", text), "--out", place / "run", *flags)


@pytest.fixture(scope="module")
def place(tiny: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("distill")
    said = distill(tiny, place)
    assert said.code == 0, said.err
    return place


def rows(folder: Path) -> list[dict[str, float]]:
    """The training rows of a run, without what a clock measured."""
    return [
        {name: value for name, value in row.items() if not name.startswith(MACHINE_AREAS)}
        for row in RunStore.view(folder).metrics()
        if "validation/pass@1" not in row
    ]


def test_every_step_logs_where_its_time_went(place: Path) -> None:
    check_clock(place / "run", samples=True)


def test_the_kl_to_the_teacher_falls(place: Path) -> None:
    found = [row["distill/kl"] for row in rows(place / "run")]
    print(found)
    assert len(found) == 20
    assert fmean(found[-3:]) < 0.7 * fmean(found[:2])


def test_on_policy_the_loss_is_the_kl_and_the_advantage_is_minus_it_on_average(place: Path) -> None:
    for row in rows(place / "run"):
        assert row["loss"] == pytest.approx(row["distill/kl"], rel=1e-4)
        assert row["policy/engine_gap"] < 1e-3
        assert "reward/mean" not in row
    assert fmean(row["distill/advantage"] for row in rows(place / "run")) < 0


def test_a_policy_that_is_its_own_teacher_has_nothing_to_learn(
    tiny: Pipeline, tmp_path: Path
) -> None:
    itself = tiny.folder / "03-sft" / "checkpoints" / "000020"
    said = distill(tiny, tmp_path, "--steps", 1, teacher=itself)
    assert said.code == 0, said.err
    [row] = rows(tmp_path / "run")
    assert row["distill/kl"] == pytest.approx(0.0, abs=1e-6)
    assert row["train/grad_norm"] < 1e-4


def test_a_run_that_was_stopped_ends_as_one_that_was_not(place: Path, tmp_path: Path) -> None:
    again = Path(shutil.copytree(place, tmp_path / "again"))
    (again / "run" / "summary.json").unlink()
    shutil.rmtree(again / "run" / "checkpoints" / "000020")
    said = whet("distill", place / "distill.toml", "--out", again / "run", "--resume")
    assert said.code == 0, said.err
    assert "resuming from step 16" in said.err
    assert facts(again, ["run"]) == facts(place, ["run"])


def test_a_split_without_problems_is_named_and_not_taken_for_examples_that_are_too_long(
    tiny: Pipeline, tmp_path: Path
) -> None:
    for split in ("rl", "dev"):
        (tmp_path / f"problems-{split}.jsonl").touch()
    said = distill(tiny, tmp_path, "--problems", tmp_path, teacher=tiny.folder / "03-sft")
    assert said.code == 2
    assert said.last == f"whet: {tmp_path}/problems-rl.jsonl holds no problem: give another"


def test_a_teacher_of_another_tokenizer_is_refused(tiny: Pipeline, tmp_path: Path) -> None:
    tiny_policy().save(tmp_path / "teacher")
    said = distill(tiny, tmp_path, teacher=tmp_path / "teacher")
    assert said.code == 2
    assert said.last == (
        f"whet: teacher.path = '{tmp_path}/teacher' has a different tokenizer from the model, so "
        "it cannot read its tokens; choose a teacher of the same family"
    )


def test_a_teacher_that_reads_less_than_the_policy_writes_is_refused(
    tiny: Pipeline, tmp_path: Path
) -> None:
    short = Path(
        shutil.copytree(tiny.folder / "03-sft" / "checkpoints" / "000040", tmp_path / "short")
    )
    config = short / "config.json"
    config.write_text(
        config.read_text().replace('"max_position_embeddings": 48', '"max_position_embeddings": 40')
    )
    said = distill(tiny, tmp_path, teacher=short)
    assert said.code == 2
    assert said.last.endswith(
        "reads 40 tokens, fewer than the 48 of the policy; set engine.max_model_len to at most 40"
    )


def test_stages_of_a_pipeline_can_be_model_and_teacher(tiny: Pipeline, tmp_path: Path) -> None:
    text = DISTILL.format(folder=tiny.folder, teacher="@sft").split("steps = 20")[1]
    sft = f'data = "{tiny.folder}/02-traces"\nsteps = 2\nmodel = {{ new = "tiny", positions = 48 }}'
    file = write(
        tmp_path / "p.toml",
        f'kind = "run"\ntask.name = "game24"\n[stages.sft]\nkind = "sft"\n{sft}\n[stages.distill]\nkind = "distill"\nsteps = 1\n'
        + text.replace(f"{tiny.folder}/03-sft/checkpoints/000020", "@sft"),
    )
    said = whet("run", file, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert len(rows(tmp_path / "run" / "02-distill")) == 1


def test_a_teacher_in_host_memory_teaches_the_same(tiny: Pipeline, tmp_path: Path) -> None:
    found = []
    for name in ("false", "true"):
        (tmp_path / name).mkdir()
        said = distill(tiny, tmp_path / name, "--steps", 2, "--train.offload_reference", name)
        assert said.code == 0, said.err
        found.append(rows(tmp_path / name / "run"))
    assert found[0] == found[1]


def test_the_metrics_of_a_run_are_those_documented(place: Path) -> None:
    check_metrics(place / "run", "distill")
