"""Proof that a chat turn keeps its stop token, in SFT, in sampling, and in samples."""

import re
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer as Core
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from whet.engine.native import NativeConfig
from whet.proofs import fixtures
from whet.proofs.base import Measurement, find_worst
from whet.text.chat import ChatFormat
from whet.text.tokenizer import PLAIN_TEMPLATE, Tokenizer
from whet.types import Finish, Message

QUESTION = Message(role="user", content="2+3 <|im_end|>?")
ANSWER = Message(role="assistant", content="so 5")
"""Text in a question that looks like a special token must stay text."""

_TURNS = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\\n' + THOUGHT + m.content + '<|im_end|>\\n' }}{% endfor %}"
)
_OPENING = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
_THOUGHT = "('<think>\\n\\n</think>\\n\\n' if m.role == 'assistant' else '')"
_LLAMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim"
    " + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The chat template of a model family, and a turn by hand around QUESTION and ANSWER."""

    template: str
    eos: str
    prompt: str
    response: str
    stop: str

    @property
    def special(self) -> set[str]:
        return {self.eos, *re.findall(r"<\|\w+\|>", self.prompt), self.stop}


_CHATML = "<|im_start|>user\nQUESTION<|im_end|>\n<|im_start|>assistant\n"
FAMILIES = {
    "plain": Family(
        template=PLAIN_TEMPLATE,
        eos="<eos>",
        prompt="QUESTION\n",
        response="ANSWER",
        stop="<eos>",
    ),
    "qwen2": Family(
        template=_TURNS.replace("THOUGHT", "''") + _OPENING,
        eos="<|endoftext|>",
        prompt=_CHATML,
        response="ANSWER",
        stop="<|im_end|>",
    ),
    "qwen3": Family(
        template=_TURNS.replace("THOUGHT", _THOUGHT) + _OPENING,
        eos="<|endoftext|>",
        prompt=_CHATML,
        response="<think>\n\n</think>\n\nANSWER",
        stop="<|im_end|>",
    ),
    "llama3": Family(
        template=_LLAMA,
        eos="<|end_of_text|>",
        prompt="<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nQUESTION<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        response="ANSWER",
        stop="<|eot_id|>",
    ),
}


def measure_stop_tokens() -> Measurement:
    """Compare each family's chat format with tokens by hand, and sample up to a stop."""
    differences = {name: _count_differences(family) for name, family in FAMILIES.items()}
    differences["the engine"] = _count_wrong_ends()
    worst, most = find_worst(differences)
    text = (
        f"{sum(differences.values())} differences from tokens laid out by hand, chat formats "
        f"{', '.join(FAMILIES)}"
    )
    return Measurement(gap=most, limit=0, text=text + (f"; most in {worst}" if most else ""))


def measure_model_stops(chat: ChatFormat) -> Measurement:
    """Look for the stop token in the output of a model's own template."""
    written = chat.tokenizer.encode(chat.render([QUESTION, ANSWER], False), special=True)
    tokens, is_response = chat.conversation([QUESTION, ANSWER])
    response = tokens[is_response]
    stops = sorted(chat.stop_tokens)
    is_stop = np.isin(response, stops)
    faults = {
        "the template writes no stop token after an answer": np.isin(written[-4:], stops).any(),
        "an answer to learn from does not end with its stop token": is_stop[-1]
        and is_stop.sum() == 1,
        "the prompt of SFT is not that of sampling": np.array_equal(
            tokens[~is_response], chat.prompt([QUESTION])
        ),
        "an answer is read back otherwise": chat.message(response).endswith(ANSWER.content),
    }
    broken = [name for name, holds in faults.items() if not holds]
    names = ", ".join(repr(chat.tokenizer.decode([stop], keep_special=True)) for stop in stops)
    text = "; ".join(broken) or f"answers end with one of {names}, and keep it"
    return Measurement(gap=len(broken), limit=0, text=text)


def _count_differences(family: Family) -> int:
    tokenizer = _tokenizer(family)
    chat = ChatFormat(tokenizer)
    stop = tokenizer.id(family.stop)
    prompt = _encode_by_hand(tokenizer, family, family.prompt)
    response = [*_encode_by_hand(tokenizer, family, family.response), stop]
    text = family.response.replace("ANSWER", ANSWER.content)
    tokens, is_response = chat.conversation([QUESTION, ANSWER])
    differs: list[bool] = [
        chat.prompt([QUESTION]).tolist() != prompt,
        tokens[~is_response].tolist() != prompt,
        tokens[is_response].tolist() != response,
        chat.stop_tokens != {stop, tokenizer.id(family.eos)},
        chat.message(np.array(response, dtype=np.int32)) != text,
    ]
    return sum(differs)


def _count_wrong_ends() -> int:
    """Sample where every fourth token is a stop; count completions that end wrongly."""
    model = fixtures.make_model()
    size = model.cfg.vocab_size
    stops = frozenset(range(0, size, 4))
    engine = NativeConfig(slots=4).build(model, stop_tokens=stops)
    wrong = 0
    for _, completion in engine.generate(fixtures.make_requests(size)):
        *before, last = completion.tokens.tolist()
        is_stopped = completion.finish == Finish.STOP
        wrong += not stops.isdisjoint(before) or (last in stops) != is_stopped
    return wrong


def _tokenizer(family: Family) -> Tokenizer:
    """Make a tokenizer of single bytes and special tokens, so that no two pieces of text merge."""
    alphabet = sorted(ByteLevel.alphabet())
    core = Core(BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    core.decoder = ByteLevelDecoder()
    core.add_special_tokens(sorted(set().union(*(one.special for one in FAMILIES.values()))))
    settings = {"bos_token": "<|begin_of_text|>", "eos_token": family.eos}
    return Tokenizer(core, dict(settings), family.template)


def _encode_by_hand(tokenizer: Tokenizer, family: Family, text: str) -> list[int]:
    contents = {"QUESTION": QUESTION.content, "ANSWER": ANSWER.content}
    tokens: list[int] = []
    for piece in re.split(r"(<\|\w+\|>|QUESTION|ANSWER)", text):
        if piece in family.special:
            tokens.append(tokenizer.id(piece))
        else:
            tokens += tokenizer.encode(contents.get(piece, piece)).tolist()
    return tokens
