"""The report's page: its sections in order, each left out when there is nothing to show."""

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from importlib.resources import files

from whet.evals.answers import samples_section
from whet.evals.charts import Bar, BarRow, bar_chart, bar_scale, line_chart
from whet.evals.markup import Markup, join, raw, tag
from whet.evals.report_data import NamedEval, ReportData
from whet.evals.stats import Estimate
from whet.evals.wording import SPACE, bounds, duration, number, percent, points

INTERVAL = f"Whiskers and brackets: 95{SPACE}% intervals over problems."


def page(data: ReportData) -> Markup:
    """Write the whole document: no address outside it, one style, one script, both named by hash in
    its policy."""
    style = _static("report.css")
    script = _static("report.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", data.title),
        tag("style", raw(style)),
    )
    sections = [
        _header(data),
        _accuracy(data),
        _evaluations(data.evals),
        _curves(data),
        samples_section(data),
        _times(data),
        _facts(data),
        _settings(data),
    ]
    body = tag(
        "body", tag("main", *(s for s in sections if s is not None)), tag("script", raw(script))
    )
    return join(raw("<!doctype html>\n"), tag("html", head, body, lang="en"), "\n")


def _header(data: ReportData) -> Markup:
    gain = data.difference
    paired = (
        f"Paired over the same {gain.count:,} problems, the change is {points(gain)}."
        if gain
        else ""
    )
    return tag(
        "header",
        tag("h1", data.title),
        tag("p", data.headline, class_="headline"),
        tag("p", paired, class_="sub") if paired else "",
    )


def _accuracy(data: ReportData) -> Markup | None:
    if not data.evals:
        return None
    solved = _overall_rows(data.evals)
    by_level = _level_rows(data.evals)
    scale = bar_scale(solved + by_level)
    overall = _figure("Solved", bar_chart(solved, scale), f"Share of problems solved. {INTERVAL}")
    note = "Share of answers that are right (pass@1), by fifth of difficulty."
    levels = _figure("By difficulty", bar_chart(by_level, scale), note) if by_level else ""
    return _section("Accuracy", tag("div", overall, levels, class_="two"))


def _overall_rows(evals: Iterable[NamedEval]) -> list[BarRow]:
    evals, tones = tuple(evals), _tones(evals)
    sampled, greedy = ([e for e in evals if e.is_greedy is flag] for flag in (False, True))
    rows = []
    for k in sorted({k for e in sampled for k in e.summary.pass_at}):
        bars = [_bar(e, e.summary.pass_at.get(k), tones) for e in sampled]
        label = "One sampled answer" if k == 1 else f"Any of {k} answers"
        rows.append(BarRow(label=label, note=f"pass@{k}", bars=tuple(b for b in bars if b)))
    bars = [_bar(e, e.summary.pass_at.get(1), tones) for e in greedy]
    rows.append(
        BarRow(label="Greedy answer", note="temperature 0", bars=tuple(b for b in bars if b))
    )
    return [row for row in rows if row.bars]


def _level_rows(evals: Iterable[NamedEval]) -> list[BarRow]:
    evals = tuple(evals)
    tones = _tones(evals)
    shown = [e for e in evals if not e.is_greedy] or list(evals)
    notes = {"1": "easiest fifth", "5": "hardest fifth", "unknown": "difficulty not known"}
    rows = []
    for level in sorted({level for e in shown for level in e.summary.by_level} - {"unknown"}):
        bars = [_bar(e, e.summary.by_level.get(level), tones) for e in shown]
        rows.append(
            BarRow(
                label=f"Level {level}", note=notes.get(level, ""), bars=tuple(b for b in bars if b)
            )
        )
    bars = [_bar(e, e.summary.by_level.get("unknown"), tones) for e in shown] if rows else []
    rows.append(BarRow(label="Unknown", note=notes["unknown"], bars=tuple(b for b in bars if b)))
    bars = [_bar(e, e.summary.unsolvable, tones) for e in shown]
    rows.append(
        BarRow(
            label="Unsolvable",
            note="recognised as such; reported apart",
            bars=tuple(b for b in bars if b),
        )
    )
    return [row for row in rows if row.bars]


def _bar(item: NamedEval, estimate: Estimate | None, tones: dict[str, str]) -> Bar | None:
    return (
        None if estimate is None else Bar(name=item.name, tone=tones[item.name], estimate=estimate)
    )


def _tones(evals: Iterable[NamedEval]) -> dict[str, str]:
    """Give the first name the tone of before, the last that of after; a name alone counts as
    after."""
    names = list(dict.fromkeys(e.name for e in evals))
    return dict.fromkeys(names, "middle") | {names[0]: "before"} | {names[-1]: "after"}


def _evaluations(evals: tuple[NamedEval, ...]) -> Markup | None:
    if not evals:
        return None
    ks = sorted({k for e in evals for k in e.summary.pass_at})
    titles = [
        "Evaluation",
        "Problems",
        "Answers",
        *(f"pass@{k}" for k in ks),
        "Tokens",
        "Cut off",
        "No answer",
        "Ungraded",
    ]
    head = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in titles)))
    body = tag("tbody", *(_evaluation_row(e, ks) for e in evals))
    table = tag(
        "div",
        tag("table", head, body),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label="Evaluations",
    )
    note = "Cut off: reached the length limit. Ungraded: answers the grader failed on, which pass@k leaves out."
    return _section("Evaluations in numbers", table, tag("p", note, class_="note"))


def _evaluation_row(item: NamedEval, ks: list[int]) -> Markup:
    found = item.summary
    estimates = [found.pass_at.get(k) for k in ks]
    cells = [
        f"{found.num_problems:,}",
        f"{found.num_rollouts:,}",
        *("–" if e is None else _share_cell(e) for e in estimates),
        _cell(number(found.tokens.mean, 1), bounds(found.tokens, 1)),
        _share_cell(found.unfinished),
        _share_cell(found.no_answer),
        f"{found.num_unscored:,}",
    ]
    name = f"{item.name}, {'greedy' if item.is_greedy else 'sampled'}"
    return tag("tr", tag("th", name, scope="row"), *(tag("td", cell) for cell in cells))


def _share_cell(estimate: Estimate) -> Markup:
    return _cell(percent(estimate.mean, 1), bounds(estimate, 1, scale=100))


def _cell(value: str, interval: str) -> Markup:
    return join(value, tag("span", interval, class_="interval"))


def _curves(data: ReportData) -> Markup | None:
    stages = list(dict.fromkeys(curve.stage for curve in data.curves))
    drawn = {
        stage: [line_chart(curve) for curve in data.curves if curve.stage == stage]
        for stage in stages
    }
    blocks = [
        join(
            tag("h3", f"{stage}, by step"),
            tag("div", *(f for f in figures if f is not None), class_="three"),
        )
        for stage, figures in drawn.items()
        if any(f is not None for f in figures)
    ]
    return _section("Training", *blocks) if blocks else None


def _times(data: ReportData) -> Markup | None:
    if not data.stages:
        return None
    total = sum(stage.seconds for stage in data.stages)
    rows = []
    for stage in data.stages:
        share = f"{100 * stage.seconds / total:.2f}%" if total > 0 else "0%"
        bar = tag(
            "svg",
            tag("rect", width=share, height=8, class_="fill time"),
            width="100%",
            height=8,
            aria_hidden="true",
        )
        note = tag("span", stage.note, class_="row-note") if stage.note else ""
        rows.append(
            tag(
                "tr",
                tag("th", stage.name, " ", note, scope="row"),
                tag("td", bar),
                tag("td", duration(stage.seconds)),
            )
        )
    rows.append(
        tag(
            "tr",
            tag("th", "Together", scope="row"),
            tag("td"),
            tag("td", duration(total)),
            class_="total",
        )
    )
    return _section("Time", tag("table", tag("tbody", *rows), class_="times"))


def _facts(data: ReportData) -> Markup | None:
    if not data.facts:
        return None
    pairs = [tag("div", tag("dt", key), tag("dd", value)) for key, value in data.facts.items()]
    return _section("How to do it again", tag("dl", *pairs, class_="facts"))


def _settings(data: ReportData) -> Markup | None:
    if not data.settings.strip():
        return None
    lines = []
    for line in data.settings.strip("\n").split("\n"):
        value, mark, origin = line.rpartition(" # ")
        lines.append(
            join(value, tag("span", f" # {origin}", class_="origin")) if mark else join(line)
        )
    block = tag("pre", *(join(line, "\n") for line in lines), tabindex=0)
    return _section(
        "Settings",
        tag("details", tag("summary", f"All {len(lines)} lines, each with its origin"), block),
    )


def _section(title: str, *children: str) -> Markup:
    return tag("section", tag("h2", title), *children)


def _figure(title: str, chart: Markup, caption: str) -> Markup:
    return tag("figure", tag("h3", title), chart, tag("figcaption", caption))


def _static(name: str) -> str:
    return files("whet.evals").joinpath("static", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
