"""`whet slurm`: the text of the script, what is refused, and that no name reaches the shell bare."""

import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from small import whet

from whet.cluster.slurm import Job, parse_time, save_script, write_script
from whet.errors import ConfigError

ROOT = Path(__file__).parents[2]
JOB = Job(
    command="rl",
    file=Path("math.toml"),
    settings=(),
    folder=Path("/home/me"),
    nodes="16",
    gpus=8,
    cpus=8,
    time="24:00:00",
)
HOSTILE = [
    "a b",
    "it's",
    '"',
    "$(touch owned)",
    "`touch owned`",
    "; touch owned",
    "x\ntouch owned",
    "&",
    "é",
]


@pytest.fixture
def without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path with bash alone, so that no sbatch is asked."""
    bash = shutil.which("bash")
    assert bash is not None
    folder = tmp_path / "bash alone"
    folder.mkdir()
    (folder / "bash").symlink_to(bash)
    monkeypatch.setenv("PATH", str(folder))


def options(script: str) -> list[str]:
    return [line[8:] for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_a_script_asks_for_nodes_gpus_and_time_and_starts_one_launcher_a_node() -> None:
    script = write_script(replace(JOB, partition="gpu", sbatch=["--account=lab-7"]))
    assert {
        "--job-name=math",
        "--nodes=16",
        "--ntasks-per-node=1",
        "--gpus-per-node=8",
        "--cpus-per-task=64",
        "--time=24:00:00",
        "--requeue",
        "--signal=B:USR1@600",
        "--partition=gpu",
        "--account=lab-7",
    } <= set(options(script))
    assert "python -m whet rl math.toml --resume --gpus 8 --nodes 16 --rendezvous" in script
    assert "--no-kill" not in script


def test_a_job_that_may_lose_nodes_asks_for_the_most_and_is_not_killed_with_them() -> None:
    script = write_script(replace(JOB, nodes="2:4"))
    assert {"--nodes=4", "--no-kill"} <= set(options(script))
    assert "--no-kill --kill-on-bad-exit=0" in script
    assert "--nodes 2:4" in script


def test_a_short_job_keeps_three_quarters_of_its_time() -> None:
    assert "--signal=B:USR1@150" in options(write_script(replace(JOB, time="10")))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("90:30", 5430), ("1:00:00", 3600), ("2-0", 172_800), ("1-2:30", 95_400)],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"venv": Path("/no/such")}, "there is no"),
        ({"conda": "x", "container": ("docker", "i")}, "choose one"),
        ({"container": ("podman", "i")}, "docker or apptainer"),
        ({"time": "soon"}, "--time"),
        ({"time": "0"}, "less than a minute"),
        ({"nodes": "many"}, "--nodes"),
        ({"partition": "gpu\n#SBATCH --uid=0"}, "--partition"),
        ({"partition": "gpu --uid=0"}, "--partition"),
        ({"sbatch": ["account=x"]}, "--sbatch"),
        ({"sbatch": ["--comment=$(id)"]}, "--sbatch"),
    ],
)
def test_what_slurm_would_misread_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        write_script(replace(JOB, **changes))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["file", "setting", "folder", "venv", "conda", "image"])
def test_no_name_is_run_by_the_shell(name: str, kind: str, tmp_path: Path) -> None:
    """Run the script with stand-ins for Slurm, whose srun prints the words that it gets."""
    folder = tmp_path / (name if kind == "folder" else "work")
    folder.mkdir()
    job = replace(JOB, folder=folder, command="rl")
    if kind == "file":
        job = replace(job, file=Path(f"{name}.toml"))
    elif kind == "setting":
        job = replace(job, settings=["--task.name", name])
    elif kind == "venv":
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
        job = replace(job, venv=tmp_path / name)
    elif kind == "conda":
        job = replace(job, conda=name)
    elif kind == "image":
        job = replace(job, container=("docker", name))
    tools = tmp_path / "tools"
    tools.mkdir()
    stand_ins = {
        "scontrol": "echo node1",
        "sinfo": "echo 10.0.0.1",
        "conda": f"echo {shlex.quote(str(tools))}",
    }
    stand_ins["srun"] = 'printf "%s\\0" "$@" > words'
    for tool, body in stand_ins.items():
        (tools / tool).write_text(f"#!/bin/bash\n{body}\n")
        (tools / tool).chmod(0o755)
    (tools / "etc" / "profile.d").mkdir(parents=True)
    (tools / "etc" / "profile.d" / "conda.sh").write_text('conda() { printf "%s" "$2" > env; }\n')
    script = tmp_path / "job.sbatch"
    script.write_text(write_script(job))

    subprocess.run(
        ["bash", str(script)],
        check=True,
        cwd=tmp_path,
        timeout=20,
        env={
            "PATH": f"{tools}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "node[1-2]",
            "SLURM_CPUS_PER_TASK": "8",
        },
    )

    words = (folder / "words").read_text().split("\0")[:-1]
    expected = {
        "file": f"{name}.toml",
        "setting": name,
        "venv": str(tmp_path / name / "bin" / "python"),
        "image": name,
        "folder": "math.toml",
        "conda": "python",
    }
    assert expected[kind] in words
    assert words[-2:] == ["--rendezvous", "10.0.0.1:20007"]
    assert kind != "conda" or (folder / "env").read_text() == name
    assert not list(tmp_path.rglob("owned"))
    for line in options(script.read_text()):
        assert line.startswith("--") and line.isascii() and " " not in line


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text("#!/bin/bash\nmine\n")
    with pytest.raises(ConfigError, match="was not written by whet"):
        save_script(write_script(JOB), path)
    assert path.read_text() == "#!/bin/bash\nmine\n"


def test_only_files_that_run_on_ranks_become_jobs(tmp_path: Path) -> None:
    file = tmp_path / "teach.toml"
    file.write_text('kind = "teach"\ntask.name = "game24"\nproblems = "x"\nper_problem = 1\n')
    said = whet("slurm", file, "--out", tmp_path / "job.sbatch")
    assert said.code == 2 and "run on several GPUs: run, sft" in said.err, said.err
    file.write_text('kind = "rl"\n')
    said = whet("slurm", file, "--out", tmp_path / "job.sbatch")
    assert said.code == 2 and '"task" is missing' in said.err, said.err


EXAMPLES = {
    "tango_grpo_1.5b": ["--nodes", "1"],
    "tango_grpo_7b": ["--nodes", "2:4"],
    "rlinf_math_7b": ["--nodes", "12:16", "--container", "apptainer", "whet.sif"],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_what_the_command_writes(
    name: str, tmp_path: Path, without_slurm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    script = tmp_path / "job.sbatch"
    said = whet("slurm", f"experiments/{name}.toml", *EXAMPLES[name], "--out", script)
    assert said.code == 0, said.err
    example = ROOT / "examples" / "slurm" / f"{name}.sbatch"
    assert without_folder(script) == without_folder(example)


def without_folder(script: Path) -> list[str]:
    return [line for line in script.read_text().splitlines() if not line.startswith("cd ")]
