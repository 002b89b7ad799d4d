"""Programs that attack the grader, each contained and graded wrong.

The first kind tries to get at something and gives the right answer only where that worked;
contained, it raises. The second kind cheats: it never computes the answer and hopes to be believed.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from whet.tasks.code.code_stdin import CodeStdin, CodeStdinConfig
from whet.tasks.code.code_tests import CodeFunction, CodeFunctionConfig
from whet.tasks.code.program import fence
from whet.tasks.code.sandbox import Mode
from whet.types import Json, Problem, Verdict

TESTS = "def check(candidate):\n    marker = 'the-hidden-tests'\n" + "".join(
    f"    assert candidate({number}) == {number * 7 + 3}\n" for number in (2, 30, 411)
)


def problem(task: str, payload: dict[str, Json]) -> Problem:
    return Problem(
        id=f"{task}/x",
        task=task,
        prompt=(),
        answer=None,
        payload=payload,
        level=None,
        split="test",
        source="test",
    )


@pytest.fixture
def quick(mode: Mode) -> CodeFunctionConfig:
    return CodeFunctionConfig(seconds=3.0, memory_mb=512, sandbox=mode)


ADD = problem("code_function", {"entry": "f", "tests": [TESTS]})
HONEST = "def f(x):\n    attack()\n    return 7 * x + 3\n"

ATTACKS = {
    "forks": "os.fork()",
    "bombs with forks": "while True: os.fork()",
    "bombs with threads": (
        "threading.stack_size(1 << 16)\n"
        "    for _ in range(500): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    ),
    "becomes another program": "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])",
    "starts a shell": "subprocess.run(['sh', '-c', 'exit 0'], check=True)",
    "starts a worker": "multiprocessing.get_context('fork').Process(target=print).start()",
    "takes all memory at once": "bytearray(1 << 34)",
    "takes all memory in pieces": "pieces = []\n    while True: pieces.append(bytearray(1 << 24))",
    "writes beside the scratch folder": "open('/written', 'w')",
    "writes into the libraries": "open(os.__file__, 'a')",
    "deletes the libraries": "os.unlink(os.__file__)",
    "reads the users": "open('/etc/passwd')",
    "reads the users through a link": "os.symlink('/etc/passwd', 'link'); open('link')",
    "reads the environment": "os.environ['PATH']",
    "reads the processes": "os.listdir('/proc')",
    "reads the tests from disk": f"open({str(Path(__file__))!r})",
    "reads the grader's code": "open(sys.modules['__main__'].__dict__.get('__file__') or '/work')",
    "opens a socket": "socket.socket()",
    "opens a local socket": "socket.socket(socket.AF_UNIX)",
    "traces a process": "done(libc.ptrace(0, 0, 0, 0))",
    "reads another process": "done(libc.process_vm_readv(1, None, 0, None, 0, 0))",
    "becomes root": "os.setuid(0)",
    "leaves the namespaces": "done(libc.unshare(0x10000000))",
    "enters other namespaces": "done(libc.setns(3, 0))",
    "mounts": "done(libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None))",
    "changes its root": "os.chroot('/tmp')",
    "makes a device": "os.mknod('disk', 0o60600, os.makedev(254, 0))",
    "keeps memory in shared segments": "done(libc.shmget(0, 1 << 20, 0o1600))",
    "keeps memory in files without names": "os.memfd_create('x')",
    "keeps memory in /dev/shm": "open('/dev/shm/x', 'w')",
    "fills the scratch folder": "[open(str(n), 'wb').write(bytes(1 << 23)) for n in range(64)]",
    "writes one huge file": "open('x', 'wb').write(bytes(1 << 25))",
    "makes files without end": "[open(str(n), 'w').close() for n in range(100_000)]",
    "opens files without end": "files = [open('/dev/null') for _ in range(1000)]",
    "lifts its limits": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "recurses without end": "sys.setrecursionlimit(1 << 30); again = lambda: again(); again()",
    "finds the tests in memory": (
        "marker = '-'.join(['the', 'hidden', 'tests'])\n"
        "    assert any(marker in str(thing) for thing in gc.get_objects() if type(thing) in (list, dict, tuple))"
    ),
    "finds the tests on the stack": (
        "frame, marker = sys._getframe(1), '-'.join(['the', 'hidden', 'tests'])\n"
        "    while not any(marker in str(v) for v in frame.f_locals.values()): frame = frame.f_back"
    ),
    "keeps memory in pipes": (
        "pages = (ctypes.c_char * (1 << 21))()\n    vector = (ctypes.c_size_t * 2)(ctypes.addressof(pages), 1 << 21)\n"
        "    done(libc.vmsplice(os.pipe()[1], vector, ctypes.c_ulong(1), 0))"
    ),
    "watches files of the host with fanotify": "done(libc.fanotify_init(0x200, 0))",
    "watches files of the host with inotify": "done(libc.inotify_init())",
    "watches files of the host with inotify too": "done(libc.inotify_init1(0))",
    "asks its line for the host's interfaces": "any_line(lambda s: fcntl.ioctl(s, 0x8912, bytes(16)))",
    "asks its line for the host's addresses": "any_line(lambda s: fcntl.ioctl(s, 0x8927, b'lo'.ljust(40, b'\\0')))",
    "takes a name on the host": "any_line(lambda s: s.getsockname() or s.bind('\\0taken'))",
    "asks its line for the grader": "any_line(lambda s: s.getsockopt(1, 77))",
    "asks its line who is there": "any_line(lambda s: s.getsockopt(1, 17, 12))",
    "passes an open file to the grader": "any_line(lambda s: socket.send_fds(s, [b'x'], [0]))",
    "finds other open files": "assert any(map(is_open, range(5, 256)))",
    "forks by vfork": "done(libc.vfork())",
    "forks by clone": "done(libc.syscall(56 if is_intel else 220, 17, 0, 0, 0, 0))",
    "forks by clone3": "done(libc.syscall(435, (ctypes.c_uint64 * 11)(), 88))",
    "forks in a 32-bit convention": "machine_code(b'\\xb8\\x02\\0\\0\\0\\xcd\\x80\\xc3')",
    "forks in the x32 convention": "done(libc.syscall(0x40000000 | 57) if is_intel else -1)",
    "spawns": "os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 0'], {})",
    "becomes a file that it wrote": (
        "open('x', 'w').write('#!/bin/sh\\n'); os.chmod('x', 0o755); os.execv('/tmp/x', ['x'])"
    ),
    "starts a pseudo terminal": "os.openpty()",
    "adds a key": "done(libc.syscall(248 if is_intel else 217, b'user', b'k', b'v', 1, -4))",
    "reads keys": "done(libc.syscall(250 if is_intel else 219, 0, -3, 1))",
    "sets up io_uring": "done(libc.syscall(425, 8, bytes(120)))",
    "handles its own page faults": "done(libc.syscall(323 if is_intel else 282, 1))",
    "loads bpf": "done(libc.syscall(321 if is_intel else 280, 0, bytes(72), 72))",
    "counts the processor's events": (
        "done(libc.syscall(298 if is_intel else 241, bytes(128), 0, -1, -1, 0))"
    ),
    "opens its parent": "os.pidfd_open(os.getppid() or 1)",
    "takes another's file": "done(libc.syscall(438, 0, 0, 0))",
    "compares itself with another": "done(libc.syscall(312 if is_intel else 272, 1, 1, 0, 0, 0))",
    "names a file by its handle": (
        "done(libc.syscall(303 if is_intel else 264, -100, b'/tmp', bytes(128), bytes(4), 0))"
    ),
    "opens a file by its handle": "done(libc.syscall(304 if is_intel else 265, -100, bytes(128), 0))",
    "opens a tree of mounts": "done(libc.syscall(428, -100, b'/', 1))",
    "makes a file system": "done(libc.syscall(430, b'tmpfs', 0))",
    "pivots its root": "done(libc.syscall(155 if is_intel else 41, b'.', b'.'))",
    "reads a disk": "os.mknod('disk', 0o60600, os.makedev(8, 0)); open('disk')",
    "reads the kernel's memory": "open('/dev/mem')",
    "reads the kernel's log": "done(libc.syscall(103 if is_intel else 116, 3, bytes(64), 64))",
    "asks the kernel by netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "asks the host by vsock": "socket.socket(40, socket.SOCK_STREAM)",
    "sends raw packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "resolves a name": "socket.getaddrinfo('localhost', 80)[0][4][0] == '' or socket.socket()",
    "keeps memory in message queues": "done(libc.msgget(0, 0o1600))",
    "keeps memory in semaphores": "done(libc.semget(0, 8, 0o1600))",
    "keeps memory in named queues": (
        "done(libc.syscall(240 if is_intel else 180, b'x', 0o102, 0o600, 0))"
    ),
    "keeps memory in secret": "done(libc.syscall(447, 0))",
    "keeps memory in maps": "maps = [mmap.mmap(-1, 1 << 28) for _ in range(16)]",
    "keeps memory in large pages": "mmap.mmap(-1, 1 << 30, flags=0x40022)",
    "locks all memory": "done(libc.mlockall(3)); pieces = [bytearray(1 << 28) for _ in range(16)]",
    "takes a higher priority": "os.nice(-5)",
    "takes a real-time priority": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "gains rights by a file": "os.setxattr('/tmp', 'security.capability', bytes(20))",
    "changes the clock": "time.clock_settime(time.CLOCK_REALTIME, 0)",
    "changes the host's name": "socket.sethostname('taken')",
    "links to a file of the libraries": "os.link(os.__file__, '/tmp/x')",
    "writes to the device of nothing": "os.chmod('/dev/null', 0o600)",
    "makes folders without end": "[os.mkdir(str(n)) for n in range(100_000)]",
    "makes names without end": "[os.symlink('x', str(n)) for n in range(100_000)]",
    "writes a file with holes": "open('x', 'wb').truncate(1 << 40)",
    "finds the tests in raw memory": (
        "starts = [id(thing) & ~0xfff for thing in (object(), os.urandom(20), os.urandom(4000))]\n"
        "    pages = {start + 4096 * n for start in starts for n in range(-512, 512)}\n"
        "    pages = [p for p in pages if libc.mincore(ctypes.c_void_p(p), 4096, seen) == 0 and seen.raw[0] & 1]\n"
        "    assert len(pages) > 10\n"
        "    assert any(re.search(b'the[-]hidden[-]tests', ctypes.string_at(page, 4096)) for page in pages)"
    ),
    "finds the tests in modules": (
        "marker = '-'.join(['the', 'hidden', 'tests'])\n"
        "    assert any(marker in repr(vars(m)) for m in list(sys.modules.values()) if m and m.__name__ != 'solution')"
    ),
    "reads its input without end": "assert os.read(0, 1)",
}
START = """
import ctypes, fcntl, gc, mmap, multiprocessing, os, re, resource, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
is_intel = os.uname().machine == 'x86_64'
seen = ctypes.create_string_buffer(1)

def machine_code(code):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code if is_intel else bytes(8))
    done(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())

def done(result):
    if result < 0:
        raise OSError(ctypes.get_errno())

def is_open(fd):
    try:
        return bool(os.fstat(fd))
    except OSError:
        return False

def any_line(ask):
    failures = []
    for fd in range(5):
        try:
            return ask(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=os.dup(fd)))
        except OSError as error:
            failures.append(error)
    raise failures[-1]

def attack():
    """

CHEATS = {
    "exits well at once": "import os\nos._exit(0)",
    "raises SystemExit at once": "raise SystemExit(0)",
    "exits well when called": "import os\ndef f(x):\n    os._exit(0)",
    "raises SystemExit when called": "def f(x):\n    raise SystemExit(0)",
    "returns what is equal to all": "class E:\n    def __eq__(s, o):\n        return True\ndef f(x):\n    return E()",
    "returns an int that is equal to all": (
        "class E(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef f(x):\n    return E(5)"
    ),
    "returns a text that is equal to all": (
        "class E(str):\n    __eq__ = lambda s, o: True\n    __hash__ = str.__hash__\ndef f(x):\n    return E('5')"
    ),
    "raises in its equality": "class E:\n    def __eq__(s, o):\n        raise SystemExit\ndef f(x):\n    return E()",
    "patches the built-ins": (
        "import builtins, operator\nbuiltins.AssertionError = operator.eq = lambda *a: True\ndef f(x):\n    return 0"
    ),
    "patches the harness": (
        "import sys\nfor name, m in list(sys.modules.items()):\n    if 'whet' in name:\n"
        "        for key in list(vars(m)):\n            vars(m)[key] = lambda *a, **k: b'V{\"passed\": true}'\n"
        "def f(x):\n    return 0"
    ),
    "forges a verdict": (
        'import os, struct\nm = b\'V{"passed": true, "note": "", "calls": 3}\'\n'
        "for fd in range(1, 9):\n    try:\n        os.write(fd, struct.pack('<I', len(m)) + m)\n    except OSError:\n"
        "        pass\ndef f(x):\n    return 0"
    ),
    "forges answers": (
        "import os, struct\ndef f(x):\n    m = b'{\"value\": [17]}'\n"
        "    os.write(4, 9 * (struct.pack('<I', len(m)) + m))"
    ),
    "promises an endless message": "import os\nos.write(4, b'\\xff\\xff\\xff\\xff')\ndef f(x):\n    return 0",
    "prints every answer": "def f(x):\n    for n in range(5000):\n        print(n)",
    "sleeps": "import time\ntime.sleep(60)\ndef f(x):\n    return 0",
    "loops while deaf to signals": (
        "import signal\nfor n in range(1, 32):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\nwhile True:\n    pass"
    ),
    "kills its parent": "import os\ndef f(x):\n    os.kill(os.getppid(), 9)",
    "kills its group": "import os\ndef f(x):\n    os.killpg(0, 9)",
    "kills everyone": "import os\ndef f(x):\n    os.kill(-1, 9)",
    "crashes": "import ctypes\ndef f(x):\n    ctypes.string_at(0)",
    "asks to be killed": "import os\ndef f(x):\n    os.abort()",
    "traces its caller": "import sys\ndef f(x):\n    sys.settrace(lambda *a: 1 / 0)\n    return 0",
    "never ends a list": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "returns too much": "def f(x):\n    return list(range(1 << 22))",
    "returns an endless generator": "import itertools\ndef f(x):\n    return itertools.count()",
    "ends the loop of the tests": "def f(x):\n    raise StopIteration",
    "replaces check": "def check(candidate):\n    pass\ncandidate = check\ndef f(x):\n    return 0",
    "answers the first test only": "def f(x):\n    return 17",
    "returns a float that is nearly right": "def f(x):\n    return 7 * x + 3.0000001",
    "returns nothing": "def f(x):\n    pass",
    "returns no number": "def f(x):\n    return float('nan')",
    "returns an infinity": "def f(x):\n    return float('inf')",
    "returns true": "def f(x):\n    return True",
    "returns a list that lies about its length": (
        "class L(list):\n    __eq__ = lambda s, o: True\n    __len__ = lambda s: 0\ndef f(x):\n    return L()"
    ),
    "returns a table whose keys lie": (
        "class K(str):\n    __eq__ = lambda s, o: True\n    __hash__ = lambda s: 0\ndef f(x):\n    return {K('a'): K('b')}"
    ),
    "returns a float that is equal to all": (
        "class E(float):\n    __eq__ = lambda s, o: True\n    __hash__ = float.__hash__\ndef f(x):\n    return E(5)"
    ),
    "returns a record it made up": "class Record:\n    x = 17\ndef f(x):\n    return Record()",
    "returns what compares by reflection": (
        "class E:\n    __eq__ = __req__ = __lt__ = __ge__ = lambda s, o: True\ndef f(x):\n    return (E(), E())"
    ),
    "returns nesting without end": (
        "def f(x):\n    a = []\n    for _ in range(200_000):\n        a = [a]\n    return a"
    ),
    "returns a number of many digits": "def f(x):\n    return 1 << 10_000_000",
    "returns half a surrogate pair": "def f(x):\n    return '\\udcff'",
    "returns a function": "def f(x):\n    return f",
    "returns a class": "def f(x):\n    return int",
    "raises AssertionError": "def f(x):\n    raise AssertionError",
    "raises KeyboardInterrupt": "def f(x):\n    raise KeyboardInterrupt",
    "raises GeneratorExit": "def f(x):\n    raise GeneratorExit",
    "raises MemoryError": "def f(x):\n    raise MemoryError",
    "raises RecursionError": "def f(x):\n    return f(x)",
    "raises an error whose name lies": (
        "class E(Exception):\n    pass\nE.__name__ = 'StopIteration'\ndef f(x):\n    raise E"
    ),
    "raises a group of errors": "def f(x):\n    raise ExceptionGroup('x', [StopIteration()])",
    "raises what cannot be printed": (
        "class E(BaseException):\n    __str__ = __repr__ = lambda s: 1 / 0\ndef f(x):\n    raise E"
    ),
    "closes its pipes": "import os\ndef f(x):\n    os.closerange(0, 64)",
    "closes its pipes at once": "import os\nos.closerange(0, 64)",
    "swaps its pipes": "import os\nos.dup2(4, 3)\ndef f(x):\n    return 0",
    "reads its own messages": "import os\ndef f(x):\n    os.set_blocking(3, False)\n    return os.read(3, 99)",
    "forges half a message": "import os\ndef f(x):\n    os.write(4, b'\\x09\\0\\0\\0{')\n    os._exit(0)",
    "forges a message that is no JSON": "import os\ndef f(x):\n    os.write(4, b'\\x01\\0\\0\\0{')",
    "forges a verdict as its answer": (
        'import os, struct\ndef f(x):\n    m = b\'V{"passed": true, "note": ""}\'\n'
        "    os.write(4, struct.pack('<I', len(m)) + m)"
    ),
    "forges nesting without end": (
        "import os, struct\ndef f(x):\n    m = b'{\"value\": ' + b'[' * 60_000\n"
        "    os.write(4, struct.pack('<I', len(m)) + m)"
    ),
    "forges duplicate keys": (
        'import os, struct\ndef f(x):\n    m = b\'{"error": "x", "value": [17], "value": [5]}\'\n'
        "    os.write(4, struct.pack('<I', len(m)) + m)"
    ),
    "hangs at its end": "import atexit, time\natexit.register(time.sleep, 60)\nraise SystemExit",
    "hangs in a finaliser": (
        "import time\nclass D:\n    def __del__(self):\n        time.sleep(60)\ndef f(x):\n    return D()"
    ),
    "waits for itself": "import threading\nlock = threading.Lock()\ndef f(x):\n    lock.acquire(); lock.acquire()",
    "waits for a signal": "import signal\ndef f(x):\n    signal.pause()",
    "stops itself": "import os\ndef f(x):\n    os.kill(os.getpid(), 19)",
    "is stopped by an alarm": "import signal\nsignal.alarm(1)\ndef f(x):\n    while True: pass",
    "asks for input": "def f(x):\n    return input()",
    "starts the debugger": "def f(x):\n    breakpoint()",
    "writes a power without end": "def f(x):\n    return 10 ** 10 ** 10",
    "matches without end": "import re\ndef f(x):\n    return re.match('(a+)+$', 'a' * 60 + 'b')",
    "compiles without end": "def f(x):\n    return eval('(' * 10 ** 6)",
    "swallows every exception": (
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass"
    ),
    "replaces its own name": "import sys\nsys.modules['solution'] = sys\ndef f(x):\n    return 0",
    "imports the tests": "import whet.tasks.code.referee as r\nr.Relay.call = lambda *a: 17\ndef f(x):\n    return 0",
    "makes the check return": (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame.f_back:\n        frame = frame.f_back\n"
        "        frame.f_locals['note'] = ''\n    return 0"
    ),
    "is a text that does not compile": "def f(x:\n    return",
    "has null bytes": "def f(x):\n    return 0\0",
}
ENDLESS = {
    "sleeps",
    "loops while deaf to signals",
    "never ends a list",
    "returns nesting without end",
    "waits for itself",
    "waits for a signal",
    "writes a power without end",
    "matches without end",
    "swallows every exception",
}
"""Cheats that run until they are stopped: a shorter limit shows the same, sooner."""


def test_the_harmless_program_passes(quick: CodeFunctionConfig) -> None:
    score = CodeFunction(quick).score(ADD, fence(START + "pass\n" + HONEST))

    assert score.verdict == Verdict.CORRECT


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_program_does_not_get_away_when_it(attack: str, quick: CodeFunctionConfig) -> None:
    short = quick.model_copy(update={"seconds": 1.0})

    score = CodeFunction(short).score(ADD, fence(START + ATTACKS[attack] + "\n" + HONEST))

    assert score.verdict == Verdict.WRONG, score.note


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_program_is_not_believed_when_it(cheat: str, quick: CodeFunctionConfig) -> None:
    short = quick.model_copy(update={"seconds": 0.2 if cheat in ENDLESS else 0.6})

    score = CodeFunction(short).score(ADD, fence(CHEATS[cheat] + "\n"))

    assert score.verdict == Verdict.WRONG, score.note


LATE = {
    "sleeps nearly until the limit": "import time\ntime.sleep({nearly})\ndef f(x):\n    return 0",
    "sleeps past the limit": "import time\ntime.sleep({past})\ndef f(x):\n    return 7 * x + 3",
    "sleeps in its call": "import time\ndef f(x):\n    time.sleep({past})\n    return 7 * x + 3",
    "sleeps in each call": "import time\ndef f(x):\n    time.sleep({half})\n    return 7 * x + 3",
    "burns its time in threads": (
        "import threading\ndef burn():\n    while True: pass\n"
        "for _ in range(8): threading.Thread(target=burn, daemon=True).start()\n"
        "def f(x):\n    burn()"
    ),
    "sleeps while a thread burns": (
        "import threading, time\ndef burn():\n    while True: pass\n"
        "threading.Thread(target=burn, daemon=True).start()\ntime.sleep({past})\n"
        "def f(x):\n    return 7 * x + 3"
    ),
}


@pytest.mark.parametrize("program", LATE)
def test_a_program_does_not_buy_a_missing_verdict_when_it(program: str) -> None:
    config = CodeFunctionConfig(seconds=0.4)
    wall = config.limits.wall
    source = LATE[program].format(nearly=wall - 0.02, past=wall + 5, half=wall / 2)

    score = CodeFunction(config).score(ADD, fence(source))

    assert score.verdict == Verdict.WRONG, score.note


def test_time_that_a_program_slept_is_not_taken_from_its_tests() -> None:
    many = [f"assert f({number}) == {number}" for number in range(500)]
    row = problem("code_function", {"entry": "f", "tests": list(many)})
    source = "import time\ntime.sleep(2.0)\ndef f(x):\n    return x"

    score = CodeFunction(CodeFunctionConfig(seconds=2.0)).score(row, fence(source))

    assert score.verdict == Verdict.CORRECT, score.note


def test_grading_goes_on_after_every_attack(quick: CodeFunctionConfig) -> None:
    task = CodeFunction(quick)
    for cheat in ("kills its parent", "kills everyone", "crashes"):
        task.score(ADD, fence(CHEATS[cheat]))

    assert task.score(ADD, fence("def f(x):\n    return 7 * x + 3")).verdict == Verdict.CORRECT


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def test_a_server_on_the_machine_is_out_of_reach(
    listening: socket.socket, quick: CodeFunctionConfig
) -> None:
    port = listening.getsockname()[1]
    attack = f"socket.create_connection(('127.0.0.1', {port}), 1)"

    score = CodeFunction(quick).score(ADD, fence(START + attack + "\n" + HONEST))

    assert score.verdict == Verdict.WRONG
    with pytest.raises(TimeoutError):
        listening.accept()


def test_nothing_is_left_for_the_next_program(quick: CodeFunctionConfig) -> None:
    task = CodeFunction(quick)
    leave = "open('/tmp/left', 'w').write('7')\ndef f(x):\n    return 7 * x + 3"
    take = "number = int(open('/tmp/left').read())\ndef f(x):\n    return number * x + 3"

    assert task.score(ADD, fence(leave)).verdict == Verdict.CORRECT
    assert task.score(ADD, fence(take)).verdict == Verdict.WRONG


@pytest.mark.parametrize(
    "script",
    [
        "while True:\n    print('x' * 1000)",
        "print('8')\nraise SystemExit(1)",
        "print('8')\n1 / 0",
        "import os, time\nos.write(1, b'8')\nos.close(1)\ntime.sleep(60)",
        "print('7')\nprint('8')\nprint('9')",
        "import sys\nprint('8', file=sys.stderr)",
        "import os\nos.write(4, b'8')",
        "print(open('/dev/stdin').read() + '8')",
        "import os\nos.lseek(0, 0, 2)\nprint(os.read(0, 99).decode())",
        "import os\nos.write(0, b'8')\nprint(8)\nos.abort()",
        "import os\nos.ftruncate(0, 0)\nprint(8)",
        "import sys\nprint(sys.stdin.buffer.raw.readall()[99:].decode() + '9')",
        "print('8' * (1 << 25))",
        "print('8\\0')",
        "print('8', end=' 8')",
        "print('\uff18')",
        "import os\nos.write(1, b'8\\n\\xff')",
        "import os\nprint(8, flush=True)\nos.kill(os.getpid(), 9) or os.abort()",
        "print(8)\nwhile True: pass",
        "print(8)\nimport sys\nsys.exit('no')",
    ],
)
def test_a_script_is_wrong_however_it_misbehaves(script: str, mode: Mode) -> None:
    eight = problem("code_stdin", {"cases": [{"input": "5\n", "output": "8\n"}]})

    score = CodeStdin(CodeStdinConfig(seconds=0.6, sandbox=mode)).score(eight, fence(script))

    assert score.verdict == Verdict.WRONG, score.note


def test_a_script_carries_nothing_from_case_to_case(mode: Mode) -> None:
    row = problem(
        "code_stdin",
        {"cases": [{"input": "1\n", "output": "1\n"}, {"input": "2\n", "output": "2\n"}]},
    )
    leave = "import os\nopen('/tmp/left', 'a').write('x')\nprint(os.path.getsize('/tmp/left'))"

    score = CodeStdin(CodeStdinConfig(seconds=1.5, sandbox=mode)).score(row, fence(leave))

    assert (score.verdict, score.note) == (Verdict.WRONG, "case 2: wrong output")


def test_a_program_that_stops_itself_is_late_and_not_lost() -> None:
    source = "import os\ndef f(x):\n    os.kill(os.getpid(), 19)\n    return 7 * x + 3"

    score = CodeFunction(CodeFunctionConfig(seconds=0.3, sandbox="none")).score(ADD, fence(source))

    assert (score.verdict, score.note) == (Verdict.WRONG, "not done after 0.9 s")


def test_the_clock_for_calls_starts_apart_from_loading() -> None:
    config = CodeFunctionConfig(seconds=0.5)
    nearly = 0.8 * config.limits.wall
    source = f"import time\ntime.sleep({nearly})\ndef f(x):\n    time.sleep({nearly / 3})\n    return 7 * x + 3"

    score = CodeFunction(config).score(ADD, fence(source))

    assert score.verdict == Verdict.CORRECT, score.note
