"""The smoke form: the same stages on stand-ins; what makes a recipe what it is stays."""

from pathlib import Path

import pytest
from small import gradient_norms, whet, write

from whet.config import to_table
from whet.data.problems import read_problems
from whet.models.load import read_shape
from whet.pipeline.pipeline_config import load_pipeline, load_smoke
from whet.pipeline.smoke import guess_family, shrink, write_smoke_inputs
from whet.recipes.make import MakeConfig
from whet.recipes.rl import RLConfig
from whet.store.rollouts import read_rollouts
from whet.toml import flatten
from whet.types import SPLITS, Verdict

OUTSIDE = """kind = "run"
task.name = "game24"
# From outside: a model, answers, and problems of mathematics; then rewards and an algorithm of a recipe's own.
seed = 5

[stages.sft]
kind = "sft"
task = "math"
data = "data/answers.parquet"
model = { path = "Qwen/Qwen3-8B" }
steps = 800

[stages.rl]
kind = "rl"
task = "math"
problems = "data/problems"
model = { path = "@sft" }
steps = 440
group_size = 16
reward = "rlinf"
algo = { name = "dapo", num_minibatches = 16 }
sampling = { temperature = 0.7, max_tokens = 4096 }
dynamic_sampling = { max_extra_problems = 100 }
curriculum = { kind = "staged", stages = [{ max_level = 0.3 }, { min_level = 0.3 }] }

[stages.dpo]
kind = "dpo"
task = "countdown"
model = { path = "meta-llama/Llama-3.1-8B" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "recipe.toml", OUTSIDE)


def test_what_comes_from_outside_becomes_a_stand_in_and_the_rest_of_the_pipeline_is_kept(
    file: Path,
) -> None:
    stages = load_smoke(file, [], Path("here")).config.stages
    sft, rl, dpo = (to_table(stage) for stage in stages.values())

    assert (sft["data"], sft["problems"]) == ("here/sft/answers.parquet", "here/sft")
    assert (rl["problems"], dpo["data"]) == ("here/rl", "here/dpo/answers.parquet")
    paths = [table["path"] for stage in (sft, rl, dpo) if isinstance(table := stage["model"], dict)]
    assert paths == ["here/sft/model-qwen3", "@sft", "here/dpo/model-llama"]


def test_numbers_come_down_and_the_method_stays(file: Path) -> None:
    large, small = (
        load_pipeline(file, []).config.stages["rl"],
        load_smoke(file, [], Path("here")).config.stages["rl"],
    )
    assert isinstance(large, RLConfig) and isinstance(small, RLConfig)

    assert (
        small.steps,
        small.group_size,
        small.algo.num_minibatches,
        small.dynamic_sampling.max_extra_problems,
    ) == (
        2,
        3,
        2,
        2,
    )
    assert (small.sampling.max_tokens, small.sampling.temperature) == (16, 0.7)
    for key in ("task", "curriculum", "train", "seed"):
        assert getattr(small, key) == getattr(large, key), key
    assert (small.reward.weights, small.reward.terms[:-1]) == (
        large.reward.weights,
        large.reward.terms,
    )
    assert small.reward.terms[-1].kind == "random"
    assert small.algo == large.algo.model_copy(update={"num_minibatches": 2})


def test_what_a_flag_sets_stays_and_every_value_says_where_it_is_from(file: Path) -> None:
    loaded = load_smoke(file, ["--stages.rl.steps", "7"], Path("here"))
    rl = loaded.config.stages["rl"]

    assert isinstance(rl, RLConfig) and rl.steps == 7
    keys = (
        "stages.rl.steps",
        "stages.rl.group_size",
        "stages.rl.sampling.temperature",
        "stages.rl.lag",
    )
    assert [loaded.origin[key] for key in keys] == ["cli", "smoke", "recipe.toml", "default"]


def test_a_flag_may_open_a_table_that_the_file_leaves_out(file: Path, tmp_path: Path) -> None:
    rank = ("--stages.rl.model.lora.rank", "4")
    rl = load_smoke(file, rank, Path("here")).config.stages["rl"]
    ended = whet("run", file, "--smoke", "--out", tmp_path / "run", *rank)

    assert isinstance(rl, RLConfig) and rl.model.lora is not None and rl.model.lora.rank == 4
    assert ended.code == 0, ended.err
    assert min(gradient_norms(tmp_path / "run" / "02-rl")["train/grad_norm"]) > 0


def test_a_flag_may_choose_another_variant_of_a_table(file: Path) -> None:
    flags = [
        "--stages.rl.curriculum",
        '{ kind = "mixed" }',
        "--stages.rl.algo",
        '{ name = "ppo", num_minibatches = 3 }',
    ]
    loaded = load_smoke(file, flags, Path("here"))
    rl = loaded.config.stages["rl"]

    assert isinstance(rl, RLConfig)
    assert (rl.curriculum.kind, rl.algo.name, rl.algo.num_minibatches, rl.steps) == (
        "mixed",
        "ppo",
        3,
        3,
    )


def test_numbers_stay_above_those_that_a_flag_sets(file: Path) -> None:
    flags = [
        "--stages.rl.dynamic_sampling.first_samples",
        "5",
        "--stages.rl.critic.warmup_steps",
        "4",
    ]
    flags += ["--stages.rl.algo.name", "ppo"]
    rl = load_smoke(file, flags, Path("here")).config.stages["rl"]

    assert isinstance(rl, RLConfig)
    assert (rl.dynamic_sampling.first_samples, rl.group_size, rl.critic.warmup_steps, rl.steps) == (
        5,
        6,
        4,
        5,
    )


def test_a_student_has_something_to_learn_from_the_stand_in_of_its_teacher(tmp_path: Path) -> None:
    models = """model = { path = "Qwen/Qwen3-0.6B" }\nteacher = { path = "Qwen/Qwen3-8B" }\n"""
    file = write(
        tmp_path / "d.toml",
        f'kind = "run"\ntask.name = "game24"\n[stages.d]\nkind = "distill"\ntask = "countdown"\n{models}',
    )
    ended = whet("run", file, "--smoke", "--out", tmp_path / "run")

    assert ended.code == 0, ended.err
    assert min(gradient_norms(tmp_path / "run" / "01-d")["train/grad_norm"]) > 1e-3


def test_a_small_pipeline_is_not_made_larger() -> None:
    stage = RLConfig.model_validate(
        {
            "task": "game24",
            "problems": "@problems",
            "steps": 2,
            "problems_per_step": 1,
            "group_size": 2,
            "sampling": {"max_tokens": 8},
            "model": {"path": "@sft"},
        }
    )
    small = shrink({"rl": stage}, Path("here"))["rl"]

    assert isinstance(small, dict)
    changed = {
        key for key, value in flatten(to_table(stage)).items() if flatten(small).get(key) != value
    }
    assert changed == {
        "engine.max_num_seqs",
        "validation.samples",
        "grading.workers",
        "reward.terms",
    }


def test_a_make_stage_writes_no_more_than_it_would() -> None:
    stage = MakeConfig(task="game24", most={"sft": 0, "dev": 100})

    small = shrink({"problems": stage}, Path("here"))["problems"]

    most = {"sft": 0, "dev": 6, "rl": 24, "test": 6}
    assert small == {**to_table(stage), "most": most}


def test_stand_ins_are_problems_of_the_task_answers_and_a_model_of_the_family(
    file: Path, tmp_path: Path
) -> None:
    stages = load_smoke(file, [], tmp_path).config.stages
    write_smoke_inputs(stages, tmp_path)

    problems = {
        split: read_problems(tmp_path / "rl" / f"problems-{split}.jsonl") for split in SPLITS
    }
    assert {problem.task for rows in problems.values() for problem in rows} == {"math"}
    assert all({problem.split for problem in rows} == {split} for split, rows in problems.items())
    assert len({problem.level for problem in problems["rl"]}) == 5
    assert {
        rollout.score and rollout.score.verdict
        for rollout in read_rollouts(tmp_path / "sft" / "answers.parquet")
    } == {Verdict.CORRECT}
    assert [read_shape(str(place)).family for place in sorted(tmp_path.glob("*/model-*"))] == [
        "llama",
        "qwen3",
    ]


def test_a_stand_in_has_the_features_of_its_family(tmp_path: Path) -> None:
    text = OUTSIDE.replace("meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1")
    stages = load_smoke(write(tmp_path / "recipe.toml", text), [], tmp_path).config.stages
    write_smoke_inputs({"dpo": stages["dpo"]}, tmp_path)

    shape = read_shape(str(tmp_path / "dpo" / "model-mistral"))
    assert shape.features == {"tied", "sliding_window"}


def test_answers_to_compare_are_right_and_wrong(file: Path, tmp_path: Path) -> None:
    write_smoke_inputs(load_smoke(file, [], tmp_path).config.stages, tmp_path)

    groups: dict[str, set[Verdict]] = {}
    for rollout in read_rollouts(tmp_path / "dpo" / "answers.parquet"):
        assert rollout.score is not None
        groups.setdefault(rollout.group_id, set()).add(rollout.score.verdict)
    assert len(groups) == 2 and all(
        Verdict.CORRECT in found and len(found) > 1 for found in groups.values()
    )


def test_families_are_told_from_names() -> None:
    names = (
        "Qwen/Qwen2.5-Math-7B",
        "Qwen/Qwen3-0.6B",
        "meta-llama/Llama-3.2-1B",
        "agentica-org/DeepScaleR-1.5B-Preview",
        "mistralai/Mistral-7B-v0.1",
    )

    assert [guess_family(name) for name in names] == ["qwen2", "qwen3", "llama", "qwen2", "mistral"]


def test_a_second_smoke_run_repeats_nothing(file: Path, tmp_path: Path) -> None:
    first = whet("run", file, "--smoke", "--out", tmp_path / "run")
    second = whet("run", file, "--smoke", "--out", tmp_path / "run")

    assert (first.code, second.code) == (0, 0), first.err
    assert second.err.count("done before") == 3


def test_a_teacher_that_would_be_asked_is_the_task_itself(tmp_path: Path) -> None:
    teacher = '{ kind = "server", url = "http://127.0.0.1:9/v1", model = "big" }'
    text = f"""kind = "run"
task = "math"
[stages.teach]
kind = "teach"
problems = "data/mine"
teacher = {teacher}
[stages.sft]
kind = "sft"
data = "@teach"
problems = "data/mine"
model = {{ path = "Qwen/Qwen3-8B" }}
"""
    file = write(tmp_path / "served.toml", text)
    said = whet("run", file, "--smoke", "--out", tmp_path / "run")
    assert said.code == 0, said.err
