"""Render chat templates, which are untrusted jinja2 programs, as transformers does.

The sandbox isolates them and bounds their time and output.
"""

import functools
import json
import re
import time
from collections.abc import Callable, ItemsView, KeysView, Mapping, ValuesView
from datetime import datetime
from typing import NoReturn, TypeVar

from jinja2 import TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from whet.errors import DataError
from whet.types import Json

MAX_STEPS = 50_000
"""Loop iterations and macro calls of one rendering; a thousand messages take a few thousand."""
MAX_SECONDS = 10.0
MAX_SIZE = 20_000_000
"""Characters or items of one value, and characters of a rendering."""
MAX_PARTS = 200_000
"""Items of a value and of all values inside it, counted each time that they would be written."""
_CONTAINERS = (list, tuple, dict, set, frozenset, KeysView, ValuesView, ItemsView)
Value = TypeVar("Value")
FAILURES = (
    TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class Template:
    """A compiled chat template with the variables of transformers: messages, bos_token, ...

    `variables` are the names that the template reads.
    """

    def __init__(self, source: str) -> None:
        self._sandbox = _Sandbox()
        try:
            self._compiled = self._sandbox.from_string(source)
            tree = self._sandbox.parse(source)
        except (*FAILURES, SyntaxError) as error:
            raise DataError(f"the chat template does not compile: {_first_line(error)}") from error
        known = self._sandbox.globals.keys()
        self.variables = frozenset(meta.find_undeclared_variables(tree)) - known

    def render(self, variables: Mapping[str, Json]) -> str:
        """Render the template; any failure inside it becomes one sentence."""
        self._sandbox.start()
        try:
            return self._compiled.render(variables)
        except FAILURES as error:
            raise DataError(
                f"the chat template refuses these messages: {_first_line(error)}"
            ) from error


class _Generation(Extension):
    """Accept {% generation %} around the assistant's text; it only opens a scope."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Sandbox(ImmutableSandboxedEnvironment):
    """The environment of transformers, with limits on loops, macro calls and values."""

    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            finalize=self._write,
        )
        self.filters["tojson"] = _tojson
        self.filters = {name: self._bound(action) for name, action in self.filters.items()}
        self.globals |= {"raise_exception": _raise, "namespace": _Namespace}
        self.globals["strftime_now"] = _write_date
        del self.globals["lipsum"]
        self.start()

    def start(self) -> None:
        self.steps = 0
        self.num_chars = 0
        self.deadline = time.monotonic() + MAX_SECONDS

    def step(self) -> None:
        self.steps += 1
        self.check_time()

    def check_time(self) -> None:
        if self.steps > MAX_STEPS or time.monotonic() > self.deadline:
            raise TemplateError(
                f"it does not end within {MAX_STEPS:,} loop rounds and {MAX_SECONDS:.0f} s"
            )

    def join(self, *parts: object) -> str:
        return self.check("".join(str(part) for part in parts))

    def check(self, value: Value) -> Value:
        """Refuse a value that is too large to hold or to write."""
        self.check_time()
        _refuse(isinstance(value, str | list | tuple) and len(value) > MAX_SIZE)
        waiting: list[object] = [value]
        num_parts = 0
        while waiting:
            item = waiting.pop()
            if isinstance(item, _CONTAINERS):
                num_parts += len(item)
                _refuse(num_parts > MAX_PARTS)
                waiting += [*item, *item.values()] if isinstance(item, dict) else item
        return value

    def _write(self, value: object) -> str:
        """Count the characters of the output, since a loop may write a large value many times."""
        self.check_time()
        text = str(value)
        self.num_chars += len(text)
        _refuse(self.num_chars > MAX_SIZE)
        return text

    def _bound(self, action: Callable[..., object]) -> Callable[..., object]:
        """Bound a filter: check its numeric arguments, then its result."""

        @functools.wraps(action)
        def apply(*args: object, **kwargs: object) -> object:
            _refuse(any(_number_above(value, MAX_SIZE) for value in (*args[1:], *kwargs.values())))
            return self.check(action(*args, **kwargs))

        return apply

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Count every loop iteration and macro call, and check the results of ~, [], () and {}."""
        tree = super()._parse(source, name, filename)
        for block in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            assert isinstance(block, nodes.For | nodes.Macro | nodes.CallBlock), "as searched for"
            step = self.make_call("step", [], block.lineno)
            block.body.insert(0, nodes.ExprStmt(step, lineno=block.lineno))
        for join in tree.find_all(nodes.Concat):
            join.nodes = [self.make_call("join", join.nodes, join.lineno)]
        _CheckLiterals().visit(tree)
        return tree

    def make_call(self, name: str, args: list[nodes.Expr], line: int) -> nodes.Call:
        """Build the node of a call to a method of this class."""
        call = nodes.Call(nodes.EnvironmentAttribute(name), args, [], None, None, lineno=line)
        call.set_environment(self)
        return call

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        for value, times in ((left, right), (right, left)):
            if operator == "*" and isinstance(times, int) and isinstance(value, str | list | tuple):
                _refuse(len(value) * times > MAX_SIZE)
        if operator == "**":
            is_small = isinstance(right, int | float) and abs(right) <= 64
            _refuse(not is_small or _number_above(left, MAX_SIZE))
        if operator == "%" and isinstance(left, str):
            _refuse_wide(left)
        return self.check(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: object) -> Callable[..., str] | None:
        """Check a format string before jinja2's wrapper hides it."""
        wrapper = super().wrap_str_format(value)
        if wrapper is not None:
            _refuse_wide(getattr(value, "__self__", ""))
        return wrapper

    def call(
        self, context: Context, called: Callable[..., object], /, *args: object, **kwargs: object
    ) -> object:
        _refuse(any(_number_above(value, MAX_SIZE) for value in (*args, *kwargs.values())))
        return self.check(super().call(context, called, *args, **kwargs))


class _CheckLiterals(NodeTransformer):
    """Check every list, tuple and table literal, since each may contain another one twice."""

    def visit(self, node: nodes.Node, *args: object, **kwargs: object) -> nodes.Node:
        self.generic_visit(node)
        is_value = getattr(node, "ctx", "load") == "load"
        if is_value and isinstance(node, nodes.List | nodes.Dict | nodes.Tuple):
            assert isinstance(node.environment, _Sandbox), "as its parser"
            return node.environment.make_call("check", [node], node.lineno)
        return node


class _Namespace(Namespace):
    """A namespace that does not print its values, since they may refer back to it."""

    def __repr__(self) -> str:
        return "<Namespace>"


def _refuse(is_too_large: bool) -> None:
    if is_too_large:
        raise TemplateError(f"it makes a value of more than {MAX_SIZE:,} characters or items")


def _refuse_wide(pattern: str) -> None:
    """Refuse format strings that can pad without bound: a width of seven digits, or from an
    argument."""
    _refuse(re.search(r"[0-9]{7}|%[-+ #0]*\*|:[^{}]*\{", pattern) is not None)


def _number_above(value: object, limit: int) -> bool:
    return isinstance(value, int | float) and abs(value) > limit


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _write_date(pattern: str) -> str:
    """Write a fixed date, Llama 3's default, so that a run resumed on another day has the same
    prompts."""
    return datetime(2024, 7, 26).strftime(pattern)


def _tojson(
    value: Json,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON for a model, without the HTML escapes of jinja2's filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:300]
