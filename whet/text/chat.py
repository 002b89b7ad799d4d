"""Messages to tokens and back, by a model's own chat template.

Templates are jinja2 programs by strangers. They are rendered as transformers renders them, in a
sandbox that keeps them from reaching anything and from running or growing without bound.
"""

import functools
import json
import re
import time
from collections.abc import Callable, ItemsView, KeysView, Mapping, Sequence, ValuesView
from dataclasses import replace
from datetime import datetime
from typing import NoReturn, TypeVar

import numpy as np
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer
from numpy.typing import NDArray

from whet.errors import DataError
from whet.text.tokenizer import Tokenizer
from whet.types import Json, Message, Tokens

PRIVATE_USE = tuple(chr(code) for code in range(0xE000, 0xF8FF))
PROBE = "whetprobe"
_OPEN_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>(\s*)\Z")
MAX_STEPS = 50_000
"""Loop rounds and macro calls of one rendering; a thousand messages take a few thousand."""
MAX_SECONDS = 10.0
MAX_SIZE = 20_000_000
"""Characters or items of any one value, and characters of a rendering."""
MAX_PARTS = 200_000
"""Items of a value and of all values in it, each counted as often as it would be written."""
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


class ChatFormat:
    """The chat format of one model: its prompts, its stop tokens, and the text of its answers.

    Special tokens written in a message are plain text to the model; only the template's own words
    become real ones.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.chat_template is None:
            raise DataError(
                "the tokenizer has no chat template; set model.chat_template to a jinja file, "
                'or to "raw" for prompts without turns, as base models read them'
            )
        self.tokenizer = tokenizer
        self._template = Template(tokenizer.chat_template)
        longest_first = sorted(tokenizer.special_texts, key=len, reverse=True)
        self._special = re.compile("|".join(re.escape(text) for text in longest_first) or "(?!)")
        self._turn_ends = self._find_turn_end()
        self.stop_tokens: frozenset[int] = tokenizer.eos_tokens | self._turn_ends
        if not self.stop_tokens:
            raise DataError(
                "the model has no stop token: "
                "neither an eos_token nor one at the end of a chat turn"
            )

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool, **kwargs: Json
    ) -> str:
        """Render messages as text; `kwargs` go to the template, such as `enable_thinking=False`."""
        rows: Json = [{"role": message.role, "content": message.content} for message in messages]
        fixed: dict[str, Json] = {"messages": rows, "tools": None, "documents": None}
        fixed["add_generation_prompt"] = add_generation_prompt
        return self._template.render({**self.tokenizer.named, **fixed, **kwargs})

    def encode_prompt(self, messages: Sequence[Message], **kwargs: Json) -> Tokens:
        """Encode messages and the opening of the assistant's turn, for an engine to continue."""
        fence = self._choose_fence(messages)
        text = self.render(self._fence_specials(messages, fence), True, **kwargs)
        return self._encode(text, fence)

    def conversation(
        self, messages: Sequence[Message], **kwargs: Json
    ) -> tuple[Tokens, NDArray[np.bool_]]:
        """Encode a whole conversation for SFT, with a mask of its last message and stop token.

        The tokens begin exactly with `encode_prompt` of the messages before it. Text that the
        template adds to the response, such as an empty thought, is part of the response. Where the
        template would drop part of it, as R1's drops thoughts, or rewrites the prompt once it is
        answered, the response follows the prompt word by word, as a model would sample it.
        """
        if not messages or messages[-1].role != "assistant":
            raise DataError("a conversation to learn from must end with an assistant message")
        fence = self._choose_fence(messages)
        fenced = self._fence_specials(messages, fence)
        before = self.render(fenced[:-1], True, **kwargs)
        whole = self.render(fenced, False, **kwargs)
        response = whole.removeprefix(before)
        # The opening of the turn may already hold the start of the content, such as <think>.
        content = _remove_space(fenced[-1].content)
        start = _remove_space(before)[-len(content) :]
        if not whole.startswith(before) or content not in start + _remove_space(response):
            opening, rest = _continue_turn(before, messages[-1])
            response = opening + self._fence_specials([rest], fence)[0].content
        prompt = self._encode(before, fence)
        answer = self._cut_at_stop(self._encode(response, fence))
        is_response = np.repeat([False, True], [len(prompt), len(answer)])
        return np.concatenate([prompt, answer]), is_response

    def decode_message(self, tokens: Tokens) -> str:
        """Decode an answer, without the stop token it ended with."""
        return self.tokenizer.decode(self._drop_stop(tokens))

    def spans(self, tokens: Tokens) -> list[tuple[int, int]]:
        """Return each token's span of characters in the message, without the stop token."""
        return self.tokenizer.spans(self._drop_stop(tokens))

    def _drop_stop(self, tokens: Tokens) -> Tokens:
        is_stopped = len(tokens) > 0 and int(tokens[-1]) in self.stop_tokens
        return tokens[:-1] if is_stopped else tokens

    def _find_turn_end(self) -> frozenset[int]:
        """Find the special token that the template writes after an assistant's content, if any."""
        turns = (Message(role="user", content="?"), Message(role="assistant", content=PROBE))
        try:
            text = self.render(turns, False)
        except DataError:
            return frozenset()
        _, has_probe, rest = text.rpartition(PROBE)
        match = self._special.search(rest) if has_probe else None
        return frozenset([self.tokenizer.id(match[0])] if match else [])

    def _cut_at_stop(self, tokens: Tokens) -> Tokens:
        stops = np.flatnonzero(np.isin(tokens, list(self.stop_tokens)))
        if len(stops):
            return tokens[: stops[0] + 1]
        # A template that leaves the turn open, as GLM's does, ends it with the next role; an answer
        # has to end itself.
        eos = self.stop_tokens if self.tokenizer.eos is None else [self.tokenizer.eos]
        return np.append(tokens, np.int32(min(self._turn_ends or eos)))

    def _choose_fence(self, messages: Sequence[Message]) -> str:
        """Choose two unused characters to fence special tokens in; "" if no message has any."""
        text = "".join(message.content for message in messages)
        if not self._special.search(text):
            return ""
        free = [character for character in PRIVATE_USE if character not in text][:2]
        if len(free) < 2:
            raise DataError(
                "the messages use every private-use character, "
                "so special tokens cannot be told from text"
            )
        return "".join(free)

    def _fence_specials(self, messages: Sequence[Message], fence: str) -> list[Message]:
        if not fence:
            return list(messages)
        fenced = f"{fence[0]}\\g<0>{fence[1]}"
        return [replace(m, content=self._special.sub(fenced, m.content)) for m in messages]

    def _encode(self, text: str, fence: str) -> Tokens:
        """Encode the template's words with special tokens, and fenced text as plain text."""
        if not fence:
            return self.tokenizer.encode(text, special=True)
        encode = self.tokenizer.encode
        parts = enumerate(re.split(f"{fence[0]}([^{fence}]*){fence[1]}|[{fence}]", text))
        return np.concatenate([encode(part or "", special=i % 2 == 0) for i, part in parts])


def _remove_space(text: str) -> str:
    return "".join(text.split())


def _continue_turn(before: str, message: Message) -> tuple[str, Message]:
    """Return what follows the opening of a turn: the closing tag of an open thought if the message
    lacks it, and the rest of the message."""
    opened = _OPEN_THOUGHT.search(before)
    if opened is None:
        return "", message
    if f"</{opened[1]}>" not in message.content:
        return f"\n</{opened[1]}>\n\n", message
    start = re.match(rf"\s*<{opened[1]}>{opened[2]}|\s*<{opened[1]}>", message.content)
    return "", replace(message, content=message.content[start.end() if start else 0 :])


class Template:
    """A compiled chat template, with the variables of transformers: messages, bos_token, ..."""

    def __init__(self, source: str) -> None:
        self._sandbox = _Sandbox()
        try:
            self._compiled = self._sandbox.from_string(source)
        except (*FAILURES, SyntaxError) as error:
            raise DataError(f"the chat template does not compile: {_first_line(error)}") from error

    def render(self, variables: Mapping[str, Json]) -> str:
        """Fill in the template; whatever goes wrong inside it becomes one sentence."""
        self._sandbox.start()
        try:
            return self._compiled.render(variables)
        except FAILURES as error:
            raise DataError(
                f"the chat template refuses these messages: {_first_line(error)}"
            ) from error


class _Generation(Extension):
    """Accept {% generation %} around the assistant's text; here it only opens a scope."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Transformers' environment with counted loop rounds and macro calls, and bounded values."""

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
        """Refuse a value that is too large, or too large to write out."""
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
        """Count the output: a loop may write a large value many times."""
        self.check_time()
        text = str(value)
        self.num_chars += len(text)
        _refuse(self.num_chars > MAX_SIZE)
        return text

    def _bound(self, action: Callable[..., object]) -> Callable[..., object]:
        """Keep a filter below the largest size: check its numbers first, and then its result."""

        @functools.wraps(action)
        def apply(*args: object, **kwargs: object) -> object:
            _refuse(any(_number_above(value, MAX_SIZE) for value in (*args[1:], *kwargs.values())))
            return self.check(action(*args, **kwargs))

        return apply

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Make every loop round and macro call a step; check the results of ~, [], () and {}."""
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
        """Make a call of a method here, to be put into a template."""
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
        """Check a format string before jinja2's own wrapper hides which string it belongs to."""
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
    """Check every list, tuple and table that a template writes: each may hold another twice."""

    def visit(self, node: nodes.Node, *args: object, **kwargs: object) -> nodes.Node:
        self.generic_visit(node)
        is_value = getattr(node, "ctx", "load") == "load"
        if is_value and isinstance(node, nodes.List | nodes.Dict | nodes.Tuple):
            assert isinstance(node.environment, _Sandbox), "as its parser"
            return node.environment.make_call("check", [node], node.lineno)
        return node


class _Namespace(Namespace):
    """A namespace that does not print its values, which may refer back to it."""

    def __repr__(self) -> str:
        return "<Namespace>"


def _refuse(is_too_large: bool) -> None:
    if is_too_large:
        raise TemplateError(f"it makes a value of more than {MAX_SIZE:,} characters or items")


def _refuse_wide(pattern: str) -> None:
    """Refuse format strings that could pad: a width of seven digits, or one from an argument."""
    _refuse(re.search(r"[0-9]{7}|%[-+ #0]*\*|:[^{}]*\{", pattern) is not None)


def _number_above(value: object, limit: int) -> bool:
    return isinstance(value, int | float) and abs(value) > limit


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _write_date(pattern: str) -> str:
    """Write one fixed date, Llama 3's default, so that a run that goes on tomorrow has the prompts
    of today."""
    return datetime(2024, 7, 26).strftime(pattern)


def _tojson(
    value: Json,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON for a model to read: unlike in jinja2's own filter, no HTML escapes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:300]
