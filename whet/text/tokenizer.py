"""Text to tokens and back, from the `tokenizer.json` of a model folder, with what its neighbours
say of stops and chat.

Text from outside cannot forge special tokens: "<|im_end|>" in a problem is encoded as the ten
characters it is, unless the caller vouches for the text with `special=True`, as chat templates do
for their own words.
"""

import codecs
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from whet.errors import DataError
from whet.types import Json, Tokens

NAMED = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Specials:
    """What the files beside `tokenizer.json` say: the settings as they are, the chat template, the
    stop tokens."""

    settings: Mapping[str, Json]
    """The content of `tokenizer_config.json`, kept so that `save` writes all of it back."""
    chat_template: str | None = None
    eos_tokens: tuple[int, ...] = ()
    """Ids that end a generation besides `eos_token`, from `generation_config.json`."""


class Tokenizer:
    """A vocabulary with its special tokens. Token arrays are int32; nothing is ever added or cut.

    `vocab_size` is the number of ids a model needs, added tokens included; `eos_tokens` are all
    that end a generation.
    """

    def __init__(self, core: tokenizers.Tokenizer, specials: Specials) -> None:
        core.no_truncation()
        core.no_padding()
        self._core = core
        self._lock = threading.Lock()
        self.settings = specials.settings
        self.chat_template = specials.chat_template
        self.special_texts = tuple(
            t.content for t in core.get_added_tokens_decoder().values() if t.special
        )
        self.named = {
            key: text for key in NAMED if (text := _content(specials.settings.get(key))) is not None
        }
        eos = [self.id(self.named["eos_token"])] if "eos_token" in self.named else []
        self.eos_tokens = frozenset([*eos, *specials.eos_tokens])
        self.eos = eos[0] if eos else None
        self.pad = self.id(self.named["pad_token"]) if "pad_token" in self.named else self.eos
        self.vocab_size = 1 + max(core.get_vocab(with_added_tokens=True).values())
        self._decoder = type(core.decoder).__name__
        self._special_ids = frozenset(self.id(text) for text in self.special_texts)

    @staticmethod
    def load(folder: Path) -> "Tokenizer":
        """Read a model folder; only `tokenizer.json` must be there."""
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise DataError(f"model folder {str(folder)!r} has no tokenizer.json")
        try:
            core = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises nothing narrower
            raise DataError(f"{str(file)!r} is not a tokenizer.json: {error}") from error
        settings = _read_json(folder / "tokenizer_config.json")
        return Tokenizer(
            core,
            Specials(
                settings=settings,
                chat_template=_template(folder, settings),
                eos_tokens=_ids(folder / "generation_config.json"),
            ),
        )

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`, the chat template inside, as
        transformers reads them."""
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
        """Every token's text with its id, added ones included."""
        return self._core.get_vocab(with_added_tokens=True)

    def id(self, token: str) -> int:
        """Look up one token by its text in the vocabulary."""
        found = self._core.token_to_id(token)
        if found is None:
            raise DataError(f"the tokenizer has no token {token!r}")
        return int(found)

    def encode(self, text: str, *, special: bool = False) -> Tokens:
        """Turn text into tokens; only with `special` do special tokens written in it count as
        such."""
        return self.encode_batch([text], special=special)[0]

    def encode_batch(self, texts: Iterable[str], *, special: bool = False) -> list[Tokens]:
        """Encode many texts at once, on all cores."""
        with self._lock:
            self._core.encode_special_tokens = not special
            found = self._core.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, dtype=np.int32) for one in found]

    def decode(self, tokens: Tokens | Sequence[int], *, keep_special: bool = False) -> str:
        """Turn tokens into text; special tokens are left out unless kept."""
        return str(
            self._core.decode(
                np.asarray(tokens, dtype=np.int32).tolist(), skip_special_tokens=not keep_special
            )
        )

    def spans(
        self, tokens: Tokens | Sequence[int], *, keep_special: bool = False
    ) -> list[tuple[int, int]]:
        """Give each token its characters of the decoded text, end exclusive; the spans join without
        gaps.

        A character whose bytes lie in several tokens belongs to the one that completes it; the
        others are empty.
        """
        if self._decoder not in ("ByteLevel", "Fuse"):
            raise DataError(
                f"cannot align tokens with text: the decoder is {self._decoder}, expected ByteLevel or Fuse"
            )
        ids = np.asarray(tokens, dtype=np.int32).tolist()
        reader = codecs.getincrementaldecoder("utf-8")("replace")
        spans = []
        end = 0
        for index, token in enumerate(ids):
            skipped = token in self._special_ids and not keep_special
            text = reader.decode(
                b"" if skipped else self._bytes(token), final=index == len(ids) - 1
            )
            spans.append((end, end + len(text)))
            end += len(text)
        return spans

    def pieces(self, tokens: Tokens | Sequence[int], *, keep_special: bool = False) -> list[str]:
        """Cut the decoded text into what each token contributes to it, by `spans`."""
        text = self.decode(tokens, keep_special=keep_special)
        return [text[start:end] for start, end in self.spans(tokens, keep_special=keep_special)]

    def _bytes(self, token: int) -> bytes:
        text = self._core.id_to_token(token) or ""
        if self._decoder == "Fuse" or any(letter not in _BYTE_OF for letter in text):
            return text.encode()
        return bytes(_BYTE_OF[letter] for letter in text)


def _byte_letters() -> dict[str, int]:
    """Map byte-level BPE's letters back to bytes: printable Latin-1 stands for itself, the rest is
    moved above 255."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain} | {
        chr(256 + index): byte for index, byte in enumerate(moved)
    }
    assert set(letters) == set(ByteLevel.alphabet()), "tokenizers uses the same alphabet"
    return letters


_BYTE_OF = _byte_letters()


def _content(value: Json) -> str | None:
    """Read a special token, written as its text or as an object with a content."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _template(folder: Path, settings: Mapping[str, Json]) -> str | None:
    """Read the chat template from its own file, else from the settings; of several named ones, the
    default."""
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


def _ids(file: Path) -> tuple[int, ...]:
    found = _read_json(file).get("eos_token_id")
    ids = found if isinstance(found, list) else [] if found is None else [found]
    if not all(isinstance(token, int) and token >= 0 for token in ids):
        raise DataError(f"{str(file)!r}: eos_token_id is {found!r}, expected token ids")
    return tuple(token for token in ids if isinstance(token, int))


def _read_json(file: Path) -> dict[str, Json]:
    if not file.is_file():
        return {}
    try:
        row: Json = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{str(file)!r} cannot be read as JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{str(file)!r} must hold a JSON object")
    return row
