"""Read the tests of a problem without running them: names they use, and why they cannot run."""

import ast
import builtins
import sys
import warnings
from collections.abc import Sequence
from itertools import pairwise

_MARKS = {"parametrize"}
_RUNNERS = {"eval", "exec", "compile", "__import__", "globals"}
_RUNNERS |= {"pickle", "marshal", "importlib", "subprocess"}
_PYTEST = {"raises", "approx", "mark", "fail", "param", "fixture"}


def parse_python(text: str) -> ast.Module | None:
    """Parse Python; None if it is not, without warnings about odd escapes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def free_names(tree: ast.AST) -> set[str]:
    """List the names that a text uses but does not define, except built-in ones.

    >>> sorted(free_names(ast.parse("import math\\nmath.isclose(area(1), len([x for x in y]))")))
    ['area', 'y']
    """
    used: set[str] = set()
    bound: set[str] = set(dir(builtins)) | {"candidate"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return used - bound


def entry_root(entry: str) -> str:
    """Return the name that a program must define for an entry.

    >>> entry_root("Solution().twoSum")
    'Solution'
    """
    return entry.partition(".")[0].removesuffix("()")


def without_star_import(tree: ast.Module, module: str) -> ast.Module:
    """Remove `from solution import *`, which would let a program replace `len` in the tests."""
    body = [node for node in tree.body if not _is_star_import(node, module)]
    return ast.Module(body=body, type_ignores=[])


def scopes_that_look_at_arguments(tree: ast.Module, module: str) -> list[range]:
    """List the lines of functions, or of all other code, that check how a call changed an argument.

    Only there do changes to arguments come back: elsewhere, a program that empties its list could
    fool `assert f(a) == sorted(a)`.

    >>> tests = "def test_it(a):\\n  f(a)\\n  assert a == [1]\\nb = [2]\\nassert f(b) == sorted(b)"
    >>> scopes_that_look_at_arguments(ast.parse(tests), "solution")
    [range(1, 4)]
    """
    taken = (alias for node in ast.walk(tree) for alias in _taken(node, module))
    tested = {alias.asname or alias.name for alias in taken}
    tested |= free_names(tree) | {"candidate", module}
    definitions = ast.FunctionDef | ast.ClassDef
    rest = [node for node in tree.body if not isinstance(node, definitions)]
    scopes: list[Sequence[ast.stmt]] = [rest]
    scopes += [[node] for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    watched: list[range] = []
    for scope in scopes:
        nodes = [part for node in scope for part in ast.walk(node)]
        if any(map(_Calls(nodes, tested).are_looked_at, nodes)):
            watched += [range(node.lineno, (node.end_lineno or 0) + 1) for node in scope]
    return watched


class _Calls:
    """The names in a scope that are arguments of calls to the program, and those of its results."""

    def __init__(self, nodes: Sequence[ast.AST], tested: set[str]) -> None:
        self._results = set(tested)
        for node in nodes:
            if isinstance(node, ast.Assign) and self._is_of_program(node.value):
                self._results |= {name for target in node.targets for name in _names(target)}
        self._arguments: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Call) and self._is_of_program(node.func):
                given = (*node.args, *(keyword.value for keyword in node.keywords))
                self._arguments |= {name for value in given for name in _names(value)}
        for node in nodes:
            is_display = isinstance(node, ast.Assign) and isinstance(
                node.value, ast.List | ast.Dict
            )
            if is_display and not self._arguments.isdisjoint(_names(node)):
                self._arguments |= _names(node)
        self._arguments -= self._results

    def are_looked_at(self, node: ast.AST) -> bool:
        """Whether a statement compares an argument with something that is not from the program."""
        if isinstance(node, ast.Return) and node.value is not None:
            return self._is_argument(node.value)
        if isinstance(node, ast.Assert):
            test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
            return self._is_argument(test) and not isinstance(test, ast.Compare)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_check = node.func.attr.startswith("assert")
            return is_check and (
                self._compares(node.args)
                or (node.func.attr.startswith("assertIs") and any(map(self._mentions, node.args)))
            )
        if not isinstance(node, ast.Compare):
            return False
        sides = (node.left, *node.comparators)
        is_identity = any(isinstance(sign, ast.Is | ast.IsNot) for sign in node.ops)
        return self._compares(sides) or (is_identity and any(map(self._mentions, sides)))

    def _compares(self, sides: Sequence[ast.expr]) -> bool:
        pairs = pairwise(sides) if len(sides) > 1 else [(side, side) for side in sides]
        return any(
            not self._is_of_program(left)
            and not self._is_of_program(right)
            and (self._mentions(left) or self._mentions(right))
            for left, right in pairs
        )

    def _is_argument(self, node: ast.expr) -> bool:
        return self._mentions(node) and not self._is_of_program(node)

    def _mentions(self, node: ast.expr) -> bool:
        return not self._arguments.isdisjoint(_names(node))

    def _is_of_program(self, node: ast.expr) -> bool:
        return not self._results.isdisjoint(_names(node))


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _taken(node: ast.AST, module: str) -> list[ast.alias]:
    return node.names if isinstance(node, ast.ImportFrom) and node.module == module else []


def unsupported_reason(tests: str, *, entry: str, module: str, setup: str = "") -> str | None:
    """Explain why tests cannot be run here; None if they can.

    >>> unsupported_reason("import requests\\nassert f(1)", entry="f", module="solution")
    'the tests import requests, which is not in the standard library'
    """
    tree = parse_python(tests)
    before = parse_python(setup)
    if tree is None or before is None:
        return "the tests are not Python"
    for node in (*ast.walk(before), *ast.walk(tree)):
        for name in _imports(node):
            if name not in sys.stdlib_module_names and name not in ("pytest", module):
                return f"the tests import {name}, which is not in the standard library"
        if reason := _pytest_fault(node):
            return reason
    tested = free_names(without_star_import(tree, module)) - set(sys.stdlib_module_names)
    imports = any(module in _imports(node) for node in ast.walk(tree))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if imports or tested or "candidate" in names or entry_root(entry) in names:
        return None
    return "the tests never call the program"


def pytest_fault(tests: str) -> str | None:
    """Name what the tests use of pytest that is missing here; None if nothing."""
    tree = parse_python(tests)
    return next(filter(None, map(_pytest_fault, ast.walk(tree))), None) if tree else None


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or ".").partition(".")[0]]
    return []


def _pytest_fault(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call) and node.keywords and ast.unparse(node.func) == "pytest.fixture":
        return "the tests use pytest.fixture with arguments"
    if not isinstance(node, ast.Attribute):
        return None
    owner = node.value
    if isinstance(owner, ast.Name) and owner.id == "pytest" and node.attr not in _PYTEST:
        return f"the tests use pytest.{node.attr}"
    is_mark = isinstance(owner, ast.Attribute) and owner.attr == "mark"
    return f"the tests use pytest.mark.{node.attr}" if is_mark and node.attr not in _MARKS else None


def _is_star_import(node: ast.stmt, module: str) -> bool:
    if not isinstance(node, ast.ImportFrom) or node.module != module:
        return False
    return any(alias.name == "*" for alias in node.names)


def runs_text(program: str) -> str | None:
    """Explain how a program may run its input as code, so that its answers prove nothing."""
    tree = parse_python(program)
    if tree is None:
        return "the program is not Python"
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {name for node in ast.walk(tree) for name in _imports(node)}
    runners = sorted(names & _RUNNERS)
    return f"the program uses {runners[0]}, which can run its input as code" if runners else None
