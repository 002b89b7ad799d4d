"""Chat templates as jinja2 programs from strangers: rendered like transformers renders them, but
with an end to it.

The sandbox keeps a template from reaching anything; the limits here keep it from running or growing
without bound.
"""

import functools
import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NoReturn, TypeVar

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from whet.errors import DataError
from whet.types import Json

MAX_STEPS = 50_000
"""Loop rounds and macro calls of one rendering; a conversation of a thousand messages takes some
thousands."""
MAX_SECONDS = 10.0
MAX_SIZE = 20_000_000
"""Characters or items of any one value."""
Value = TypeVar("Value")
FAILURES = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class Template:
    """A compiled chat template. Names are those of transformers: messages, add_generation_prompt,
    bos_token, ..."""

    def __init__(self, source: str) -> None:
        self._sandbox = _Sandbox()
        try:
            self._compiled = self._sandbox.from_string(source)
        except (*FAILURES, SyntaxError) as error:
            raise DataError(
                f"the chat template cannot be compiled: {_first_line(error)}"
            ) from error

    def render(self, variables: Mapping[str, Json]) -> str:
        """Fill the template in; whatever goes wrong inside it is one sentence."""
        self._sandbox.start()
        try:
            return self._compiled.render(variables)
        except FAILURES as error:
            raise DataError(
                f"the chat template refuses these messages: {_first_line(error)}"
            ) from error


class _Generation(Extension):
    """Accept {% generation %} around what the assistant wrote; here it only opens a scope."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Transformers' environment, in which loops and macros count their rounds and values have a
    largest size."""

    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        self.filters = {name: _bounded(action) for name, action in self.filters.items()} | {
            "tojson": _tojson
        }
        self.globals |= {"raise_exception": _raise, "strftime_now": _now}
        del self.globals["lipsum"]
        self.start()

    def start(self) -> None:
        self.steps = 0
        self.deadline = time.monotonic() + MAX_SECONDS

    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS or time.monotonic() > self.deadline:
            raise TemplateError(
                f"it does not end within {MAX_STEPS:,} loop rounds and {MAX_SECONDS:.0f} s"
            )

    def join(self, *parts: object) -> str:
        return _checked("".join(str(part) for part in parts))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Let every loop and macro begin with a step, and every ~ measure what it joins."""
        tree = super()._parse(source, name, filename)
        for block in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            call = nodes.Call(nodes.EnvironmentAttribute("step"), [], [], None, None)
            assert isinstance(block, nodes.For | nodes.Macro | nodes.CallBlock), (
                "what was looked for"
            )
            statement = nodes.ExprStmt(call, lineno=block.lineno)
            statement.set_environment(self)
            block.body.insert(0, statement)
        for join in tree.find_all(nodes.Concat):
            call = nodes.Call(
                nodes.EnvironmentAttribute("join"), join.nodes, [], None, None, lineno=join.lineno
            )
            call.set_environment(self)
            join.nodes = [call]
        return tree

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        for value, times in ((left, right), (right, left)):
            if operator == "*" and isinstance(times, int) and isinstance(value, str | list | tuple):
                _refuse(len(value) * times > MAX_SIZE)
        if operator == "**":
            _refuse(
                not isinstance(right, int | float)
                or abs(right) > 64
                or _number_above(left, MAX_SIZE)
            )
        if operator == "%" and isinstance(left, str):
            _refuse_wide(left)
        return _checked(super().call_binop(context, operator, left, right))

    def call(
        self, context: Context, called: Callable[..., object], /, *args: object, **kwargs: object
    ) -> object:
        owner = getattr(called, "__self__", None)
        if isinstance(owner, str) and called.__name__ in ("format", "format_map"):
            _refuse_wide(owner)
        _refuse(any(_number_above(value, MAX_SIZE) for value in (*args, *kwargs.values())))
        return _checked(super().call(context, called, *args, **kwargs))


def _bounded(action: Callable[..., object]) -> Callable[..., object]:
    """Keep a filter from making more than the largest size, by its numbers beforehand and its
    result afterwards."""

    @functools.wraps(action)
    def bounded(*args: object, **kwargs: object) -> object:
        _refuse(any(_number_above(value, MAX_SIZE) for value in (*args[1:], *kwargs.values())))
        return _checked(action(*args, **kwargs))

    return bounded


def _checked(value: Value) -> Value:
    _refuse(isinstance(value, str | list | tuple) and len(value) > MAX_SIZE)
    return value


def _refuse(is_too_large: bool) -> None:
    if is_too_large:
        raise TemplateError(f"it makes a value of more than {MAX_SIZE:,} characters or items")


def _refuse_wide(pattern: str) -> None:
    """Refuse format strings that could pad: a width of seven digits, or one taken from an
    argument."""
    _refuse(re.search(r"[0-9]{7}|%[-+ #0]*\*|:[^{}]*\{", pattern) is not None)


def _number_above(value: object, limit: int) -> bool:
    return isinstance(value, int | float) and abs(value) > limit


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(
    value: Json,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON for a model to read: unlike jinja2's own filter, nothing is escaped for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:300]
