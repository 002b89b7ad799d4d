import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from code_rows import make

from whet.errors import ConfigError
from whet.tasks.code import frames, isolation, sandbox
from whet.tasks.code.code_tests import CodeFunction, CodeFunctionConfig
from whet.tasks.code.program import fence
from whet.tasks.code.sandbox import (
    Launcher,
    LostError,
    Mode,
    Process,
    ProgramLimits,
    ScriptResult,
    choose_mode,
    describe_isolation,
    find_trouble,
    launcher_for,
    run_script,
)
from whet.types import Verdict


def run(
    program: str,
    given: bytes = b"",
    mode: Mode = "namespaces",
    limits: ProgramLimits | None = None,
) -> ScriptResult:
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        return run_script(program, file, limits or ProgramLimits(), mode=mode)


def test_this_machine_allows_the_sandbox() -> None:
    choose_mode()


def test_a_script_gets_its_input_and_its_output_comes_back() -> None:
    assert run("print(input()[::-1])", b"abc\n") == ScriptResult(output=b"cba\n", fault="")


def test_a_program_sees_an_almost_empty_machine() -> None:
    seen = run(
        "import os\nprint(os.getpid(), os.getppid(), sorted(os.listdir('/dev')), os.listdir('/tmp'), os.getcwd())"
    )

    assert seen.output.decode() == "1 0 ['null', 'random', 'urandom', 'zero'] [] /tmp\n"


def test_a_program_does_not_run_as_root_and_has_no_rights() -> None:
    status = "import ctypes, os\nprint(os.getuid() == 0, os.getgroups())\nos.setgid(os.getgid())\nos.nice(-5)"

    seen = run(status)

    assert seen.output.startswith(b"False")
    assert seen.fault.startswith("PermissionError")


def test_the_libraries_are_mounted_read_only() -> None:
    seen = run(
        "import os\nprint([os.statvfs(path).f_flag & os.ST_RDONLY for path in ('/', os.__file__, '/tmp')])"
    )

    assert seen.output == b"[1, 1, 0]\n"


def test_threads_are_counted_whatever_memory_there_is() -> None:
    program = (
        "import threading, time\nthreading.stack_size(1 << 16)\ntry:\n"
        "    for _ in range(200):\n        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "except RuntimeError:\n    print(threading.active_count() <= 64)"
    )

    assert run(program, limits=ProgramLimits(memory_mb=1 << 15)).output == b"True\n"


def test_programs_may_import_sorted_containers_and_numpy() -> None:
    assert run("import numpy, sortedcontainers\nprint(numpy.arange(4).sum())").output == b"6\n"


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("raise ValueError('bad')", "ValueError: bad"),
        ("import sys\nsys.exit(3)", "exit status 3"),
        (
            "import os\nos.kill(os.getpid(), 11)\nimport ctypes\nctypes.string_at(0)",
            "ended by signal 11",
        ),
        ("import time\ntime.sleep(60)", "not done after 3 s"),
        ("print('x' * 2000)", "more than 1000 bytes of output"),
        ("x = bytearray(1 << 30)", "MemoryError: "),
        ("def", "SyntaxError: invalid syntax (solution.py, line 1)"),
        ("import os\nos._exit(113)", "exit status 113"),
    ],
)
def test_a_failure_is_told_in_one_line(program: str, fault: str) -> None:
    assert (
        run(program, limits=ProgramLimits(seconds=1.0, memory_mb=256, output_bytes=1000)).fault
        == fault
    )


def test_a_program_that_is_too_large_to_send_is_a_fault() -> None:
    assert run("#" * (1 << 25)).fault == "the program could not be started"


def test_nothing_of_a_late_program_stays_behind() -> None:
    late = "import threading, time\nfor _ in range(5):\n    threading.Thread(target=time.sleep, args=(30,)).start()"

    ran = run(late, limits=ProgramLimits(seconds=0.3))

    assert ran.fault == "not done after 0.9 s"
    deadline = time.monotonic() + 5
    while (left := _children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []


def _children() -> list[str]:
    """List the processes that our launcher started and that have not ended."""
    launcher = launcher_for("namespaces")._process
    assert launcher is not None
    return Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()


def test_processor_time_is_counted_and_not_the_time_of_other_processes() -> None:
    busy = "import time\nwhile time.process_time() < 5: pass"

    ran = run(busy, limits=ProgramLimits(seconds=1.0))
    slept = run("import time\ntime.sleep(0.5)\nprint(1)", limits=ProgramLimits(seconds=0.25))

    assert ran.fault.startswith("not done after")
    assert slept == ScriptResult(output=b"1\n", fault="")
    assert slept.cpu_seconds < 0.25


def test_a_killed_program_leaves_no_zombie_to_the_process_that_adopts_orphans() -> None:
    """In a child of its own, which adopts as grading workers do and never waits."""
    program = (
        "import ctypes, os, sys, time\n"
        "from contextlib import closing\n"
        "from pathlib import Path\n"
        "from whet.tasks.code.sandbox import ProgramLimits, launcher_for\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        "for _ in range(5):\n"
        "    with closing(launcher_for('namespaces').spawn('program', ProgramLimits())) as process:\n"
        '        process.send(b\'{"kind": "function", "setup": "", "program": "", "entry": "f"}\', time.monotonic() + 5)\n'
        "        process.receive(time.monotonic() + 5)\n"
        "launcher = launcher_for('namespaces')._process.pid\n"
        "running = Path(f'/proc/{launcher}/task/{launcher}/children')\n"
        "while running.read_text().split(): pass\n"
        "adopted = Path(f'/proc/self/task/{os.getpid()}/children').read_text().split()\n"
        "print([pid for pid in adopted if int(pid) != launcher])\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout == "[]\n", done.stderr


def test_a_program_sees_no_path_of_the_grader_in_its_command_line() -> None:
    seen = run("import sys\nprint(sys.argv, sys.orig_argv)").output.decode()

    assert str(Path(sandbox.__file__).parents[3]) not in seen
    assert "numpy" not in seen


def test_programs_start_from_one_process_that_has_loaded_the_usual_modules() -> None:
    """So that a start costs a fork, 20 ms, and neither an interpreter nor its imports."""
    run("pass")
    first = launcher_for("namespaces")._process

    ran = run(
        "import sys\nprint({'collections', 'decimal', 'statistics', 'typing', 'unittest'} - sys.modules.keys())"
    )

    assert ran.output == b"set()\n"
    assert launcher_for("namespaces")._process is first


def test_a_launcher_that_was_killed_is_started_again() -> None:
    launcher = Launcher("namespaces")
    launcher.spawn("program", ProgramLimits()).close()
    assert launcher._process is not None
    launcher._process.kill()
    launcher._process.wait()

    process = launcher.spawn("program", ProgramLimits())
    process.send(b'{"kind": "script", "program": ""}', time.monotonic() + 5)

    assert process.status(time.monotonic() + 5) == 0
    process.close()
    launcher.stop()


def test_a_fork_of_the_grader_starts_a_launcher_of_its_own() -> None:
    run("pass")
    child = os.fork()
    if child == 0:
        same = launcher_for("namespaces")._process is not None
        fine = run("print(5)").output == b"5\n"
        launcher_for("namespaces").stop()
        os._exit(0 if fine and not same else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run("print(6)").output == b"6\n"


def test_a_sandbox_that_is_lost_leaves_the_answer_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: Process, deadline: float) -> int:
        raise LostError("the sandbox ended without a word")

    monkeypatch.setattr(Process, "status", lost)
    row = make("code_function", {"entry": "f", "tests": ["assert f(1) == 1"]})

    score = CodeFunction().score(row, fence("import os\nos._exit(0)"))

    assert (score.verdict, score.note) == (Verdict.UNSCORED, "the sandbox ended without a word")


def test_a_machine_that_refuses_is_told_in_one_sentence_with_the_way_out() -> None:
    mine, _ = frames.open_channel()
    watch, watcher = socket.socketpair()
    with watcher:
        watcher.send(b'{"failed": "unshare: Operation not permitted", "refused": 1}\n')
        process = Process(mine, watch)
        with pytest.raises(
            ConfigError, match=r'\(unshare: Operation not permitted\).*set sandbox = "none"'
        ):
            process.status(time.monotonic() + 1)
        process.close()


@pytest.mark.parametrize(
    "said", [b"", b'{"failed": "mount: Cannot allocate memory", "refused": 0}\n']
)
def test_a_watcher_that_says_nothing_or_lacks_memory_is_a_lost_sandbox(said: bytes) -> None:
    mine, _ = frames.open_channel()
    watch, watcher = socket.socketpair()
    watcher.send(said)
    watcher.close()
    process = Process(mine, watch)
    with pytest.raises(LostError):
        process.status(time.monotonic() + 1)
    process.close()


class DeadLauncher(Launcher):
    """Its process has ended whenever something is sent to it."""

    def _start(self) -> socket.socket:
        control = super()._start()
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        return control


def test_a_launcher_that_never_stays_up_is_given_up() -> None:
    launcher = DeadLauncher("namespaces")
    with pytest.raises(LostError, match="does not stay up"):
        launcher.spawn("program", ProgramLimits())
    launcher.stop()


def test_without_a_sandbox_programs_run_only_when_asked_by_name() -> None:
    """Harmless programs only: this mode protects nothing."""
    row = make("code_function", {"entry": "f", "tests": ["assert f(1) == 2"]})
    unprotected = CodeFunction(CodeFunctionConfig(sandbox="none"))

    assert CodeFunction().config.sandbox == "namespaces"
    assert unprotected.score(row, fence("def f(x):\n    return x + 1")).verdict == Verdict.CORRECT
    assert (
        run("import time\ntime.sleep(60)", mode="none", limits=ProgramLimits(seconds=0.1)).fault
        == "not done after 0.3 s"
    )


def test_the_filter_knows_both_machine_types_and_no_other() -> None:
    for machine in ("x86_64", "aarch64"):
        program = isolation.filter_for(machine)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 4096
    with pytest.raises(OSError, match="no system call filter for vax"):
        isolation.filter_for("vax")


def test_the_new_root_is_made_of_libraries_and_devices_only() -> None:
    places = isolation.sources()

    assert all("lib" in place or place.startswith("/dev/") for place in places)
    assert "/" not in places and "/home" not in places


WITHOUT_RIGHTS = """
import ctypes, os, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(24, 21, 0, 0, 0) == 0  # CAP_SYS_ADMIN leaves the bounding set
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert libc.capget(header, data) == 0
data[0] &= ~(1 << 21)
data[1] &= ~(1 << 21)
assert libc.capset(header, data) == 0

from whet.tasks.code import sandbox
from whet.tasks.code.sandbox import ProgramLimits

print(sandbox.describe_isolation())
with tempfile.TemporaryFile() as given:
    program = "import os; print(os.getpid(), os.getuid() == 0, os.listdir('/tmp')); open('x', 'w'); os.setuid(0)"
    print(sandbox.run_script(program, given, ProgramLimits()))
"""


def common_python() -> str:
    """Find a Python that every user can read, which one in a home folder is not."""
    for python in (Path(sys.executable).resolve(), Path("/usr/bin/python3").resolve()):
        if python.exists() and all(folder.stat().st_mode & 1 for folder in python.parents):
            return str(python)
    pytest.skip("there is no Python here that every user can read")


def without_rights(path: str) -> str:
    """Use the sandbox as root that may not mount, and give back what it says."""
    if os.getuid() != 0:
        pytest.skip("only root can give up root's rights")
    done = subprocess.run(
        [common_python(), "-c", WITHOUT_RIGHTS],
        env={
            "PATH": path,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
    )
    return done.stdout or done.stderr


def test_bubblewrap_takes_over_where_our_own_namespaces_are_refused() -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")

    said, ran = without_rights(os.environ["PATH"]).splitlines()

    assert said == "programs of models run in bubblewrap"
    assert "1 False []" in ran and "fault='OSError: [Errno 22]" in ran


def test_where_neither_works_both_reasons_are_given(tmp_path: Path) -> None:
    said = without_rights(str(tmp_path)).splitlines()[0]

    assert "unshare: Operation not permitted; bubblewrap is not installed); run where" in said
    assert 'install bubblewrap, or set sandbox = "none"' in said


def test_a_bubblewrap_that_fails_is_refused_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bwrap"
    tool.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    launcher_for("bubblewrap").stop()  # it may know the real one from another test

    assert find_trouble("bubblewrap") == "bwrap: No permissions to create new namespace"
    tool.write_text(
        "#!/bin/sh\necho 'bwrap: Creating new namespace failed: Cannot allocate memory' >&2\nexit 1\n"
    )
    with pytest.raises(LostError, match="Cannot allocate memory"):
        find_trouble("bubblewrap")


def test_asked_for_by_name_bubblewrap_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sandbox, "_CHOSEN", {})

    assert "(bubblewrap is not installed); run where" in describe_isolation("bubblewrap")
    with pytest.raises(ConfigError, match="bubblewrap is not installed"):
        choose_mode("bubblewrap")


def test_what_contains_programs_is_said_in_a_sentence() -> None:
    assert describe_isolation() == "programs of models run in their own Linux namespaces"
    assert describe_isolation("none") == "programs of models run unprotected"


def test_bubblewrap_is_asked_for_every_namespace_and_binds_nothing_writable() -> None:
    line = isolation.bubblewrap_command("/bin/true", isolation.sources(), 100_000, "{}")

    assert {"--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts"} <= set(line)
    assert "--unshare-user-try" in isolation.bubblewrap_command("/bin/true", {}, None, "{}")
    assert "--bind" not in line
    devices = [line[place + 1] for place, word in enumerate(line) if word == "--dev-bind"]
    assert sorted(devices) == ["/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"]
    assert line[line.index("--remount-ro") :].count("--remount-ro") == 2
