"""Proof that a chat turn keeps its stop token, in SFT, in sampling, and in samples."""

from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer as Core
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from whet.engine.native import NativeConfig
from whet.proofs import specimen
from whet.proofs.base import Measure
from whet.text.chat import ChatFormat
from whet.text.tokenizer import PLAIN_TEMPLATE, Tokenizer
from whet.types import Finish, Message

SPECIAL = (
    *("<eos>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *(
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|end_of_text|>",
    ),
)
QUESTION = Message(role="user", content="2+3 <|im_end|>?")
ANSWER = Message(role="assistant", content="so 5")
"""What looks like a special token in a question is text, and none of the template's."""

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
class Speech:
    """How a family writes a turn, and its pieces by hand; the last is the stop token."""

    template: str
    eos: str
    prompt: tuple[str, ...]
    response: tuple[str, ...]


_CHATML = (
    "<|im_start|>",
    "user\n",
    QUESTION.content,
    "<|im_end|>",
    "\n",
    "<|im_start|>",
    "assistant\n",
)
SPEECHES = {
    "plain": Speech(
        template=PLAIN_TEMPLATE,
        eos="<eos>",
        prompt=(QUESTION.content, "\n"),
        response=(ANSWER.content, "<eos>"),
    ),
    "qwen2": Speech(
        template=_TURNS.replace("THOUGHT", "''") + _OPENING,
        eos="<|endoftext|>",
        prompt=_CHATML,
        response=(ANSWER.content, "<|im_end|>"),
    ),
    "qwen3": Speech(
        template=_TURNS.replace("THOUGHT", _THOUGHT) + _OPENING,
        eos="<|endoftext|>",
        prompt=_CHATML,
        response=("<think>\n\n</think>\n\n", ANSWER.content, "<|im_end|>"),
    ),
    "llama3": Speech(
        template=_LLAMA,
        eos="<|end_of_text|>",
        prompt=(
            *("<|begin_of_text|>", "<|start_header_id|>", "user", "<|end_header_id|>", "\n\n"),
            *(
                QUESTION.content,
                "<|eot_id|>",
                "<|start_header_id|>",
                "assistant",
                "<|end_header_id|>",
                "\n\n",
            ),
        ),
        response=(ANSWER.content, "<|eot_id|>"),
    ),
}


def stop_tokens() -> Measure:
    """Compare each family's chat format with tokens by hand, and sample up to a stop."""
    lost = {
        name: sum(not holds for holds in _promises(speech)) for name, speech in SPEECHES.items()
    }
    lost["the engine"] = _cut_by_engine()
    worst = max(lost, key=lambda name: lost[name])
    text = (
        f"{sum(lost.values())} differences from tokens laid out by hand, chat formats "
        f"{', '.join(SPEECHES)}"
    )
    return Measure(
        gap=lost[worst], limit=0, text=text + (f"; most in {worst}" if lost[worst] else "")
    )


def stop_tokens_of(chat: ChatFormat) -> Measure:
    """Look for the stop token in what a model's own template writes."""
    written = chat.tokenizer.encode(chat.render([QUESTION, ANSWER], False), special=True)
    tokens, is_response = chat.conversation([QUESTION, ANSWER])
    response = tokens[is_response]
    is_stop = np.isin(response, list(chat.stop_tokens))
    promises = {
        "the template writes no stop token after an answer": np.isin(
            written[-4:], list(chat.stop_tokens)
        ).any(),
        "an answer to learn from does not end with its stop token": is_stop[-1]
        and is_stop.sum() == 1,
        "the prompt of SFT is not that of sampling": np.array_equal(
            tokens[~is_response], chat.prompt([QUESTION])
        ),
        "an answer is read back otherwise": chat.message(response).endswith(ANSWER.content),
    }
    broken = [name for name, holds in promises.items() if not holds]
    stops = ", ".join(
        repr(chat.tokenizer.decode([stop], keep_special=True)) for stop in sorted(chat.stop_tokens)
    )
    return Measure(
        gap=len(broken),
        limit=0,
        text="; ".join(broken) or f"answers end with one of {stops}, and keep it",
    )


def _promises(speech: Speech) -> list[bool]:
    tokenizer = _tokenizer(speech)
    chat = ChatFormat(tokenizer)
    stop = tokenizer.id(speech.response[-1])
    prompt, response = (_laid_out(tokenizer, pieces) for pieces in (speech.prompt, speech.response))
    tokens, is_response = chat.conversation([QUESTION, ANSWER])
    return [
        chat.prompt([QUESTION]).tolist() == prompt,
        tokens[~is_response].tolist() == prompt,
        tokens[is_response].tolist() == response,
        chat.stop_tokens == {stop, tokenizer.id(speech.eos)},
        chat.message(np.array(response, dtype=np.int32)) == "".join(speech.response[:-1]),
    ]


def _cut_by_engine() -> int:
    """Sample where every fourth token is a stop; count completions that end wrongly."""
    model = specimen.model()
    size = model.cfg.vocab_size
    stops = frozenset(range(0, size, 4))
    engine = NativeConfig(slots=4).build(model, stop_tokens=stops)
    wrong = 0
    for _, completion in engine.generate(specimen.requests(size)):
        *before, last = completion.tokens.tolist()
        wrong += not stops.isdisjoint(before) or (last in stops) != (
            completion.finish == Finish.STOP
        )
    return wrong


def _tokenizer(speech: Speech) -> Tokenizer:
    """Make a vocabulary of single bytes and special tokens, so that pieces of text never join."""
    alphabet = sorted(ByteLevel.alphabet())
    core = Core(BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    core.decoder = ByteLevelDecoder()
    core.add_special_tokens(list(SPECIAL))
    settings = {"bos_token": "<|begin_of_text|>", "eos_token": speech.eos}
    return Tokenizer(core, dict(settings), speech.template)


def _laid_out(tokenizer: Tokenizer, pieces: tuple[str, ...]) -> list[int]:
    return [
        token
        for piece in pieces
        for token in (
            [tokenizer.id(piece)] if piece in SPECIAL else tokenizer.encode(piece).tolist()
        )
    ]
