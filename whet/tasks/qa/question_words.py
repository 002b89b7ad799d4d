"""Reduce the words of a question and of a sentence that answers it to common stems: `how many did
Ann win`, `Ann wins` and `Ann won` have the same ones."""

import re

from whet.answers.clauses import stem

_WORD = re.compile(r"[^\W_]+")
_PAST = {
    **{"began": "begin", "won": "win", "wrote": "write", "found": "find", "took": "take"},
    **{"made": "make", "gave": "give", "came": "come", "went": "go", "became": "become"},
    **{"grew": "grow", "fell": "fall", "rose": "rise", "sold": "sell", "bought": "buy"},
    **{"paid": "pay", "spent": "spend", "lost": "lose", "left": "leave", "ran": "run"},
    **{"ate": "eat", "drank": "drink", "built": "build", "held": "hold", "led": "lead"},
    **{"met": "meet", "sent": "send", "caught": "catch", "taught": "teach", "drove": "drive"},
    **{"rode": "ride", "sang": "sing", "swam": "swim", "flew": "fly", "drew": "draw"},
    **{"brought": "bring", "kept": "keep", "said": "say", "told": "tell", "got": "get"},
}


def list_stems(text: str) -> list[str]:
    """List the stems of the words and numbers of a text.

    >>> list_stems("Ann won Bob's games.") == list_stems("ann wins bob game")
    True
    """
    words = (word.casefold() for word in _WORD.findall(text))
    return [stem(_PAST.get(word, word)) for word in words if word != "s"]
