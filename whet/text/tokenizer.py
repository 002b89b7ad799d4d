"""Convert text to tokens and back, with tokenizers of model folders or small ones for a task.

Untrusted text cannot contain special tokens: "<|im_end|>" in a problem is encoded as ten plain
characters, unless the caller sets `special=True`, as chat templates do for their own text.
"""

import codecs
import json
import re
import string
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import tokenizers
from tokenizers import Regex
from tokenizers.decoders import Fuse
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import ByteLevel, Split

from whet.errors import ConfigError, DataError
from whet.types import Json, Tokens

NAMED = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
WRITTEN = ("bos_token", "pad_token")
"""Named tokens whose ids are written with a model; the chat format provides the stop tokens."""
PAD = "<pad>"
EOS = "<eos>"
_UNKNOWN = "<unk>"
PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'user' %}{{ message.content + '\\n' }}"
    "{% elif message.role == 'assistant' %}{{ message.content + eos_token }}{% endif %}"
    "{% endfor %}"
)
"""The user's text and a newline, then the response and <eos>; system messages are dropped."""

_NUMBER = r" ?-?[0-9]+(?:/[0-9]+)?"
WORD = r" ?[A-Za-z]+"
Pieces = Literal["phrases", "words"]
MAX_LEN = 64
"""Characters of the longest piece; greedy matching of an unknown run costs its length cubed."""
# Besides numbers, two things are split off: characters without a token, so that only they are lost,
# and the "<" of a special token's name in plain text, so that the name never matches as a whole.
_ISOLATED = rf"{_NUMBER}|[^\t-\r -~]|<(?=(?:pad|eos|unk)>)"
_SPLIT = re.compile(f"({_ISOLATED})")
_WORDS = re.compile(rf"{WORD}|[\s\S]")
_RUN = re.compile(r"[^\n]*\n|[^\n]+")


class Tokenizer:
    """A vocabulary with its special tokens. Token arrays are int32; nothing is added or truncated.

    `settings` is the content of `tokenizer_config.json`, which `save` writes back in full.
    `vocab_size` is the number of ids that a model needs, added tokens included. `eos_tokens` are
    all ids that end a generation: `eos_token` and those of `generation_config.json`. `generation`
    is the content of that file and the ids of `WRITTEN` tokens, for saving the model.
    """

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        settings: Mapping[str, Json],
        chat_template: str | None = None,
        eos_tokens: Iterable[int] = (),
        generation: Mapping[str, Json] = MappingProxyType({}),
    ) -> None:
        core.no_truncation()
        core.no_padding()
        self._core = core
        self._lock = threading.Lock()
        self.settings = settings
        self.chat_template = chat_template
        self.special_texts = tuple(
            t.content for t in core.get_added_tokens_decoder().values() if t.special
        )
        self.named = {
            key: text for key in NAMED if (text := _text_of(settings.get(key))) is not None
        }
        eos = [self.id(self.named["eos_token"])] if "eos_token" in self.named else []
        self.eos_tokens = frozenset([*eos, *eos_tokens])
        self.eos = eos[0] if eos else None
        self.pad = self.id(self.named["pad_token"]) if "pad_token" in self.named else self.eos
        self.vocab_size = 1 + max(core.get_vocab(with_added_tokens=True).values())
        self._decoder = type(core.decoder).__name__
        self._special_ids = frozenset(self.id(text) for text in self.special_texts)
        ids = {f"{key}_id": self.id(self.named[key]) for key in WRITTEN if key in self.named}
        self.generation: dict[str, Json] = {**ids, **generation}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle everything but the lock, for engines in other processes."""
        settings = dict(self.settings)
        args = self._core, settings, self.chat_template, self.eos_tokens, self.generation
        return Tokenizer, args

    @staticmethod
    def load(folder: Path) -> "Tokenizer":
        """Load the tokenizer of a model folder; only `tokenizer.json` is required."""
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise DataError(f"model folder {str(folder)!r} has no tokenizer.json")
        try:
            core = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises nothing narrower
            raise DataError(f"{str(file)!r} is not a tokenizer.json: {error}") from error
        settings = _read_if_there(folder / "tokenizer_config.json")
        template = _read_template(folder, settings)
        file = folder / "generation_config.json"
        eos = _read_eos(file)
        tokenizer = Tokenizer(core, settings, template, eos, _read_if_there(file))
        if eos and max(eos) >= tokenizer.vocab_size:
            raise DataError(
                f"{str(folder / 'generation_config.json')!r}: eos_token_id {max(eos)} is not one "
                f"of the {tokenizer.vocab_size} tokens of the vocabulary"
            )
        return tokenizer

    def with_template(self, chat_template: str) -> "Tokenizer":
        """Return the same tokenizer with another chat template."""
        tokenizer = copy(self)
        tokenizer.chat_template = chat_template
        return tokenizer

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json` for transformers."""
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", **self.settings}
        if self.chat_template is not None:
            settings["chat_template"] = self.chat_template
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "tokenizer.json").write_text(self._core.to_str(pretty=True), encoding="utf-8")
            text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
            (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
        except OSError as error:
            raise DataError(f"cannot write the tokenizer to {str(folder)!r}: {error}") from error

    @property
    def vocabulary(self) -> dict[str, int]:
        """The id of each token by its text, added tokens included."""
        return self._core.get_vocab(with_added_tokens=True)

    @property
    def adds_bos(self) -> bool:
        """Whether tools that add special tokens begin every text with bos_token."""
        bos = self.named.get("bos_token")
        return bos is not None and self._core.encode("a").ids[:1] == [self.id(bos)]

    def id(self, token: str) -> int:
        """Look up the id of a token by its text."""
        index = self._core.token_to_id(token)
        if index is None:
            raise DataError(f"the tokenizer has no token {token!r}")
        return int(index)

    def encode(self, text: str, *, special: bool = False) -> Tokens:
        """Encode text; special tokens written in it are plain text unless `special` is set.

        An unpaired surrogate, which is not a character, becomes a question mark.
        """
        text = text.encode("utf-8", "replace").decode()
        with self._lock:
            self._core.encode_special_tokens = not special
            encodings = self._core.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encodings[0].ids, dtype=np.int32)

    def decode(self, tokens: Tokens | Sequence[int], *, keep_special: bool = False) -> str:
        """Decode tokens; special tokens are left out unless `keep_special` is set."""
        ids = np.asarray(tokens, dtype=np.int32).tolist()
        return str(self._core.decode(ids, skip_special_tokens=not keep_special))

    def spans(
        self, tokens: Tokens | Sequence[int], *, keep_special: bool = False
    ) -> list[tuple[int, int]]:
        """Return each token's character span in the decoded text; spans have no gaps.

        A character whose bytes are spread over several tokens belongs to the token that completes
        it; the others have empty spans.
        """
        if self._decoder not in ("ByteLevel", "Fuse"):
            raise DataError(
                f"cannot align tokens with text: the decoder is {self._decoder}, "
                "expected ByteLevel or Fuse"
            )
        ids = np.asarray(tokens, dtype=np.int32).tolist()
        reader = codecs.getincrementaldecoder("utf-8")("replace")
        spans = []
        end = 0
        for index, token in enumerate(ids):
            is_skipped = token in self._special_ids and not keep_special
            raw = b"" if is_skipped else self._bytes(token)
            text = reader.decode(raw, final=index == len(ids) - 1)
            spans.append((end, end + len(text)))
            end += len(text)
        return spans

    def pieces(self, tokens: Tokens | Sequence[int], *, keep_special: bool = False) -> list[str]:
        """Split the decoded text into the part of each token."""
        text = self.decode(tokens, keep_special=keep_special)
        return [text[start:end] for start, end in self.spans(tokens, keep_special=keep_special)]

    def _bytes(self, token: int) -> bytes:
        text = self._core.id_to_token(token) or ""
        if self._decoder == "Fuse" or any(letter not in _BYTE_OF for letter in text):
            return text.encode()
        return bytes(_BYTE_OF[letter] for letter in text)


def _byte_letters() -> dict[str, int]:
    """Map byte-level BPE's letters to bytes: printable Latin-1 as is, the rest from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain} | {
        chr(256 + index): byte for index, byte in enumerate(moved)
    }
    assert set(letters) == set(ByteLevel.alphabet()), "tokenizers uses the same alphabet"
    return letters


_BYTE_OF = _byte_letters()


def _text_of(value: Json) -> str | None:
    """Read the text of a special token, which may be an object with `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _read_template(folder: Path, settings: Mapping[str, Json]) -> str | None:
    """Read the chat template from its own file or the settings; of several, the default one."""
    file = folder / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{str(file)!r} cannot be read: {error}") from error
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {
            str(row.get("name")): row.get("template") for row in template if isinstance(row, dict)
        }
        template = named.get("default")
    return template if isinstance(template, str) else None


def _read_eos(file: Path) -> tuple[int, ...]:
    value = _read_if_there(file).get("eos_token_id")
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    tokens = tuple(token for token in ids if isinstance(token, int) and token >= 0)
    if len(tokens) < len(ids):
        raise DataError(f"{str(file)!r}: eos_token_id is {value!r}, expected token ids")
    return tokens


def _read_if_there(file: Path) -> dict[str, Json]:
    return read_model_json(file) if file.is_file() else {}


def read_model_json(file: Path) -> dict[str, Json]:
    """Read a JSON file of a model folder."""
    try:
        row: Json = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{str(file)!r} cannot be read as JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{str(file)!r} must hold a JSON object")
    return row


def train_tokenizer(
    texts: Iterable[str],
    *,
    max_pieces: int = 1024,
    pieces: Pieces = "phrases",
    chat_template: str = PLAIN_TEMPLATE,
) -> Tokenizer:
    """Train a small tokenizer: numbers and frequent phrases are tokens, other text is characters.

    A model that reads "13" as one token learns arithmetic far faster than one that reads "1" and
    "3". With words instead of phrases, for texts with few repeated phrases, numbers are split into
    digits, and letters beyond ASCII have tokens. The order of the texts does not matter.
    """
    if max_pieces < 0:
        raise ConfigError(f"max_pieces is {max_pieces}, expected 0 or more")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_words(text) if pieces == "words" else split_pieces(text))
    singles = [_UNKNOWN, *string.printable]
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
    if pieces == "words":
        frequent = [piece for piece in ranked if piece not in singles][:max_pieces]
    else:
        frequent = [piece for piece in ranked if len(piece) > 1 and piece.isascii()][:max_pieces]
    vocabulary = {piece: index for index, piece in enumerate([*singles, *frequent])}
    model = WordPiece(
        vocabulary,
        unk_token=_UNKNOWN,
        max_input_chars_per_word=MAX_LEN,
        continuing_subword_prefix="",
    )
    core = tokenizers.Tokenizer(model)
    splits = [Split(Regex(_ISOLATED), "isolated"), Split("\n", "merged_with_previous")]
    if pieces == "words":
        splits = [Split(Regex(rf"{WORD}|[\s\S]"), "isolated")]
    cut = Split(Regex(rf"[\s\S]{{1,{MAX_LEN}}}"), "isolated")
    core.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*splits, cut])
    core.decoder = Fuse()
    core.add_special_tokens([PAD, EOS, _UNKNOWN])
    settings: dict[str, Json] = {
        "pad_token": PAD,
        "eos_token": EOS,
        "unk_token": _UNKNOWN,
        "clean_up_tokenization_spaces": False,
    }
    return Tokenizer(core, settings, chat_template)


def split_pieces(text: str) -> list[str]:
    """Split text into numbers, with their signs and leading spaces, and the runs between them.

    >>> split_pieces("8 - 5 = 3 left: -2 1/3")
    ['8', ' -', ' 5', ' =', ' 3', ' left:', ' -2', ' 1/3']
    """
    pieces = []
    for index, part in enumerate(_SPLIT.split(text)):
        runs = [part] if index % 2 else _RUN.findall(part)
        pieces += [
            run[start : start + MAX_LEN] for run in runs for start in range(0, len(run), MAX_LEN)
        ]
    return pieces


def split_words(text: str) -> list[str]:
    """Split text into words, with their leading spaces, and single other characters.

    >>> split_words("Ana Khan, 13")
    ['Ana', ' Khan', ',', ' ', '1', '3']
    """
    return [
        piece[start : start + MAX_LEN]
        for piece in _WORDS.findall(text)
        for start in range(0, len(piece), MAX_LEN)
    ]
