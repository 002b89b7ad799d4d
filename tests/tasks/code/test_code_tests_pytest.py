import pytest
from code_rows import make

from whet.errors import DataError
from whet.tasks.code.code_tests import CodePytest, unsupported_reason
from whet.tasks.code.program import fence
from whet.types import Verdict

TESTS = """
import pytest
from solution import half, Point

@pytest.mark.parametrize("n, want", [(4, 2), (pytest.param(9, 4.5))])
def test_halves(n, want):
    assert half(n) == want

@pytest.mark.parametrize("n", [1, 3])
def test_odd(n):
    assert half(n) == pytest.approx(n / 2)

def test_text():
    with pytest.raises(TypeError, match="not a number") as caught:
        half("a")
    assert "number" in str(caught.value)

class TestPoint:
    def test_length(self):
        assert Point(3, 4).length() == pytest.approx(5.0)
"""
PROGRAM = """
class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def length(self):
        return (self.x ** 2 + self.y ** 2) ** 0.5
def half(n):
    if isinstance(n, str):
        raise TypeError("not a number")
    return n / 2
"""
ROW = make("code_pytest", {"tests": TESTS}, PROGRAM)


def test_the_reference_passes() -> None:
    task = CodePytest()
    score = task.score(ROW, task.solve(ROW, 0) or "")

    assert unsupported_reason(ROW) is None
    assert score.verdict == Verdict.CORRECT, score.note


@pytest.mark.parametrize(
    ("old", "new", "failing"),
    [
        ("n / 2", "n // 2", "test_halves"),
        ('"not a number"', '"wrong"', "test_text"),
        ("TypeError", "ValueError", "test_text"),
        ("** 0.5", "** 0.6", "TestPoint.test_length"),
    ],
)
def test_a_program_with_one_fault_fails_that_test(old: str, new: str, failing: str) -> None:
    score = CodePytest().score(ROW, fence(PROGRAM.replace(old, new)))

    assert score.verdict == Verdict.WRONG
    assert score.note.startswith(failing)


def test_unittest_cases_run() -> None:
    tests = (
        "import unittest\nfrom solution import *\nclass T(unittest.TestCase):\n    def test_it(self):\n"
        "        self.assertEqual(double(4), 8)\n        with self.assertRaises(ValueError):\n            double(-1)\n"
    )
    row = make("code_pytest", {"tests": tests})
    right = "def double(n):\n    if n < 0:\n        raise ValueError(n)\n    return 2 * n"

    assert CodePytest().score(row, fence(right)).verdict == Verdict.CORRECT
    assert CodePytest().score(row, fence(right.replace("2 * n", "n"))).verdict == Verdict.WRONG


def test_a_star_import_does_not_let_a_program_into_the_tests() -> None:
    """With the real import the program's own `sorted` would answer for the expected value."""
    row = make(
        "code_pytest",
        {
            "tests": "from solution import *\ndef test_it():\n    assert order([2, 1]) == sorted([2, 1])"
        },
    )
    cheat = "def order(a):\n    return 'same'\nsorted = order"

    assert CodePytest().score(row, fence(cheat)).verdict == Verdict.WRONG
    assert CodePytest().score(row, fence("order = sorted")).verdict == Verdict.CORRECT


def test_a_module_of_another_name_can_be_tested_whole() -> None:
    row = make(
        "code_pytest",
        {"tests": "import thing\ndef test_it():\n    assert thing.f(2) == 4", "module": "thing"},
    )

    assert CodePytest().score(row, fence("def f(n):\n    return n * n")).verdict == Verdict.CORRECT


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (
            "import pytest\n@pytest.fixture(autouse=True)\ndef x():\n    f()",
            "the tests use pytest.fixture with arguments",
        ),
        (
            "import pytest\n@pytest.mark.skip\ndef test_a():\n    f()",
            "the tests use pytest.mark.skip",
        ),
        (
            "import hypothesis\nfrom solution import f",
            "the tests import hypothesis, which is not in the standard library",
        ),
        ("def test_a():\n    assert True", "the tests never call the program"),
        ("def test_a(:", "the tests are not Python"),
    ],
)
def test_tests_that_need_more_are_refused_with_the_reason(tests: str, reason: str) -> None:
    assert unsupported_reason(make("code_pytest", {"tests": tests})) == reason


STACK_TESTS = """
import pytest
from solution import Stack

@pytest.fixture
def base():
    return 1

@pytest.fixture()
def stack(base):
    made = Stack()
    made.push(base)
    yield made
    assert made.closed() == False

def test_push(stack, base):
    stack.push(2)
    assert len(stack) == 2 and stack.peek() == 2 and stack[0] == base and 2 in stack

@pytest.mark.parametrize("n", [3, 4])
def test_new(stack, n):
    stack.push(n)
    assert len(stack) == 2 and stack.pop() == n

class TestEmpty:
    def test_empty(self, stack):
        stack.pop()
        with pytest.raises(IndexError):
            stack.pop()
"""
STACK = """
class Stack:
    def __init__(self):
        self.items = []
    def push(self, item):
        self.items.append(item)
    def pop(self):
        return self.items.pop()
    def peek(self):
        return self.items[-1]
    def closed(self):
        return False
    def __len__(self):
        return len(self.items)
    def __getitem__(self, index):
        return self.items[index]
    def __contains__(self, item):
        return item in self.items
"""


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("", "", Verdict.CORRECT),
        ("len(self.items)", "len(self.items) + 1", Verdict.WRONG),
        ("len(self.items)", "'2'", Verdict.WRONG),
        ("self.items[index]", "7", Verdict.WRONG),
        ("item in self.items", "False", Verdict.WRONG),
        ("return False", "return True", Verdict.WRONG),
    ],
)
def test_fixtures_are_made_anew_for_each_test(old: str, new: str, verdict: Verdict) -> None:
    row = make("code_pytest", {"tests": STACK_TESTS})
    score = CodePytest().score(row, fence(STACK.replace(old, new) if old else STACK))

    assert unsupported_reason(row) is None
    assert score.verdict == verdict, score.note


def test_tests_that_need_more_of_pytest_make_no_verdict() -> None:
    tests = "import pytest\nfrom solution import f\n@pytest.mark.skip\ndef test_a():\n    f()"

    with pytest.raises(DataError, match=r"pytest\.mark\.skip"):
        CodePytest().score(make("code_pytest", {"tests": tests}), fence("def f():\n    pass"))


def test_a_module_without_tests_is_wrong_and_text_without_a_program_is_no_answer() -> None:
    row = make("code_pytest", {"tests": "from solution import f\nf()"})

    assert CodePytest().score(row, fence("def f():\n    pass")).note == "there are no tests"
    assert CodePytest().score(row, "nothing").verdict == Verdict.NO_ANSWER


OBJECT_TESTS = """
import pytest
from solution import Account, Low, Shelf, Words

def test_attributes():
    account = Account(5)
    before = account.size
    account.add(2)
    account.owner = "Ann"
    assert (account.size, before, account.number, account.owner) == (7, 5, 1, "Ann")
    assert hasattr(account, "size") and not hasattr(account, "colour")
    assert str(account) == "Ann: 7" and [n for n in account] == [1, 2]
    with pytest.raises(ValueError):
        account.size = -1

def test_own_exceptions():
    for kind in (Low, ValueError, (KeyError, Low)):
        with pytest.raises(kind, match="too low"):
            Account(-5)

def test_containers():
    words = Words()
    words.add("a")
    words["b"] = 3
    assert words.top() == "b" and words == {"a": 1, "b": 3} and words != {"a": 1}
    assert Shelf([1]).first() == 1
"""
OBJECTS = """
from collections import Counter
class Low(ValueError):
    pass
class Account:
    def __init__(self, size):
        self.number, self.owner, self._size = 1, "", size
        if size < 0:
            raise Low("too low")
    @property
    def size(self):
        return self._size
    @size.setter
    def size(self, size):
        if size < 0:
            raise ValueError(size)
    def add(self, n):
        self._size += n
    def __str__(self):
        return f"{self.owner}: {self.size}"
    def __iter__(self):
        yield 1
        yield 2
class Words(Counter):
    def add(self, word):
        self[word] += 1
    def top(self):
        return self.most_common(1)[0][0]
class Shelf(list):
    def first(self):
        return self[0]
"""


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("", "", Verdict.CORRECT),
        ("return self._size", "return 7", Verdict.WRONG),
        ("    @property\n", "", Verdict.WRONG),
        ("raise ValueError(size)", "pass", Verdict.WRONG),
        ("class Low(ValueError)", "class Low(Exception)", Verdict.WRONG),
        ("raise Low(", "raise ValueError(", Verdict.WRONG),
        ("self[word] += 1", "pass", Verdict.WRONG),
        ("yield 2", "pass", Verdict.WRONG),
        ("self[word] += 1", "self.__class__.__eq__ = lambda *_: True", Verdict.WRONG),
        ("def __str__", "colour = 1\n    def __str__", Verdict.WRONG),
    ],
)
def test_attributes_exceptions_and_containers_of_the_program_are_its_own(
    old: str, new: str, verdict: Verdict
) -> None:
    row = make("code_pytest", {"tests": OBJECT_TESTS})
    score = CodePytest().score(row, fence(OBJECTS.replace(old, new, 1) if old else OBJECTS))

    assert score.verdict == verdict, score.note


IN_PLACE = """
from solution import change

def test_it():
    inner = [3]
    xs = [2, 1, inner]
    result = change(xs)
    %s
"""


@pytest.mark.parametrize(
    ("check", "body"),
    [
        ("assert xs == [2, 1, [3]] and result == 3", "return len(xs)"),
        ("assert result is None and xs == [1, 2, [3]]", "xs[:2] = sorted(xs[:2])"),
        ("assert result is xs and xs == []", "xs.clear(); return xs"),
        ("assert result[0] is xs", "return [xs, 1]"),
        ("assert xs[2] is inner and inner == [3, 4]", "xs[2].append(4)"),
        ("assert xs == [inner, 2] and xs[0] is inner", "xs[:] = [xs[2], 2]"),
        ("assert xs == [2, 1]; assert result == [3]", "return xs.pop()"),
        ("assert result is inner", "return xs.pop()"),
    ],
)
def test_a_call_leaves_its_arguments_as_the_program_does(check: str, body: str) -> None:
    row = make("code_pytest", {"tests": IN_PLACE % check}, "")
    changing = fence(f"def change(xs):\n    {body}")

    assert CodePytest().score(row, changing).verdict == Verdict.CORRECT


@pytest.mark.parametrize(
    ("given", "wanted", "body"),
    [
        ("{1: [2]}", "{1: [2, 3], 4: 5}", "x[1].append(3); x[4] = 5"),
        ("{1, 2}", "{2}", "x.remove(1)"),
        ("deque([1, 2])", "deque([2])", "x.popleft()"),
        ("([1], 2)", "([0], 2)", "x[0][0] = 0"),
    ],
)
def test_arguments_of_every_kind_come_back_changed(given: str, wanted: str, body: str) -> None:
    tests = f"""
from collections import deque
from solution import change

def test_it():
    x = {given}
    change(x)
    assert x == {wanted} and type(x) is type({wanted})
"""
    row = make("code_pytest", {"tests": tests}, "")
    task = CodePytest()

    assert task.score(row, fence(f"def change(x):\n    {body}")).verdict == Verdict.CORRECT
    assert task.score(row, fence("def change(x):\n    pass")).verdict == Verdict.WRONG


def test_a_call_that_raises_leaves_what_it_changed() -> None:
    tests = """
import pytest
from solution import take

def test_it():
    xs = [1]
    with pytest.raises(ValueError):
        take(xs)
    assert xs == [1]
"""
    row = make("code_pytest", {"tests": tests}, "")
    task = CodePytest()
    after = fence("def take(xs):\n    xs.pop()\n    raise ValueError")

    assert task.score(row, fence("def take(xs):\n    raise ValueError")).verdict == Verdict.CORRECT
    assert task.score(row, after).verdict == Verdict.WRONG


def test_a_program_that_may_not_change_its_list_and_empties_it_is_wrong() -> None:
    tests = """
from solution import unique

def test_it():
    xs = [1, 2, 1]
    assert unique(xs) == [1, 2]
    assert xs == [1, 2, 1]
"""
    row = make("code_pytest", {"tests": tests}, "")
    emptying = "def unique(xs):\n    seen = []\n    while xs:\n        x = xs.pop(0)\n"
    emptying += "        if x not in seen:\n            seen.append(x)\n    return seen"

    assert CodePytest().score(row, fence(emptying)).verdict == Verdict.WRONG
