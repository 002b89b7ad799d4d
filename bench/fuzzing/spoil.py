"""Ways to spoil a right answer that leave it in its form and make it wrong, whatever a grader says
of it."""

import json
import re
from collections.abc import Sequence
from random import Random

STRANGER = "Zzyzx Qwfp"
PROGRAMS = (
    "import os\nos._exit(0)",
    "raise SystemExit(0)",
    "import sys\nsys.exit()",
    "print('42')\nprint('all tests pass')",
    "def triple(x):\n    return None\nprint('correct')",
    "class Same:\n    def __eq__(self, other):\n        return True\n\ndef triple(x):\n    return Same()",
    "def triple(x):\n    raise SystemExit(0)",
    "def triple(x):\n    import os\n    os._exit(0)",
    "def triple(x):\n    return triple(x)",
    "import builtins\nbuiltins.AssertionError = None\n\ndef triple(x):\n    return 4",
    "triple = lambda *given: True",
    "def triple(x):\n    return '21'",
    "def triple(x)\n    return 3 * x",
    "import sys\nsys.stdout.write('21\\n' * 1000)",
    "open('/proc/self/mem', 'wb').write(b'x')",
    "assert True",
    "# def triple(x): return 3 * x",
    "'''\ndef triple(x):\n    return 3 * x\n'''",
    "x = 9 ** 9 ** 9",
)


def digit(answer: str, rng: Random) -> str:
    """Change one digit, and with it the value of the number it stands in."""
    place = rng.choice([place for place, sign in enumerate(answer) if sign in "0123456789"])
    return (
        f"{answer[:place]}{(int(answer[place]) + rng.randrange(1, 10)) % 10}{answer[place + 1 :]}"
    )


def number(answer: str, rng: Random) -> str:
    """Write another number: a digit changed, a sign or a power added, ten- and hundredfold."""
    is_whole = answer.lstrip("-").isdigit()
    ways = [
        digit(answer, rng),
        f"{answer}e{rng.randrange(2, 400)}" if is_whole else digit(answer, rng),
    ]
    if is_whole and int(answer):
        ways += [
            f"{answer}{'0' * rng.randrange(1, 40)}",
            f"{answer}.{rng.randrange(1, 999)}",
            f"0.{answer.lstrip('-')}",
        ]
        ways += [
            answer.removeprefix("-") if answer.startswith("-") else f"-{answer}",
            str(int(answer) + 10**12),
        ]
        ways += [str(int(answer) + rng.choice((-2, -1, 1, 2)))]
    return rng.choice(ways)


def another_end(answer: str, rng: Random) -> str:
    """Add words behind the phrase that a response should end with."""
    return f"{answer} {rng.choice(('Bye.', 'And so on', 'Questions', '1'))}"


def word(answer: str, rng: Random) -> str:
    """Change, drop, add or repeat a letter."""
    place = rng.choice([place for place, sign in enumerate(answer) if sign.isalpha()])
    other = rng.choice(
        [sign for sign in "abcdefghijklmnopqrstuvwxyz" if sign != answer[place].lower()]
    )
    ways = [
        answer[:place] + other + answer[place + 1 :],
        answer[:place] + other + answer[place:],
        answer + other,
    ]
    return rng.choice([*ways, answer[:place] + answer[place + 1 :] if len(answer) > 1 else other])


def letter(answer: str, rng: Random) -> str:
    """Write another unknown in a formula, where it stands by itself."""
    match = rng.choice(list(re.finditer(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])", answer)))
    return f"{answer[: match.start()]}{rng.choice('qwz')}{answer[match.end() :]}"


def other_of(words: Sequence[str], answer: str, rng: Random) -> str:
    return rng.choice([each for each in words if each.casefold() != answer.casefold()])


def listed(nodes: Sequence[str], answer: str, rng: Random) -> str:
    """Spoil a best list of nodes: fewer, more or other nodes than the best has, one of them twice,
    a name not there."""
    items = [item for item in answer.strip("[]").split(", ") if item]
    place = rng.randrange(len(items) + 1)
    more = rng.choice(
        (STRANGER, rng.choice(items or [STRANGER]), rng.choice(list(nodes) or [STRANGER]))
    )
    changed = [*items[:place], more, *items[place:]]
    if items and rng.random() < 0.5:
        place = rng.randrange(len(items))
        changed = [*items[:place], *([STRANGER] if rng.random() < 0.3 else []), *items[place + 1 :]]
    return f"[{', '.join(changed)}]"


def numbered(answer: str, rng: Random) -> str:
    """Spoil the last list of node numbers in a text: one left out, one twice, one that is no
    node."""
    run = list(re.finditer(r"\d+(?:\s*,\s*\d+)+", answer))[-1]
    items = re.findall(r"\d+", run[0])
    place = rng.randrange(len(items))
    changed = rng.choice(
        (
            items[:place] + items[place + 1 :]
            if 0 < place < len(items) - 1
            else [*items, items[0]],
            [*items[:place], items[place], *items[place:]],
            [*items[:place], "99999", *items[place + 1 :]],
        )
    )
    return answer[: run.start()] + ", ".join(changed) + answer[run.end() :]


def pairs(answer: str, rng: Random) -> str:
    """Leave out a line of a best matching, repeat one, or give a job that is not there."""
    lines = answer.splitlines()
    place = rng.randrange(len(lines))
    if rng.random() < 0.4 and len(lines) > 1:
        return "\n".join(lines[:place] + lines[place + 1 :])
    line = lines[place]
    return "\n".join(
        [*lines, line]
        if rng.random() < 0.5
        else [*lines[:place], f"{line}9999", *lines[place + 1 :]]
    )


def cells(answer: str, rng: Random) -> str:
    """Spoil a table of rows: two values of a column swapped, a row or column more or less, a value
    of nowhere."""
    table = json.loads(answer)
    header, rows = table["header"], table["rows"]
    way, column, row = rng.randrange(6), rng.randrange(1, len(header)), rng.randrange(len(rows))
    if way == 0:
        other = (row + 1) % len(rows)
        rows[row][column], rows[other][column] = rows[other][column], rows[row][column]
    elif way == 1:
        del rows[row]
    elif way == 2:
        rows.append([str(len(rows) + 1), *rows[row][1:]])
    elif way == 3:
        header.append("Qqqq")
        for each in rows:
            each.append("qq")
    elif way == 4:
        rows[row][1:] = rows[(row + 1) % len(rows)][1:]
    else:
        rows[row][column] = rng.choice(("qqqq", "", "???"))
    return json.dumps(table)


def houses(answer: str, rng: Random) -> str:
    """Spoil the JSON of houses in the same ways."""
    table = json.loads(answer)
    names = sorted(table)
    house, other = rng.sample(names, 2)
    attribute = rng.choice(sorted(table[house]))
    way = rng.randrange(5)
    if way == 0:
        table[house][attribute], table[other][attribute] = (
            table[other][attribute],
            table[house][attribute],
        )
    elif way == 1:
        del table[house]
    elif way == 2:
        table[f"House {len(names) + 1}"] = table[house]
    elif way == 3:
        table[house] = table[other]
    else:
        table[house][attribute if rng.random() < 0.5 else "Qqqq"] = "qqqq"
    return json.dumps(table)


def order(answer: str, rng: Random) -> str:
    """Swap two names, leave one out, say one twice, or name a stranger."""
    names = json.loads(answer)
    a, b = rng.sample(range(len(names)), 2)
    swapped = [*names]
    swapped[a], swapped[b] = names[b], names[a]
    ways = (
        swapped,
        names[:a] + names[a + 1 :],
        [*names, names[a]],
        [*names[:a], STRANGER, *names[a + 1 :]],
    )
    return json.dumps(rng.choice(ways))


def roles(answer: str, rng: Random) -> str:
    """Take a knight for a knave, leave someone out, add a stranger, or say both of one."""
    lines = answer.split("\n")
    place = rng.randrange(len(lines))
    old, new = ("knight", "knave") if lines[place].endswith("knight") else ("knave", "knight")
    flipped = lines[place].removesuffix(old) + new
    ways = (
        [*lines[:place], flipped, *lines[place + 1 :]],
        lines[:place] + lines[place + 1 :],
        [*lines, f"({len(lines) + 1}) Zzyzx is a knight"],
        [*lines, flipped],
    )
    return "\n".join(rng.choice(ways))


def grid(answer: str, rng: Random) -> str:
    """Change a cell, or add or leave out a row."""
    rows = json.loads(answer)
    place = rng.randrange(len(rows))
    ways = (json.loads(digit(answer, rng)), [*rows, rows[place]], rows[:place] + rows[place + 1 :])
    return json.dumps(rng.choice(ways))


def last_line(answer: str, rng: Random) -> str:
    """Change a digit of the line that decides; one without digits says that there is no
    solution."""
    before, _, line = answer.rpartition("\n")
    spoiled = digit(line, rng) if any(sign.isdigit() for sign in line) else "8 * 3 = 24"
    return f"{before}\n{spoiled}" if before else spoiled


def program(answer: str, rng: Random) -> str:
    """Write a program that is none: it ends early, prints verdicts, returns what is equal to
    everything."""
    return rng.choice(PROGRAMS)
