"""The settings of all stages: how many there are, what each means, which are refused, and how files
build on each other."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from small import whet, write

from whet.config_errors import FOREIGN, MOVED, find_settings_classes
from whet.engine.base import SamplingParams
from whet.pipeline.pipeline_config import PipelineConfig
from whet.toml import TAGS

RL = 'kind = "rl"\ntask = "game24"\nmodel = { path = "m" }\n'
GRPO = f'{RL}algo = {{ name = "grpo" }}\n'
RUN = 'kind = "run"\ntask = "game24"\n[stages.a]\nkind = "rl"\nmodel = { path = "m" }\n'


def reachable(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    if model not in seen:
        seen.add(model)
        yield model
        for field in model.model_fields.values():
            for below in find_settings_classes(field.annotation):
                yield from reachable(below, seen)


CLASSES = list(reachable(PipelineConfig, set()))


def shown(file: Path, *flags: object) -> dict[str, tuple[str, str]]:
    """Read what `whet show` prints: key -> value and origin."""
    said = whet("show", file, *flags)
    assert said.code == 0, said.err
    rows = {}
    for line in said.out.splitlines():
        key, _, rest = line.partition(" = ")
        value, _, origin = rest.rpartition("  # ")
        rows[key.strip()] = (value.strip(), origin)
    return rows


def test_a_minimal_grpo_file_has_at_most_sixty_settings_and_eight_of_ranks(tmp_path: Path) -> None:
    names = shown(write(tmp_path / "x.toml", GRPO)).keys()
    num_cluster = sum(name.startswith("cluster.") for name in names)
    assert num_cluster <= 8
    assert len(names) - num_cluster <= 60


def test_a_table_in_which_all_but_one_value_are_none_is_shown_on_one_line(tmp_path: Path) -> None:
    rows = shown(write(tmp_path / "x.toml", GRPO))
    assert [key for key in rows if key.startswith(("model.", "curriculum."))] == [
        "model.path",
        "curriculum.kind",
    ]
    rows = shown(tmp_path / "x.toml", "--model.chat_template", "raw")
    assert [key for key in rows if key.startswith("model.")] == [
        "model.path",
        "model.chat_template",
        "model.lora",
    ]


@pytest.mark.parametrize("kind", ["rl", "sft", "eval", "teach"])
def test_a_file_names_its_task(kind: str, tmp_path: Path) -> None:
    text = f'kind = "{kind}"\ndata = "d"\nmodel = {{ path = "m" }}\n'
    needed = {"rl": text.replace('data = "d"\n', ""), "sft": text}
    needed["eval"] = needed["rl"].replace('"rl"', '"eval"')
    needed["teach"] = 'kind = "teach"\n'
    said = whet("show", write(tmp_path / "x.toml", needed[kind]))
    assert (said.code, said.last) == (
        2,
        'whet: "task" is missing: set it in the file or with --task',
    )


@pytest.mark.parametrize("model", CLASSES, ids=lambda model: model.__name__)
def test_every_setting_has_a_meaning(model: type[BaseModel]) -> None:
    fields = {name: field for name, field in model.model_fields.items() if name not in TAGS}
    assert [name for name, field in fields.items() if not field.description] == []


def test_explain_adds_the_meaning_of_every_setting(tmp_path: Path) -> None:
    said = whet("show", write(tmp_path / "x.toml", GRPO), "--explain")
    lines = said.out.splitlines()
    assert "train.lr " in said.out and "# default: Peak learning rate" in said.out
    assert [line for line in lines if line.endswith(": ")] == []
    assert len(lines) == len(shown(tmp_path / "x.toml"))


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (
            ("--algo.name", "dr_grpo", "--algo.gamma", "0.9"),
            'algo.gamma = 0.9 has no effect: it is for advantage = "to_go" or "gae"',
        ),
        (
            ("--algo.name", "rloo", "--algo.ddof", "0"),
            'algo.ddof = 0 has no effect: it is for advantage = "zscore"',
        ),
        (
            ("--algo.max_momentum", "0.2"),
            'algo.max_momentum = 0.2 has no effect: it is for advantage = "momentum"',
        ),
        (
            ("--algo.clip_high", "0.3"),
            "algo.clip_high = 0.3 has no effect: with num_minibatches = 1 every ratio is 1",
        ),
        (
            ("--algo.name", "cispo", "--algo.num_minibatches", "2", "--algo.clip_low", "0.3"),
            'algo.clip_low = 0.3 has no effect: surrogate = "cispo" bounds the ratio only by clip_high',
        ),
        (("--algo.kl_estimator", "k3"), 'algo.kl_estimator = "k3" has no effect: kl_coef is 0'),
        (
            ("--algo.importance_correction.high", "3.0"),
            'algo.importance_correction.high = 3.0 has no effect: importance_correction.rule is "none"',
        ),
        (
            ("--critic.lr", "1e-05"),
            'critic.lr = 1e-05 has no effect: algo.name = "grpo" needs no critic; ppo does',
        ),
        (
            ("--reward", "tango_solver"),
            "reward.step_weight = 1.0 has no effect: rl has no verifier to judge steps; tango has",
        ),
        (
            ("--train.offload_reference",),
            "train.offload_reference = true has no effect: there is no model beside the one that "
            "trains",
        ),
        (
            (
                "--algo.kl_coef",
                "0.1",
                "--train.reference_url",
                "http://localhost:8000",
                "--train.offload_reference",
            ),
            "train.offload_reference = true has no effect: train.reference_url names a server that "
            "has it",
        ),
        (
            ("--train.final_lr", "0.1"),
            'train.final_lr = 0.1 has no effect: lr_schedule = "constant" stays at lr',
        ),
        (("--guard.lr_factor", "0.1"), "guard.lr_factor = 0.1 has no effect: guard.restores is 0"),
        (("--track.project", "p"), 'track.project = "p" has no effect: track.sinks has no "wandb"'),
        (
            ("--model.positions", "9"),
            "model.positions = 9 has no effect: it is for a model that starts from random weights, "
            "by `new`",
        ),
        (
            (
                "--curriculum",
                '{ kind = "staged", stages = [{ temperature = 0.5 }] }',
                "--final_temperature",
                "0.5",
            ),
            "final_temperature = 0.5 has no effect: every stage of the curriculum has "
            "its own temperature",
        ),
        (
            ("--train.beta1", "0.8"),
            "train.beta1 = 0.8 has no effect: it is not a setting, but always 0.9",
        ),
        (("--engine.window", "4"), "engine.window = 4 has no effect: it is not a setting"),
    ],
)
def test_a_setting_without_effect_is_refused_with_the_reason(
    flags: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    said = whet("show", write(tmp_path / "x.toml", RL), *flags)
    assert (said.code, said.last) == (2, f"whet: {reason}; leave it out")


def test_cuts_have_no_effect_on_greedy_sampling() -> None:
    reasons = SamplingParams(temperature=0.0, top_p=0.9).without_effect()
    assert reasons["top_p"] == "temperature = 0 always takes the most likely token"


def test_rl_refuses_a_temperature_at_which_all_answers_are_the_same(tmp_path: Path) -> None:
    said = whet("show", write(tmp_path / "x.toml", GRPO), "--sampling.temperature", "0")
    assert said.code == 2
    assert "gives all responses to a problem the same tokens" in said.err


def test_a_setting_without_effect_names_the_file_that_sets_it(tmp_path: Path) -> None:
    said = whet("show", write(tmp_path / "x.toml", f"{RL}critic.warmup_steps = 3\n"))
    assert said.last.startswith("whet: critic.warmup_steps = 3 in x.toml has no effect: ")


def test_a_setting_with_effect_under_other_settings_is_taken(tmp_path: Path) -> None:
    flags = ("--algo.name", "ppo", "--algo.gamma", "0.9", "--critic.warmup_steps", 2)
    rows = shown(write(tmp_path / "x.toml", RL), *flags)
    assert rows["algo.gamma"] == ("0.9", "cli") and rows["critic.warmup_steps"] == ("2", "cli")


SFT = 'kind = "sft"\ntask = "game24"\ndata = "d"\nmodel = { path = "m" }\n'
TANGO = 'kind = "tango"\ntask = "game24"\nmodel = { path = "m" }\nverifier = { path = "m" }\n'


def stage_with(key: str) -> str:
    return SFT if key == "batch" else TANGO if key.startswith("verifier_") else RL


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_a_setting_that_moved_is_answered_with_where_it_went(
    old: str, new: str, tmp_path: Path
) -> None:
    said = whet("show", write(tmp_path / "one.toml", stage_with(old)), f"--{old}", 3)
    assert (said.code, said.last) == (2, f'whet: unknown flag --{old}; it is called "{new}" now')


@pytest.mark.parametrize("new", MOVED.values())
def test_a_setting_that_moved_went_to_one_that_is_there(new: str, tmp_path: Path) -> None:
    file = write(tmp_path / "one.toml", stage_with(new.replace("batch_size", "batch")))
    said = whet("show", file, f"--{new}.nothing", 3)
    assert f"--{new}.nothing" in said.last or f"{new} = " in said.last


def test_a_setting_that_moved_is_found_in_the_stages_of_a_file(tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", f"{RUN}train = {{ clip = 0.5 }}\n")
    assert whet("show", run).last == (
        'whet: unknown key "stages.a.train.clip" in run.toml; it is called '
        '"stages.a.train.max_grad_norm" now'
    )


@pytest.mark.parametrize("name", FOREIGN)
def test_a_setting_of_another_system_is_answered_with_the_one_here(
    name: str, tmp_path: Path
) -> None:
    said = whet("show", write(tmp_path / "one.toml", RL), f"--{name}", 3)
    expected = FOREIGN[name] if " " in FOREIGN[name] else f'it is called "{FOREIGN[name]}" here'
    assert (said.code, said.last) == (2, f"whet: unknown flag --{name}; {expected}")


def test_a_setting_of_another_system_is_placed_in_its_stage_and_only_where_there_is_one(
    tmp_path: Path,
) -> None:
    run = whet("show", write(tmp_path / "run.toml", RUN), "--stages.a.algo.beta", 0.1)
    sft = whet("show", write(tmp_path / "sft.toml", SFT), "--num_generations", 8)
    assert run.last.endswith('; it is called "stages.a.algo.kl_coef" here')
    assert "known keys: " in sft.last


def test_a_bare_name_is_the_origin_of_the_name_alone(tmp_path: Path) -> None:
    rows = shown(write(tmp_path / "x.toml", GRPO), "--task", "game24")
    assert rows["task.name"] == ('"game24"', "cli")
    assert rows["task.format"] == ('"v0"', "default")


def test_a_file_extends_another_and_every_key_shows_the_file_it_came_from(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", f"{RL}steps = 5\ntrain = {{ lr = 0.1, warmup_steps = 2 }}\n")
    (tmp_path / "more").mkdir()
    write(
        tmp_path / "more" / "mid.toml", 'extends = "../base.toml"\ntrain = { warmup_steps = 3 }\n'
    )
    file = write(tmp_path / "top.toml", 'kind = "rl"\nextends = "more/mid.toml"\nsteps = 6\n')
    rows = shown(file)
    assert rows["steps"] == ("6", "top.toml")
    assert rows["train.warmup_steps"] == ("3", "mid.toml")
    assert rows["train.lr"] == ("0.1", "base.toml")


def test_a_table_that_picks_another_variant_is_not_mixed_with_that_of_the_base(
    tmp_path: Path,
) -> None:
    write(tmp_path / "base.toml", f'{RL}algo = {{ name = "ppo", gamma = 0.9 }}\n')
    file = write(
        tmp_path / "x.toml", 'kind = "rl"\nextends = "base.toml"\nalgo = { name = "rloo" }\n'
    )
    assert "algo.gamma" not in shown(file)


def test_files_that_extend_each_other_are_refused_in_a_sentence(tmp_path: Path) -> None:
    write(tmp_path / "a.toml", 'kind = "rl"\nextends = "b.toml"\n')
    write(tmp_path / "b.toml", 'kind = "rl"\nextends = "a.toml"\n')
    said = whet("show", tmp_path / "a.toml")
    assert said.code == 2
    assert said.last == (
        "whet: a.toml -> b.toml -> a.toml: these files extend each other in a circle"
    )


def test_a_file_cannot_extend_one_of_another_kind_or_one_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", RUN)
    file = write(tmp_path / "x.toml", 'kind = "rl"\nextends = "base.toml"\n')
    assert (
        "is of kind 'rl' and extends base.toml, which is of kind 'run'" in whet("show", file).last
    )
    write(file, 'kind = "rl"\nextends = "none.toml"\n')
    assert whet("show", file).last == f"whet: there is no file {tmp_path / 'none.toml'}"


def test_what_stands_above_the_stages_is_for_every_stage_that_knows_it(tmp_path: Path) -> None:
    text = """kind = "run"
task = { name = "game24", unsolvable = true }
sampling = { max_tokens = 7, top_p = 0.5 }
[stages.problems]
kind = "make"
[stages.rl]
kind = "rl"
model = { path = "m" }
sampling = { max_tokens = 9 }
[stages.other]
kind = "eval"
model = { path = "@rl" }
task = { name = "arithmetic" }
"""
    rows = shown(write(tmp_path / "p.toml", text), "--sampling.top_k", 3)
    assert rows["stages.problems.task.unsolvable"] == ("true", "p.toml")
    assert "stages.problems.sampling.top_p" not in rows
    assert rows["stages.rl.sampling.max_tokens"] == ("9", "p.toml")
    assert rows["stages.rl.sampling.top_p"] == ("0.5", "p.toml")
    assert rows["stages.other.sampling.max_tokens"] == ("7", "p.toml")
    assert rows["stages.other.sampling.top_k"] == ("3", "cli")
    assert rows["stages.other.task.name"] == ('"arithmetic"', "p.toml")
    assert "stages.other.task.unsolvable" not in rows
    assert rows["stages.rl.train.lr"] == ("1e-05", "default")


def test_what_no_stage_knows_is_an_unknown_key_above_them_too(tmp_path: Path) -> None:
    said = whet("show", write(tmp_path / "p.toml", RUN), "--taks", "game24")
    assert said.code == 2 and "unknown flag --taks" in said.last


def test_a_wrong_value_above_the_stages_is_named_with_its_key_and_file(tmp_path: Path) -> None:
    file = write(tmp_path / "p.toml", RUN.replace("[stages", 'train = { lr = "x" }\n[stages'))
    assert whet("show", file).last == (
        'whet: stages.a.train.lr = "x" in p.toml: should be a number'
    )
    said = whet("show", write(file, RUN), "--train.betas", 3)
    assert said.last == (
        'whet: unknown flag --stages.a.train.betas; did you mean "stages.a.train.beta2"?'
    )


def test_an_empty_table_for_a_task_is_answered_with_the_tasks_there_are(tmp_path: Path) -> None:
    said = whet("show", write(tmp_path / "x.toml", RL.replace('"game24"', "{}")))
    assert said.code == 2
    assert said.last.startswith('whet: task.name = none: should be one of "math", "game24",')


def test_a_setting_of_a_stage_that_lacks_its_table_is_found_in_a_pipeline(tmp_path: Path) -> None:
    said = whet("show", write(tmp_path / "p.toml", RUN), "--lr", 1)
    assert said.last == 'whet: unknown flag --lr; did you mean "train.lr"?'
