"""The small task tokenizer: whole numbers and frequent phrases as single tokens, any other ASCII
text by characters.

A model that reads "13" as one token learns arithmetic far faster than one that reads "1" and "3".
"""

import re
import string
from collections import Counter
from collections.abc import Iterable

import tokenizers
from tokenizers import Regex
from tokenizers.decoders import Fuse
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Sequence, Split

from whet.errors import ConfigError
from whet.text.tokenizer import Specials, Tokenizer
from whet.types import Json

PAD = "<pad>"
EOS = "<eos>"
UNKNOWN = "<unk>"
PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'user' %}{{ message.content + '\\n' }}"
    "{% elif message.role == 'assistant' %}{{ message.content + eos_token }}{% endif %}"
    "{% endfor %}"
)
"""A user's text and a newline, then the answer and <eos>; system messages are not written."""

NUMBER = r" ?-?[0-9]+(?:/[0-9]+)?"
LONGEST = 64
"""Characters in a piece at most: greedy matching of an unknown run costs the cube of its length."""
# Apart from numbers stand characters without a token, so that only they are lost, and the "<" of a
# special token's name in plain text, so that the name is never matched as a whole.
_APART = rf"{NUMBER}|[^\t-\r -~]|<(?=(?:pad|eos|unk)>)"
_SPLIT = re.compile(f"({_APART})")
_RUN = re.compile(r"[^\n]*\n|[^\n]+")


def train_pieces(
    texts: Iterable[str], *, max_pieces: int = 1024, chat_template: str = PLAIN_TEMPLATE
) -> Tokenizer:
    """Make a tokenizer of the most frequent pieces of the texts; the same texts in any order give
    the same one."""
    if max_pieces < 0:
        raise ConfigError(f"max_pieces is {max_pieces}, expected 0 or more")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split(text))
    singles = [UNKNOWN, *string.printable]
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
    frequent = [piece for piece in ranked if len(piece) > 1 and piece.isascii()][:max_pieces]
    vocabulary = {piece: index for index, piece in enumerate([*singles, *frequent])}
    model = WordPiece(
        vocabulary,
        unk_token=UNKNOWN,
        max_input_chars_per_word=LONGEST,
        continuing_subword_prefix="",
    )
    core = tokenizers.Tokenizer(model)
    core.pre_tokenizer = Sequence(
        [
            Split(Regex(_APART), "isolated"),
            Split("\n", "merged_with_previous"),
            Split(Regex(rf"[\s\S]{{1,{LONGEST}}}"), "isolated"),
        ]
    )
    core.decoder = Fuse()
    core.add_special_tokens([PAD, EOS, UNKNOWN])
    settings: dict[str, Json] = {
        "pad_token": PAD,
        "eos_token": EOS,
        "unk_token": UNKNOWN,
        "clean_up_tokenization_spaces": False,
    }
    return Tokenizer(core, Specials(settings=settings, chat_template=chat_template))


def split(text: str) -> list[str]:
    """Cut text into numbers, each with its sign and the space before it, and the runs between them.

    >>> split("8 - 5 = 3 left: -2 1/3")
    ['8', ' -', ' 5', ' =', ' 3', ' left:', ' -2', ' 1/3']
    """
    pieces = []
    for index, part in enumerate(_SPLIT.split(text)):
        runs = [part] if index % 2 else _RUN.findall(part)
        pieces += [
            run[start : start + LONGEST] for run in runs for start in range(0, len(run), LONGEST)
        ]
    return pieces
