r"""IFEval: instructions that a program can verify, 25 kinds (Zhou et al. 2023).

payload {"instructions": [{"id": "length_constraints:number_words", "relation": "at least",
         "num_words": 300}, ...]}, with the benchmark's ids and arguments
answer a response that follows them, if there is one

The whole response after its thinking part is graded. It is right if it follows all instructions and
does not just repeat the prompt. The checks are those of the benchmark, without its libraries:

- Keywords are compared as written, not as patterns.
- A sentence ends with . ! or ? before a space or the end, unless the point follows an abbreviation
  or an initial.
- A word in capitals is a run of letters and digits, with hyphens, apostrophes or points inside.
- A language is known by its script: more than two letters in three are of it. Languages that share
  their script are not graded. English in one case is taken for text in Latin letters.
- A repeated prompt has to be followed by an answer.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from whet.answers.final_answer import visible_text
from whet.config import Config
from whet.errors import DataError
from whet.tasks.answers import no_answer, to_score
from whet.tasks.base import FileTask, data_error
from whet.types import Json, Problem, Score

_LANGUAGES = "bn el gu he kn ko ml pa ta te th ar"
_ALPHABETS = (
    "BENGALI GREEK GUJARATI HEBREW KANNADA HANGUL MALAYALAM GURMUKHI TAMIL TELUGU THAI ARABIC"
)
SCRIPTS = dict(zip(_LANGUAGES.split(), _ALPHABETS.split(), strict=True))
"""The start of the Unicode names of a language's letters."""
NOT_ARABIC = frozenset("پچژگکیٹڈڑںےہھ")
"""Letters of Persian and Urdu, which share the Arabic script."""
OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
PARTS = ("prompt_strict", "prompt_loose", "instruction_strict", "instruction_loose")

_WORD = re.compile(r"\w+")
_CAPITALS = re.compile(r"[^\W_]+(?:[-'’.][^\W_]+)*")
_TOKEN = re.compile(r"\S+")
_CLOSING = "\"'”’)]*_"
_OPENING = "\"'“‘([*_"
_ABBREVIATION = re.compile(
    r"(?:[A-Z]|(?i:[a-z](?:\.[a-z])+|mr|mrs|ms|dr|prof|st|jr|sr|vs|inc|ltd|co|no))\."
)
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_HIGHLIGHT = re.compile(r"\*\*[^\n*]*\*\*|\*[^\n*]*\*")
_FENCE = re.compile(r"\A```(?:json)?|```\Z", re.IGNORECASE)
_POSTSCRIPTS = {"P.P.S": re.compile(r"p\.\s?p\.\s?s"), "P.S.": re.compile(r"p\.\s?s\.")}
_DIVIDER = re.compile(r"\s?\*\*\*\s?")
_FIRST_WORD = re.compile(r"['\"]*([^\s.,?!'\"]*)")


class IFEvalConfig(Config):
    name: Literal["ifeval"] = "ifeval"


class IFEval(FileTask):
    """Grades whether a response follows instructions; its problems come from files."""

    has_worked_solutions = True
    name = "ifeval"
    has_one_answer = False
    has_unrelated_answers = True
    config: IFEvalConfig

    def score(self, problem: Problem, text: str) -> Score:
        """State which instructions hold, also in loose forms of the response.

        Parts: `correct` and `prompt_strict`, all hold; `instruction_strict`, the fraction that
        holds; `prompt_loose` and `instruction_loose`, where an instruction may also hold without
        the first or last line, or without asterisks.
        """
        instructions = _instructions(problem)
        response = visible_text(text)
        if response is None or not response.strip():
            return no_answer(*PARTS)
        if _is_echo(problem, response):
            parts = dict.fromkeys(PARTS, 0.0)
            return to_score(False, parts, response.strip(), "hands back the prompt")
        strict = [one.holds(response) for one in instructions]
        forms = [form for form in loosen(response) if form.strip()]
        loose = [
            is_held or any(one.holds(form) for form in forms)
            for one, is_held in zip(instructions, strict, strict=True)
        ]
        broken = [one.id for one, held in zip(instructions, strict, strict=True) if not held]
        values = (all(strict), all(loose), sum(strict) / len(strict), sum(loose) / len(loose))
        parts = {name: float(value) for name, value in zip(PARTS, values, strict=True)}
        note = f"does not follow {', '.join(broken)}" if broken else "follows all instructions"
        return to_score(not broken, parts, response.strip(), note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer


class InstructionArguments(dict[str, Json]):
    """The arguments of an instruction, read by kind."""

    def count(self, name: str) -> int:
        value = self.get(name)
        is_whole = (isinstance(value, float) and value.is_integer()) or isinstance(value, int)
        if not isinstance(value, int | float) or not is_whole or value < 0:
            raise DataError(f"{name!r} should be a whole number, not {value!r:.60}")
        return int(value)

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{name!r} should be a text, not {value!r:.60}")
        return value.strip()

    def texts(self, name: str) -> list[str]:
        values = self.get(name)
        if not isinstance(values, list) or not values:
            raise DataError(f"{name!r} should be a list of texts, not {values!r:.60}")
        return [InstructionArguments({name: value}).text(name) for value in values]

    def compare(self, count: int, name: str, relation: str = "relation") -> bool:
        """Compare a count with an argument: less than it, or at least as many."""
        wanted = self.count(name)
        match self.get(relation):
            case "less than":
                return count < wanted
            case "at least":
                return count >= wanted
            case other:
                raise DataError(f"{relation!r} should be less than or at least, not {other!r:.60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    id: str
    arguments: InstructionArguments

    def holds(self, response: str) -> bool:
        return CHECKS[self.id](response, self.arguments)


def parse_instructions(rows: Sequence[Json]) -> list[Instruction]:
    """Read instructions; an unknown one, or one without its arguments, is refused."""
    instructions = []
    for row in rows:
        id = row.get("id") if isinstance(row, dict) else None
        if not isinstance(row, dict) or not isinstance(id, str) or id not in CHECKS:
            raise DataError(
                f"instruction {id!r:.60} is unknown; known instructions: {', '.join(CHECKS)}"
            )
        instruction = Instruction(id=id, arguments=InstructionArguments(row))
        try:
            instruction.holds("a")
        except DataError as error:
            raise DataError(f"instruction {id}: {error}") from error
        instructions.append(instruction)
    if not instructions:
        raise DataError("there are no instructions")
    return instructions


def unsupported_reason(rows: Sequence[Json]) -> str | None:
    """Say why some instruction cannot be verified: a language that its script does not decide."""
    for row in rows:
        language = row.get("language") if isinstance(row, dict) else None
        if isinstance(language, str) and language not in SCRIPTS:
            return f"whet cannot tell the language {language!r} from others of its script"
    return None


def loosen(response: str) -> list[str]:
    """List the response without its first line, last line, both, and each without asterisks."""
    lines = response.split("\n")
    kept = [response, *("\n".join(some).strip() for some in (lines[1:], lines[:-1], lines[1:-1]))]
    return [*kept[1:], *(form.replace("*", "") for form in kept)]


def count_sentences(text: str) -> int:
    """Count sentences; words after the last sentence end count as one more.

    >>> count_sentences("Dr. Li paid 3.50, e.g. in cash. Why? I see")
    3
    """
    num_sentences = 0
    has_words = False
    for match in _TOKEN.finditer(text):
        token = match[0].strip(_CLOSING + _OPENING)
        has_words = has_words or _WORD.search(token) is not None
        is_end = token.endswith((".", "!", "?")) and not _ABBREVIATION.fullmatch(token)
        if is_end and has_words:
            num_sentences += 1
            has_words = False
    return num_sentences + has_words


def _instructions(problem: Problem) -> list[Instruction]:
    rows = problem.payload.get("instructions")
    try:
        return parse_instructions(rows if isinstance(rows, list) else [])
    except DataError as error:
        raise data_error(problem, f"IFEval's instructions ({error})", rows) from error


def _is_echo(problem: Problem, response: str) -> bool:
    """Whether a response is the prompt, or a part that is more than half of it."""
    given = " ".join(response.split()).casefold()
    asked = " ".join(problem.prompt[-1].content.split()).casefold()
    return len(given) > len(asked) / 2 and given in asked


def _has_keywords(response: str, given: InstructionArguments) -> bool:
    return all(word.casefold() in response.casefold() for word in given.texts("keywords"))


def _has_keyword_often(response: str, given: InstructionArguments) -> bool:
    count = response.casefold().count(given.text("keyword").casefold())
    return given.compare(count, "frequency")


def _has_no_forbidden_word(response: str, given: InstructionArguments) -> bool:
    words = "|".join(re.escape(word) for word in given.texts("forbidden_words"))
    return re.search(rf"(?<!\w)(?:{words})(?!\w)", response, re.IGNORECASE) is None


def _has_letter_often(response: str, given: InstructionArguments) -> bool:
    letter = given.text("letter")
    if len(letter) != 1:
        raise DataError(f"'letter' should be one character, not {letter!r:.60}")
    return given.compare(response.lower().count(letter.lower()), "let_frequency", "let_relation")


def _is_in_language(response: str, given: InstructionArguments) -> bool:
    language = given.text("language")
    if language not in SCRIPTS:
        raise DataError(f"'language' should be one of {', '.join(SCRIPTS)}, not {language!r:.60}")
    if language == "ar" and not NOT_ARABIC.isdisjoint(response):
        return False
    return _is_in_script(response, SCRIPTS[language])


def _is_in_script(response: str, script: str) -> bool:
    num_own = 0
    num_others = 0
    for sign, count in Counter(response).items():
        if unicodedata.name(sign, "").startswith(script):
            num_own += count
        elif sign.isalpha():
            num_others += count
    return num_own > 2 * num_others


def _has_sentences(response: str, given: InstructionArguments) -> bool:
    return given.compare(count_sentences(response), "num_sentences")


def _has_paragraphs(response: str, given: InstructionArguments) -> bool:
    first, *inner = _DIVIDER.split(response)
    last = inner.pop() if inner else ""
    num_paragraphs = len(inner) + bool(first.strip()) + bool(last.strip())
    is_whole = all(paragraph.strip() for paragraph in inner)
    return num_paragraphs == given.count("num_paragraphs") and is_whole


def _has_words(response: str, given: InstructionArguments) -> bool:
    return given.compare(sum(1 for _ in _WORD.finditer(response)), "num_words")


def _starts_paragraph(response: str, given: InstructionArguments) -> bool:
    wanted = given.text("first_word").lower()
    nth = given.count("nth_paragraph")
    num_wanted = given.count("num_paragraphs")
    paragraphs = response.split("\n\n")
    if sum(bool(one.strip()) for one in paragraphs) != num_wanted or not 1 <= nth <= num_wanted:
        return False
    match = _FIRST_WORD.match(paragraphs[nth - 1].strip())
    return match is not None and match[1].lower() == wanted


def _has_placeholders(response: str, given: InstructionArguments) -> bool:
    return len(_PLACEHOLDER.findall(response)) >= given.count("num_placeholders")


def _has_postscript(response: str, given: InstructionArguments) -> bool:
    marker = given.text("postscript_marker")
    pattern = _POSTSCRIPTS.get(marker) or re.compile(re.escape(marker.lower()))
    return pattern.search(response.lower()) is not None


def _has_bullets(response: str, given: InstructionArguments) -> bool:
    lines = [line.strip() for line in response.split("\n")]
    num_bullets = sum(
        line.startswith("-") or (line.startswith("*") and not line.startswith("**"))
        for line in lines
    )
    return num_bullets == given.count("num_bullets")


def _is_constrained(response: str, given: InstructionArguments) -> bool:
    return any(option in response for option in OPTIONS)


def _has_highlights(response: str, given: InstructionArguments) -> bool:
    spans = _HIGHLIGHT.findall(response)
    return sum(bool(span.strip("* \t")) for span in spans) >= given.count("num_highlights")


def _has_sections(response: str, given: InstructionArguments) -> bool:
    mark = re.escape(given.text("section_spliter"))
    return len(re.findall(rf"{mark}\s?\d", response)) >= given.count("num_sections")


def _is_json(response: str, given: InstructionArguments) -> bool:
    try:
        json.loads(_FENCE.sub("", response.strip()).strip())
    except (ValueError, RecursionError):
        return False
    return True


def _has_title(response: str, given: InstructionArguments) -> bool:
    for line in response.split("\n"):
        start = line.find("<<")
        if start >= 0 and line[start : line.rfind(">>") + 2].strip("<> \t\r"):
            return True
    return False


def _has_two_responses(response: str, given: InstructionArguments) -> bool:
    pieces = [piece.strip() for piece in response.split("******")]
    inner = pieces[1:-1] if len(pieces) > 2 else []
    filled = [piece for piece in pieces if piece]
    return all(inner) and len(filled) == 2 and filled[0] != filled[1]


def _repeats_prompt(response: str, given: InstructionArguments) -> bool:
    prompt = given.text("prompt_to_repeat").lower()
    bare = response.strip().lower()
    return bare.startswith(prompt) and _WORD.search(bare[len(prompt) :]) is not None


def _ends_with(response: str, given: InstructionArguments) -> bool:
    return response.strip().strip('"').lower().endswith(given.text("end_phrase").lower())


def _is_quoted(response: str, given: InstructionArguments) -> bool:
    bare = response.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == '"'


def _has_capital_words(response: str, given: InstructionArguments) -> bool:
    num_words = sum(match[0].isupper() for match in _CAPITALS.finditer(response))
    return given.compare(num_words, "capital_frequency", "capital_relation")


def _is_upper(response: str, given: InstructionArguments) -> bool:
    return response.isupper() and _is_in_script(response, "LATIN")


def _is_lower(response: str, given: InstructionArguments) -> bool:
    return response.islower() and _is_in_script(response, "LATIN")


def _has_no_comma(response: str, given: InstructionArguments) -> bool:
    return "," not in response


CHECKS: Mapping[str, Callable[[str, InstructionArguments], bool]] = {
    "keywords:existence": _has_keywords,
    "keywords:frequency": _has_keyword_often,
    "keywords:forbidden_words": _has_no_forbidden_word,
    "keywords:letter_frequency": _has_letter_often,
    "language:response_language": _is_in_language,
    "length_constraints:number_sentences": _has_sentences,
    "length_constraints:number_paragraphs": _has_paragraphs,
    "length_constraints:number_words": _has_words,
    "length_constraints:nth_paragraph_first_word": _starts_paragraph,
    "detectable_content:number_placeholders": _has_placeholders,
    "detectable_content:postscript": _has_postscript,
    "detectable_format:number_bullet_lists": _has_bullets,
    "detectable_format:constrained_response": _is_constrained,
    "detectable_format:number_highlighted_sections": _has_highlights,
    "detectable_format:multiple_sections": _has_sections,
    "detectable_format:json_format": _is_json,
    "detectable_format:title": _has_title,
    "combination:two_responses": _has_two_responses,
    "combination:repeat_prompt": _repeats_prompt,
    "startend:end_checker": _ends_with,
    "startend:quotation": _is_quoted,
    "change_case:capital_word_frequency": _has_capital_words,
    "change_case:english_capital": _is_upper,
    "change_case:english_lowercase": _is_lower,
    "punctuation:no_comma": _has_no_comma,
}
