"""Checks of a chat template: what lets training and sampling disagree, or a model not stop."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from whet.errors import DataError
from whet.text.template import Template
from whet.text.tokenizer import Tokenizer
from whet.types import Json

QUESTION, ANSWER, MORE, LATER = "whetquestion", "whetanswer", "whetmore", "whetlater"
THOUGHT = "whetthought"
THINKING = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"
_MARKUP = re.compile(r"<\|[\w-]+\|>|</?s>|\[/?INST\]")
"""Texts that look like special tokens."""
Mark = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. A note is no fault, but good to know."""

    check: str
    mark: Mark
    sentence: str


def lint_template(tokenizer: Tokenizer, options: Mapping[str, Json] | None = None) -> list[Finding]:
    """Check the template of a tokenizer on short conversations."""
    if tokenizer.chat_template is None:
        sentence = 'there is none: set one with --set, such as "plain"'
        return [Finding(check="template", mark="fault", sentence=sentence)]
    linter = _Linter(tokenizer, options or {})
    checks: tuple[tuple[str, Callable[[], Iterator[tuple[Mark, str]]]], ...] = (
        ("renders", linter.check_roles),
        ("generation prompt", linter.check_generation_prompt),
        ("prefix", linter.check_prefix),
        ("stop token", linter.check_stop),
        ("thoughts", linter.check_thoughts),
        ("bos", linter.check_bos),
        ("special tokens", linter.check_special),
    )
    findings = []
    for name, check in checks:
        try:
            results = list(check())
        except DataError as error:
            results = [("fault", str(error))]
        findings += [Finding(check=name, mark=mark, sentence=text) for mark, text in results]
    return findings


class _Linter:
    """The checks; each yields marks and sentences, an "ok" if all is well."""

    def __init__(self, tokenizer: Tokenizer, options: Mapping[str, Json]) -> None:
        assert tokenizer.chat_template is not None, "it is there to be checked"
        self.tokenizer = tokenizer
        self.options = dict(options)
        self.template = Template(tokenizer.chat_template)

    def render(self, *turns: tuple[str, str], opens: bool = False) -> str:
        rows: list[Json] = [{"role": role, "content": content} for role, content in turns]
        fixed: dict[str, Json] = {"messages": rows, "tools": None, "documents": None}
        fixed["add_generation_prompt"] = opens
        return self.template.render({**self.tokenizer.named, **fixed, **self.options})

    def check_roles(self) -> Iterator[tuple[Mark, str]]:
        text = self.render(("user", QUESTION), opens=True)
        if QUESTION not in text:
            yield "fault", "the user's message is not in the prompt"
        try:
            if MORE not in self.render(("system", MORE), ("user", QUESTION), opens=True):
                yield "note", "system messages are dropped"
        except DataError:
            yield "note", "system messages are refused"
        yield "ok", "a user's message is in the prompt"

    def check_generation_prompt(self) -> Iterator[tuple[Mark, str]]:
        before = self.render(("user", QUESTION), opens=True)
        whole = self.render(("user", QUESTION), ("assistant", ANSWER))
        if whole.startswith(before):
            yield "ok", "a finished conversation begins with the prompt that was answered"
            return
        start, _, _ = whole.partition(ANSWER)
        yield (
            "note",
            f"a prompt ends in {_tail(before)!r}, but in a finished conversation the answer "
            f"follows {_tail(start)!r}; whet trains on the answer after the prompt",
        )

    def check_prefix(self) -> Iterator[tuple[Mark, str]]:
        turns = (("user", QUESTION), ("assistant", ANSWER))
        longer = self.render(*turns, ("user", MORE), ("assistant", LATER))
        if longer.startswith(self.render(*turns)):
            yield "ok", "a longer conversation begins with the shorter one"
        else:
            yield "note", "a longer conversation rewrites earlier turns"

    def check_stop(self) -> Iterator[tuple[Mark, str]]:
        rest = self.render(("user", QUESTION), ("assistant", ANSWER)).rpartition(ANSWER)[2]
        specials = [text for text in self.tokenizer.special_texts if text in rest]
        eos = self.tokenizer.eos_tokens
        if not specials:
            named = "" if eos else ", and the tokenizer has no eos_token either"
            yield (
                "note" if eos else "fault",
                f"an assistant's turn ends in {rest!r}, which holds no special token{named}; whet "
                "adds eos_token",
            )
            return
        first = min(specials, key=rest.index)
        if self.tokenizer.id(first) in eos:
            yield "ok", f"an assistant's turn ends with {first}, where sampling stops"
        else:
            yield (
                "note",
                f"an assistant's turn ends with {first}, which is not among the eos tokens: whet "
                "stops there, others do once an export has written generation_config.json",
            )

    def check_thoughts(self) -> Iterator[tuple[Mark, str]]:
        turns = (("user", QUESTION), ("assistant", THINKING))
        last = THOUGHT in self.render(*turns)
        earlier = THOUGHT in self.render(*turns, ("user", MORE), ("assistant", LATER))
        words = {True: "kept", False: "dropped"}
        yield (
            "ok" if last else "note",
            f"thoughts are {words[last]} in the last turn and {words[earlier]} in earlier ones"
            + ("" if last else "; whet trains on them all the same"),
        )

    def check_bos(self) -> Iterator[tuple[Mark, str]]:
        bos = self.tokenizer.named.get("bos_token")
        text = self.render(("user", QUESTION), opens=True)
        if bos is None:
            yield "ok", "the tokenizer has no bos_token"
        elif text.startswith(bos * 2):
            yield "fault", f"a prompt begins with {bos} twice"
        elif text.startswith(bos) and self.tokenizer.adds_bos:
            yield (
                "note",
                f"the template writes {bos} and the tokenizer adds it too: other tools must encode "
                "with add_special_tokens=False, as whet does",
            )
        else:
            yield "ok", f"a prompt has {bos} {'once' if text.startswith(bos) else 'nowhere'}"

    def check_special(self) -> Iterator[tuple[Mark, str]]:
        text = self.render(("user", QUESTION), ("assistant", ANSWER), ("user", MORE), opens=True)
        known = self.tokenizer.vocabulary
        missing = sorted({markup for markup in _MARKUP.findall(text) if markup not in known})
        if missing:
            yield "fault", f"{', '.join(missing)}: no token of this tokenizer, so read as text"
        else:
            yield "ok", "all special tokens that it writes are in the vocabulary"


def _tail(text: str) -> str:
    return text[-30:]
