"""`--gpus` and `--nodes`: what they ask for, and real processes that end, crash, and are stopped."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import Pipeline

from whet.cluster.launch import check_gpus, find_rendezvous, first_host, is_rank, parse_layout
from whet.errors import ConfigError
from whet.store.run import RunStore
from whet.track.progress import on_stop

ROOT = Path(__file__).parents[2]
SLURM = {"SLURM_JOB_ID": "31234", "SLURM_JOB_NODELIST": "gpu[007-009]", "SLURM_NODEID": "1"}
DRIVER = """
import sys
from pathlib import Path
from whet.cluster.agent import run_ranks
from whet.cluster.launch import parse_layout
layout = parse_layout(2, "1", restarts=int(sys.argv[2]))
sys.exit(run_ranks(sys.argv[3:], layout, Path("run"), program=(sys.argv[1],)))
"""
RANK = """
import os, signal, sys, time
from whet.cluster.failure import record_error
from whet.errors import ConfigError
rank, restart = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("rank", rank, "start", restart, *sys.argv[2:], file=sys.stderr)
match sys.argv[1]:
    case "end":
        sys.exit(0)
    case "kill" if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    case "kill once" if rank == 1 and restart == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    case "kill once" if restart == 1:
        sys.exit(0)
    case "raise" if rank == 1:
        try:
            raise ValueError("the cause")
        except ValueError as error:
            record_error(error)
            raise
    case "refuse":
        record_error(ConfigError("lr = -1"))
        print("whet: lr = -1", file=sys.stderr)
        sys.exit(2)
    case "stop":
        def stop(number, frame):
            print("asked", rank, file=sys.stderr)
            while not os.path.exists("go"):
                time.sleep(0.05)
            print("checkpoint", rank, file=sys.stderr)
            sys.exit(128 + number)
        signal.signal(signal.SIGTERM, stop)
        print("ready", rank, file=sys.stderr)
if rank == 0 and sys.argv[1] in ("raise", "kill"):  # as a rank that has lost its peer
    peer = os.environ["TORCHELASTIC_ERROR_FILE"].replace("rank-0000", "rank-0001")
    while sys.argv[1] == "raise" and not os.path.exists(peer):
        time.sleep(0.001)
    record_error(RuntimeError("connection closed by peer"))
time.sleep(60)
"""


def start(folder: Path, *words: str, restarts: int = 0) -> subprocess.Popen[str]:
    (folder / "rank.py").write_text(RANK)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    environ.pop("OMP_NUM_THREADS", None)
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, "rank.py", str(restarts), *words],
        cwd=folder,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def launch(folder: Path, *words: str, restarts: int = 0) -> tuple[int, str]:
    process = start(folder, *words, restarts=restarts)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def test_ranks_that_end_well_end_the_command_well_and_only_the_first_is_shown(
    tmp_path: Path,
) -> None:
    code, err = launch(tmp_path, "end", "a b", "$$x ${local_rank}")
    assert (code, err.splitlines()) == (
        0,
        [
            "no GPU here: 2 processes on the CPU over gloo",
            "rank 0 start 0 a b $$x ${local_rank}",
        ],
    )
    assert [file.read_text() for file in sorted(tmp_path.glob("run/logs/*/*.log"))] == [
        f"rank {rank} start 0 a b $$x ${{local_rank}}\n" for rank in (0, 1)
    ]


def test_the_page_names_the_rank_that_was_killed_and_not_the_one_that_noticed(
    tmp_path: Path,
) -> None:
    code, err = launch(tmp_path, "kill", "it's")
    page = (tmp_path / "run" / "failure.txt").read_text()
    assert code == 128 + signal.SIGKILL
    assert page in err
    assert page.startswith("rank 1 of 2 failed first, on ")
    assert "why:    killed by SIGKILL" in page
    assert "| rank 1 start 0 it's\n" in page
    resume = next(line for line in page.splitlines() if "resume:" in line).split("resume:")[1]
    assert shlex.split(resume) == ["whet", "kill", "it's", "--gpus", "2", "--resume"]


def test_the_page_quotes_the_exception_of_the_rank_that_raised_first(tmp_path: Path) -> None:
    code, err = launch(tmp_path, "raise")
    page = (tmp_path / "run" / "failure.txt").read_text()
    assert (code, page in err) == (1, True)
    assert page.startswith("rank 1 of 2 failed first")
    assert "why:    ValueError: the cause\n" in page
    assert 'raise ValueError("the cause")' in page
    assert "at its peak" in page  # "not seen" where it died before anybody looked
    if "connection closed by peer" in page:
        assert "  then:   rank 0: RuntimeError: connection closed by peer\n" in page


def test_killed_ranks_start_again_and_know_it(tmp_path: Path) -> None:
    code, err = launch(tmp_path, "kill once", restarts=3)
    assert code == 0
    assert "rank 0 start 1\n" in err
    assert "all ranks start again from the last checkpoint; restarts left: 3" in err


def test_a_mistake_of_the_user_is_said_once_and_not_started_again(tmp_path: Path) -> None:
    code, err = launch(tmp_path, "refuse", restarts=3)
    assert code == 2
    assert (err.count("whet: lr = -1"), err.count("start 1")) == (1, 0)
    assert not (tmp_path / "run" / "failure.txt").exists()


def start_and_stop(folder: Path) -> subprocess.Popen[str]:
    """Start two ranks and ask them to stop, which they will when there is a file `go`."""
    process = start(folder, "stop", restarts=3)
    wait_for_words(folder, process, "ready")
    process.terminate()
    wait_for_words(folder, process, "asked")
    return process


def wait_for_words(folder: Path, process: subprocess.Popen[str], word: str) -> None:
    while [word] * 2 != [line.split()[0] for line in last_lines(folder)]:
        assert process.poll() is None
        time.sleep(0.05)


def last_lines(folder: Path) -> list[str]:
    logs = sorted(folder.glob("run/logs/*/*.log"))
    return [(log.read_text().splitlines() or ["-"])[-1] for log in logs]


def test_sigterm_reaches_the_ranks_and_the_command_waits_for_their_checkpoints(
    tmp_path: Path,
) -> None:
    process = start_and_stop(tmp_path)
    process.terminate()  # as schedulers do, again
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert last_lines(tmp_path) == ["checkpoint 0", "checkpoint 1"]
    assert err.endswith("stopped by SIGTERM; the same command with --resume continues\n")


def test_ctrl_c_then_kills_the_ranks(tmp_path: Path) -> None:
    process = start_and_stop(tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert last_lines(tmp_path) == ["asked 0", "asked 1"]


@pytest.mark.parametrize(("run_id", "heard"), [("x", 1), (None, 2)])
def test_a_rank_is_asked_to_stop_once_and_any_other_process_each_time(
    run_id: str | None, heard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    if run_id is not None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", run_id)
    numbers: list[int] = []
    with on_stop(numbers.append):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert numbers == [signal.SIGTERM] * heard


def test_whet_trains_on_two_processes_of_the_cpu(tiny: Pipeline, tmp_path: Path) -> None:
    file = tmp_path / "it's.toml"
    file.write_text(
        'kind = "rl"\ntask.name = "game24"\nsteps = 2\nproblems_per_step = 3\ngroup_size = 2\n'
        f'model.path = "{tiny.folder / "03-sft"}"\nsampling.max_tokens = 24\n'
        "validation.every = 100\n"
    )
    words = [sys.executable, "-m", "whet", "rl", file.name, "--gpus", "2"]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("no GPU here: 2 processes on the CPU over gloo\n")
    assert done.stderr.count("results in runs/it's\n") == 1
    run = tmp_path / "runs" / "it's"
    assert RunStore.view(run).is_finished
    assert len(list(run.glob("logs/*/start-0-rank-*.log"))) == 2


def test_a_process_of_torchrun_is_a_rank_and_one_of_a_job_manager_alone_is_not() -> None:
    assert is_rank({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"})
    assert not is_rank({"RANK": "0", "WORLD_SIZE": "2"})


def test_one_gpu_on_one_node_needs_no_launcher() -> None:
    assert parse_layout(1, "1", environ={}).is_alone
    assert not parse_layout(2, "1", environ={}).is_alone
    assert not parse_layout(1, "2", rendezvous="a:1", environ={}).is_alone


def test_nodes_of_slurm_meet_on_the_first_at_a_port_of_the_job() -> None:
    layout = parse_layout(8, "2:3", environ=SLURM)
    assert (layout.min_nodes, layout.max_nodes) == (2, 3)
    assert (layout.rendezvous, layout.is_host) == ("gpu007:21234", False)
    assert parse_layout(8, "3", environ={**SLURM, "SLURM_NODEID": "0"}).is_host


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a,b", "a"), ("a[1,3-4]", "a1"), ("n[09-11]x,b", "n09x"), ("r1-n[2-3]", "r1-n2")],
)
def test_the_first_name_of_a_node_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


@pytest.mark.parametrize("nodes", ["0", "4:2", "two", "", "1:2:3", "-1", "1;rm", "٣"])
def test_a_wrong_number_of_nodes_is_one_sentence(nodes: str) -> None:
    with pytest.raises(ConfigError, match="--nodes"):
        parse_layout(1, nodes, environ={})


def test_several_nodes_need_a_place_to_meet() -> None:
    with pytest.raises(ConfigError, match="--rendezvous HOST:PORT"):
        find_rendezvous({})
    with pytest.raises(ConfigError, match="should be HOST:PORT"):
        parse_layout(1, "2", rendezvous="$(id)", environ={})


def test_more_processes_than_gpus_are_refused_and_none_is_said() -> None:
    with pytest.raises(ConfigError, match=r"--gpus 8, but this machine shows 2 \(CUDA_VISIBLE"):
        check_gpus(8, 2, {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert check_gpus(2, 2) is None
    assert check_gpus(4, 0) == "no GPU here: 4 processes on the CPU over gloo"
