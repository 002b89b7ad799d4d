"""What a user gets wrong, and what they are told: one sentence, exit code 2, no traceback, nothing
half-written."""

import json
import os
import resource
import shutil
from pathlib import Path

import pytest
from small import Pipeline, Said, half_written, whet, write

from whet.store.lock import Lock

SFT = 'kind = "sft"\ntask.name = "game24"\ndata = "{data}"\nsteps = 2\nmodel = {{ {model} }}\nvalidation = {{ samples = 1 }}\n'
RL = 'kind = "rl"\ntask.name = "game24"\nsteps = 2\nproblems_per_step = 2\ngroup_size = 2\nmodel = {{ path = "{model}" }}\n'
NEW = 'new = "tiny", positions = 48'


def is_one_sentence(said: Said) -> bool:
    """Whether the last line is the only one of whet's own, and nothing else went wrong."""
    own = [line for line in said.err.splitlines() if line.startswith("whet: ")]
    return said.code == 2 and own == [said.last] and "Traceback" not in said.err


def sft(tmp_path: Path, data: object, model: str = NEW, *flags: object) -> Said:
    file = write(tmp_path / "sft.toml", SFT.format(data=data, model=model))
    return whet("sft", file, "--out", tmp_path / "run", *flags)


def rl(tmp_path: Path, model: object, *flags: object) -> Said:
    return whet(
        "rl", write(tmp_path / "rl.toml", RL.format(model=model)), "--out", tmp_path / "run", *flags
    )


def test_an_unknown_key_gets_the_nearest_name(tmp_path: Path) -> None:
    file = write(
        tmp_path / "x.toml",
        'kind = "sft"\ntask.name = "game24"\ndata = "x"\nmodel = { new = "tiny" }\n[train]\nlearning_rat = 1.0\nwarmupp = 3\n',
    )
    said = whet("sft", file, "--out", tmp_path / "run")
    assert is_one_sentence(said)
    assert 'unknown key "train.' in said.last
    assert not (tmp_path / "run").exists()


def test_an_unknown_flag_gets_the_nearest_name(tmp_path: Path, tiny: Pipeline) -> None:
    said = sft(tmp_path, tiny.folder / "02-traces", NEW, "--train.warmup_stpes", 3)
    assert is_one_sentence(said)
    assert (
        said.last == 'whet: unknown flag --train.warmup_stpes; did you mean "train.warmup_steps"?'
    )
    assert not (tmp_path / "run").exists()


def test_a_flag_of_another_verb_is_not_taken_for_a_name_that_it_hardly_resembles(
    tmp_path: Path,
) -> None:
    said = rl(tmp_path, "m", "--smoke")
    assert is_one_sentence(said)
    assert said.last.startswith("whet: unknown flag --smoke; known keys: algo, ")


def test_a_flag_for_a_stage_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    file = write(
        tmp_path / "p.toml",
        'kind = "run"\ntask.name = "game24"\n[stages.a]\nkind = "make"\n[stages.b]\nkind = "teach"\n',
    )
    said = whet("run", file, "--stages.xx.steps", 3)
    assert is_one_sentence(said)
    assert said.last == 'whet: unknown flag --stages.xx.steps; there is no "stages.xx", only a, b'
    assert whet("show", file, "--stages.xx.kind", "make").code == 0
    said = whet("show", write(file, 'kind = "run"\ntask.name = "game24"\n[stages.a]\nseed = 1\n'))
    assert said.last.startswith("whet: stages.a.kind = none: should be one of ")


def test_an_unknown_key_of_a_stage_gets_the_nearest_name(tmp_path: Path) -> None:
    file = write(
        tmp_path / "p.toml",
        'kind = "run"\ntask.name = "game24"\n[stages.traces]\nkind = "teach"\nper_problm = 3\n',
    )
    said = whet("run", file, "--out", tmp_path / "run")
    assert is_one_sentence(said)
    assert said.last == (
        'whet: unknown key "stages.traces.per_problm" in p.toml; did you mean "stages.traces.per_problem"?'
    )


@pytest.mark.parametrize("verb", ["run", "sft", "rl", "teach", "eval", "show"])
def test_a_missing_file_is_named(tmp_path: Path, verb: str) -> None:
    said = whet(verb, tmp_path / "nothing.toml")
    assert is_one_sentence(said)
    assert said.last == f"whet: there is no file {tmp_path / 'nothing.toml'}"


def test_a_wrong_type_is_named_with_its_value(tmp_path: Path) -> None:
    said = sft(tmp_path, "x", NEW, "--steps", "many")
    assert is_one_sentence(said)
    assert said.last == 'whet: steps = "many": should be a whole number'
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "text", ["", "steps = 3\n", 'steps = 3\nkind = "sft"\ntask.name = "game24"\n']
)
def test_a_file_without_a_kind_in_its_first_line_is_refused(tmp_path: Path, text: str) -> None:
    said = whet("show", write(tmp_path / "x.toml", text))
    assert is_one_sentence(said)
    assert said.last.endswith('its first line should be like kind = "rl"')


def test_a_file_of_another_kind_says_which_verb_to_use(tmp_path: Path) -> None:
    file = write(tmp_path / "x.toml", RL.format(model="m"))
    said = whet("sft", file)
    assert is_one_sentence(said)
    assert (
        said.last
        == f"whet: {file} is of kind 'rl': use `whet rl {file}`, or give a file of kind 'sft'"
    )


def test_an_unknown_kind_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    said = whet("show", write(tmp_path / "x.toml", 'kind = "dance"\n'))
    assert is_one_sentence(said)
    kinds = "run, make, teach, sft, difficulty, rl, dpo, distill, tango, verifications, eval"
    assert said.last.endswith(f"says kind = 'dance'; known kinds: {kinds}")


def test_a_file_of_a_kind_without_a_verb_is_not_sent_to_one(tmp_path: Path) -> None:
    file = write(tmp_path / "x.toml", 'kind = "make"\ntask.name = "game24"\n')
    said = whet("run", file)
    assert is_one_sentence(said)
    assert said.last == f"whet: {file} is of kind 'make', but `whet run` runs files of kind 'run'"


def test_a_model_folder_without_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    said = rl(tmp_path, tmp_path / "model")
    assert is_one_sentence(said)
    assert (
        said.last
        == f"whet: model folder '{tmp_path}/model' needs a config.json and safetensors weights"
    )
    assert half_written(tmp_path) == []


def test_a_model_folder_with_broken_weights_is_named(tiny: Pipeline, tmp_path: Path) -> None:
    assert whet("export", tiny.folder, tmp_path / "model").code == 0
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    said = rl(tmp_path, tmp_path / "model")
    assert is_one_sentence(said)
    assert f"'{weights}' is not a readable safetensors file" in said.last


def test_a_model_that_is_nowhere_is_named(tmp_path: Path) -> None:
    said = rl(tmp_path, tmp_path / "nowhere")
    assert is_one_sentence(said)
    assert (
        said.last
        == f"whet: model '{tmp_path}/nowhere' is neither a folder nor a hub id such as Qwen/Qwen3-0.6B"
    )


def test_an_unknown_size_is_answered_with_the_known_ones(tiny: Pipeline, tmp_path: Path) -> None:
    said = sft(tmp_path, tiny.folder / "02-traces", 'new = "giant"')
    assert is_one_sentence(said)
    assert (
        said.last
        == 'whet: model.new = "giant" in sft.toml: should be one of tiny, mini, small, medium, large'
    )


def test_a_model_both_new_and_from_a_folder_is_refused(tiny: Pipeline, tmp_path: Path) -> None:
    said = sft(tmp_path, tiny.folder / "02-traces", 'new = "tiny", path = "x"')
    assert is_one_sentence(said)
    assert "give path (a folder or hub id) or new (a size), and not both" in said.last


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            'model = { new = "enormous" }',
            'model.new = "enormous" in p.toml: should be one of tiny, mini, small,',
        ),
        (
            'model = { new = "tiny", path = "x" }',
            "stages.rl.model: give path (a folder or hub id) or new (a size), and",
        ),
        (
            "model = {}",
            "stages.rl.model: give path (a folder or hub id) or new (a size), and not both",
        ),
        (
            'model = { new = "tiny", lora = { rank = 2 } }',
            "stages.rl.model: lora adapts existing weights",
        ),
        (
            "dynamic_sampling = { first_samples = 8 }",
            "stages.rl: dynamic_sampling.first_samples = 8 should be below group_size = 8",
        ),
        (
            'algo = { name = "tango_grpo" }',
            'stages.rl: algo.name = "tango_grpo" credits judged steps',
        ),
    ],
)
def test_a_mistake_that_the_settings_show_is_told_before_the_first_stage(
    tmp_path: Path, setting: str, words: str
) -> None:
    model = "" if setting.startswith("model") else 'model = { path = "@sft" }\n'
    text = 'kind = "run"\ntask.name = "game24"\n[stages.problems]\nkind = "make"\n[stages.sft]\nkind = "sft"\ndata = "x"\n'
    text += f'model = {{ new = "tiny" }}\n[stages.rl]\nkind = "rl"\n{model}{setting}\n'
    said = whet("run", write(tmp_path / "p.toml", text), "--out", tmp_path / "run")
    assert is_one_sentence(said), said.err
    assert words in said.last
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flag", "most"),
    [("engine.max_num_seqs", 65536), ("sampling.top_k", 1000000)],
)
def test_a_number_beyond_all_machines_is_answered_with_the_most(
    tmp_path: Path, flag: str, most: int
) -> None:
    said = rl(tmp_path, "m", f"--{flag}", "99999999999999999999")
    assert is_one_sentence(said)
    assert said.last == f"whet: {flag} = 99999999999999999999: should be at most {most}"
    said = whet("show", tmp_path / "rl.toml", f"--{flag}", most)
    assert said.code == 0, said.err


def test_more_answers_than_a_person_reads_are_refused(tiny: Pipeline) -> None:
    said = whet("try", tiny.folder, "4 6 8 1", "--samples", 100_000_000)
    assert said.code == 2 and "'--samples'" in said.last and "1000" in said.last


@pytest.mark.parametrize("depth", [70, 350, 5000])
def test_settings_nested_too_deeply_are_one_sentence(tmp_path: Path, depth: int) -> None:
    lists = "[" * depth + "]" * depth
    for text in (f"x = {lists}", f"[{'a.' * depth}a]", f"x = {'{a=' * depth}1{'}' * depth}"):
        file = write(tmp_path / "x.toml", f'kind = "rl"\ntask.name = "game24"\n{text}\n')
        said = whet("rl", file)
        assert is_one_sentence(said)
        assert said.last == f"whet: {file} nests tables or lists too deeply"
    said = rl(tmp_path, "m", "--steps", lists)
    assert is_one_sentence(said)
    assert said.last.endswith("should be a whole number")


def test_a_new_model_for_rl_is_refused(tmp_path: Path) -> None:
    said = whet(
        "rl",
        write(
            tmp_path / "rl.toml", 'kind = "rl"\ntask.name = "game24"\nmodel = { new = "tiny" }\n'
        ),
        "--out",
        tmp_path / "run",
    )
    assert is_one_sentence(said)
    assert "rl needs a model that can answer" in said.last


def test_data_that_are_nowhere_are_named(tmp_path: Path) -> None:
    said = sft(tmp_path, tmp_path / "nowhere")
    assert is_one_sentence(said)
    assert said.last == f"whet: data = '{tmp_path}/nowhere' is neither a file nor a run folder"


def test_a_data_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    said = sft(tmp_path, tmp_path / "data")
    assert is_one_sentence(said)
    assert str(tmp_path / "data") in said.last


def test_a_run_folder_without_rollouts_is_no_data(tiny: Pipeline, tmp_path: Path) -> None:
    said = sft(tmp_path, tiny.folder / "01-problems")
    assert is_one_sentence(said)
    assert str(tiny.folder / "01-problems") in said.last


def test_a_data_file_that_holds_no_rollouts_is_named(tmp_path: Path) -> None:
    said = sft(tmp_path, write(tmp_path / "data.parquet", "no parquet"))
    assert is_one_sentence(said)
    assert str(tmp_path / "data.parquet") in said.last


def test_a_broken_line_of_problems_is_named_by_file_and_number(
    tiny: Pipeline, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny.folder / "01-problems", tmp_path / "problems"))
    file = folder / "problems-rl.jsonl"
    lines = file.read_text().splitlines()
    lines[4] = lines[4][:40]
    file.write_text("\n".join(lines))
    said = rl(tmp_path, tiny.folder / "03-sft", "--problems", folder)
    assert is_one_sentence(said)
    assert f"broken JSON in {file} line 5" in said.last


def test_a_problem_that_lacks_a_field_is_named_by_file_and_number(
    tiny: Pipeline, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny.folder / "01-problems", tmp_path / "problems"))
    file = folder / "problems-rl.jsonl"
    lines = file.read_text().splitlines()
    row = json.loads(lines[2])
    del row["prompt"]
    lines[2] = json.dumps(row)
    file.write_text("\n".join(lines))
    said = rl(tmp_path, tiny.folder / "03-sft", "--problems", folder)
    assert is_one_sentence(said)
    assert f"{file} line 3" in said.last
    assert "prompt" in said.last


def test_a_folder_without_problems_is_named(tiny: Pipeline, tmp_path: Path) -> None:
    said = rl(tmp_path, tiny.folder / "03-sft", "--problems", tmp_path)
    assert is_one_sentence(said)
    assert said.last.startswith(f"whet: {tmp_path} has no problems-rl.jsonl: give a folder")


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = rl(tmp_path, tiny.folder / "03-sft", "--engine.max_model_len", 4)
    assert said.code == 2 and "Traceback" not in said.err
    assert said.err.count("- every prompt leaves no room in a context of 4 tokens: game24/") == 2


def test_data_longer_than_the_context_leave_nothing_to_learn_from(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = sft(tmp_path, tiny.folder / "02-traces", 'new = "tiny", positions = 4')
    assert is_one_sentence(said)
    assert "there is nothing to learn from" in said.last


def test_a_reward_part_that_the_task_does_not_score_is_answered_with_those_it_does(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = rl(tmp_path, tiny.folder / "03-sft", "--reward.weights.beauty", 1.0)
    assert is_one_sentence(said)
    assert said.last == (
        "whet: reward.weights names 'beauty', which game24 does not score: correct, finished, length, lines, process, progress"
    )


def test_a_run_folder_with_other_settings_is_refused_with_the_difference(
    tiny: Pipeline, tmp_path: Path
) -> None:
    assert sft(tmp_path, tiny.folder / "02-traces").code == 0
    said = sft(tmp_path, tiny.folder / "02-traces", NEW, "--steps", 3, "--batch_size", 4)
    assert is_one_sentence(said)
    assert said.last == (
        f"whet: {tmp_path / 'run'} holds a run with other settings (steps: 2 -> 3; batch_size: 32 -> 4): "
        "go back to those, or choose another folder"
    )


def test_a_run_folder_that_another_process_writes_is_refused(
    tiny: Pipeline, tmp_path: Path
) -> None:
    lock = Lock(tmp_path / "run")
    said = sft(tmp_path, tiny.folder / "02-traces")
    lock.close()
    assert is_one_sentence(said)
    assert f"{tmp_path / 'run'} is being written by process {os.getpid()}" in said.last


def test_a_folder_of_other_things_is_not_written_to(tiny: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write(tmp_path / "run" / "letter.txt", "dear")
    said = sft(tmp_path, tiny.folder / "02-traces")
    assert is_one_sentence(said)
    assert f"{tmp_path / 'run'} holds letter.txt and no run" in said.last


@pytest.mark.parametrize("limit", [600_000, 100_000, 2_000])
def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(
    tiny: Pipeline, tmp_path: Path, limit: int
) -> None:
    """A limit on the size of files stands in for a full disk: the optimizer does not fit, or the
    model, or hardly anything."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    try:
        said = sft(tmp_path, tiny.folder / "02-traces")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert is_one_sentence(said), said.err
    assert "File too large" in said.last
    assert half_written(tmp_path) == []


def test_a_file_where_the_run_folder_should_be_is_named(tiny: Pipeline, tmp_path: Path) -> None:
    write(tmp_path / "run", "in the way")
    said = sft(tmp_path, tiny.folder / "02-traces")
    assert is_one_sentence(said)
    assert "a file is where a folder is needed" in said.last
