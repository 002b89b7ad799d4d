import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from small import Pipeline, whet, write

VERBS = ["run", "sft", "rl", "teach", "eval", "show", "try", "export"]


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_a_help(verb: str) -> None:
    said = whet(verb, "--help")
    assert said.code == 0
    assert f"Usage: whet {verb}" in said.out


def test_the_help_lists_the_verbs_and_is_what_no_arguments_show() -> None:
    said = whet("--help")
    assert said.code == 0
    for verb in VERBS:
        assert re.search(rf"^\s+{verb} ", said.out, re.MULTILINE)
    assert whet().err.strip() == said.out.strip()


def test_a_forgotten_argument_is_a_usage_error() -> None:
    said = whet("sft")
    assert said.code == 2
    assert "Missing argument" in said.err


def test_the_module_runs_as_the_command_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whet", "show", str(tmp_path / "none.toml")],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"whet: there is no file {tmp_path / 'none.toml'}\n"


def test_show_prints_every_value_with_its_origin(tmp_path: Path) -> None:
    file = write(
        tmp_path / "x.toml",
        'kind = "rl"\ntask.name = "game24"\nsteps = 7\nmodel = { path = "m" }\n',
    )
    said = whet("show", file, "--group_size", 5)
    rows = {
        line.split()[0]: line.split(" = ", 1)[1].rsplit("  # ", 1) for line in said.out.splitlines()
    }
    assert said.code == 0
    assert [text.strip() for text in rows["steps"]] == ["7", "x.toml"]
    assert [text.strip() for text in rows["group_size"]] == ["5", "cli"]
    assert [text.strip() for text in rows["train.max_grad_norm"]] == ["1.0", "default"]
    assert {
        "sampling.top_p",
        "engine.max_num_seqs",
        "validation.every",
        "save.keep",
        "track.sinks",
    } <= set(rows)


def test_show_of_a_pipeline_prints_every_stage(tiny: Pipeline) -> None:
    said = whet("show", tiny.file, "--seed", 8)
    assert said.code == 0
    assert re.search(r"^stages\.rl\.steps +=  ?6 +# tiny\.toml$", said.out, re.MULTILINE)
    assert re.search(
        r"^stages\.sft\.train\.max_grad_norm +=  ?1\.0 +# default$", said.out, re.MULTILINE
    )
    assert re.search(r"^seed +=  ?8 +# cli$", said.out, re.MULTILINE)


def test_a_single_stage_says_where_its_settings_and_its_result_are(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.toml",
        'kind = "teach"\ntask.name = "game24"\nsplit = "dev"\nper_problem = 1\nworkers = 1\n',
    )
    said = whet("teach", file, "--out", tmp_path / "run")
    assert said.code == 0
    config = tmp_path / "run" / "config.toml"
    assert said.err.splitlines()[0] == f"teach, with the settings in {config}"
    assert re.search(r'^# split +=  ?"dev" +# t\.toml$', config.read_text(), re.MULTILINE)
    assert said.err.splitlines()[-2:] == [
        f"results in {tmp_path / 'run'}",
        f"See it   whet view {tmp_path / 'run'}",
    ]


def test_a_finished_stage_is_not_repeated(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.toml",
        'kind = "teach"\ntask.name = "game24"\nsplit = "dev"\nper_problem = 1\nworkers = 1\n',
    )
    assert whet("teach", file, "--out", tmp_path / "run").code == 0
    said = whet("teach", file, "--out", tmp_path / "run")
    assert said.code == 0
    assert said.last == f"{tmp_path / 'run'} is finished; nothing to do"


def test_eval_of_a_trained_model_says_how_many_it_solves(tiny: Pipeline, tmp_path: Path) -> None:
    text = f'kind = "eval"\ntask.name = "game24"\nsplit = "dev"\nsamples = 1\nmodel = {{ path = "{tiny.folder}" }}\n'
    said = whet("eval", write(tmp_path / "e.toml", text), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert re.search(
        r"^pass@1 .* % \[.*\] sampled, .* % greedy, on 102 problems$", said.err, re.MULTILINE
    )


def test_without_out_the_run_is_named_after_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(
        tmp_path / "small.toml",
        'kind = "run"\ntask.name = "game24"\n[stages.problems]\nkind = "make"\n',
    )
    assert whet("run", file).code == 0
    assert (tmp_path / "runs" / "small" / "summary.json").is_file()


def test_the_version_is_that_of_the_package() -> None:
    said = whet("--version")
    assert (said.code, said.out) == (0, f"whet {version('whet')}\n")


@pytest.mark.parametrize("words", [[], ["rl"], ["check"], ["data"], ["data", "import"], ["tasks"]])
def test_h_is_help_everywhere(words: list[str]) -> None:
    short, long = whet(*words, "-h"), whet(*words, "--help")
    assert short.code == 0 and short.out == long.out and "Usage: whet" in short.out
