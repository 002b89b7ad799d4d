"""The report's answers: what the model wrote before and after, line by line with the grader's word
on each."""

from collections.abc import Sequence

from whet.evals.markup import Markup, join, tag
from whet.evals.report_data import Answer, Line, ReportData, Sample
from whet.types import Verdict

MAX_LINES = 300
MAX_CHARACTERS = 2_000

VERDICTS = {
    Verdict.CORRECT: ("good", "✓", "right"),
    Verdict.WRONG: ("bad", "✗", "wrong"),
    Verdict.NO_ANSWER: ("bad", "✗", "no answer"),
    Verdict.UNSCORED: ("unsure", "?", "not graded"),
}
MARKS = {True: ("good", "✓", "right"), False: ("bad", "✗", "wrong"), None: ("plain", "", "")}


def samples_section(data: ReportData) -> Markup | None:
    """Show each sample's answers side by side, before on the left, under the names of first and
    last evaluation."""
    samples = [sample for sample in data.samples if sample.before or sample.after]
    if not samples:
        return None
    names = list(dict.fromkeys(item.name for item in data.evals))
    titles = (names[0], names[-1]) if len(names) > 1 else ("before", "after")
    note = f"{len(samples)} problems drawn by chance over all difficulties, with the first answer to each. "
    note += "Marks and remarks are the grader's."
    return tag(
        "section",
        tag(
            "h2",
            "Answers" if any(s.before is None for s in samples) else "Answers before and after",
        ),
        tag("p", note, class_="note"),
        *(_sample(sample, titles) for sample in samples),
    )


def _sample(sample: Sample, titles: tuple[str, str]) -> Markup:
    label = tag("span", sample.label, class_="row-note") if sample.label else ""
    head = tag("h3", tag("span", _cut(sample.problem)), " ", label)
    sides = zip((sample.before, sample.after), titles, ("before", "after"), strict=True)
    is_pair = sample.before is not None and sample.after is not None
    columns = [
        _answer(answer, title if is_pair else "", tone)
        for answer, title, tone in sides
        if answer is not None
    ]
    return tag(
        "article",
        head,
        tag("div", *columns, class_="two tight" if is_pair else ""),
        class_="sample",
    )


def _answer(answer: Answer, title: str, tone: str) -> Markup:
    kind, mark, word = VERDICTS[answer.verdict]
    length = f"{answer.num_tokens:,} tokens" + (
        "" if answer.is_finished else ", cut off at the limit"
    )
    head = tag(
        "div",
        tag("span", title, class_=f"who {tone}") if title else "",
        tag("span", tag("span", mark, aria_hidden="true"), " ", word, class_=f"verdict {kind}"),
        tag("span", length, class_="row-note"),
        class_="answer-head",
    )
    note = tag("p", _cut(answer.note), class_="answer-note") if answer.note else ""
    return tag("div", head, note, _lines(answer.lines), class_="answer")


def _lines(lines: Sequence[Line]) -> Markup:
    if not lines:
        return tag("p", "The answer is empty.", class_="row-note")
    rest = len(lines) - MAX_LINES
    more = tag("li", f"… {rest:,} more lines", class_="row-note") if rest > 0 else ""
    return tag("ol", *(_line(line) for line in lines[:MAX_LINES]), more, class_="lines", tabindex=0)


def _line(line: Line) -> Markup:
    kind, mark, word = MARKS[line.ok]
    sign = (
        join(tag("span", mark, aria_hidden="true"), tag("span", word, class_="unseen"))
        if mark
        else ""
    )
    note = tag("span", _cut(line.note), class_="line-note") if line.note else ""
    return tag(
        "li",
        tag("span", sign, class_=f"mark {kind}"),
        tag("code", _cut(line.text), dir="ltr"),
        note,
    )


def _cut(text: str) -> str:
    rest = len(text) - MAX_CHARACTERS
    return f"{text[:MAX_CHARACTERS]} … {rest:,} more characters" if rest > 0 else text
