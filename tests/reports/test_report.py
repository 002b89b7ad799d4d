"""The page: what it shows, what it leaves out, and that nothing in it is taken for markup."""

import hashlib
import json
import re
from base64 import b64encode
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_fixture import line_notes, make_groups

from whet.evals.summary import F1, summarise
from whet.reports.formatting import escape_hidden
from whet.reports.page import MAX_CHARACTERS, read_static
from whet.reports.report_data import (
    Curve,
    NamedEval,
    ReportData,
    ReportSample,
    ResponseLine,
    ResponseView,
    StageTime,
    pick_samples,
)
from whet.reports.report_pages import MAX_LINES, TIME_PHASES, render_report, write_report
from whet.types import Verdict

HOSTILE = "</script></style><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;"


class Reader(HTMLParser):
    """Collects elements, attributes and text the way a browser would see them, and checks that tags
    nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(key, value or "") for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def test_a_full_report_has_every_section(report: ReportData) -> None:
    read = Reader(render_report(report))
    assert read.open == []
    for title in (
        "Accuracy",
        "By difficulty",
        "Training",
        "Answers before and after",
        "Time",
        "Settings",
    ):
        assert title in read.text
    assert report.headline.replace("\xa0", " ") in read.text
    assert read.tags.count("article") == 12
    assert "whet run experiments/game24_cpu.toml --seed 7" in read.text
    assert "9 min 23 s" in read.text  # 1.3 + 9.8 + 212 + 21.4 + 298 + 20.9 = 563.4 s


def test_the_page_needs_nothing_but_itself(report: ReportData) -> None:
    read = Reader(render_report(report))
    assert not {"link", "img", "iframe", "object", "base", "form"} & set(read.tags)
    assert not {"src", "href", "style", "srcdoc"} & {key for key, _ in read.attributes}
    assert not re.search(r"https?://|url\(|@import", render_report(report))


def test_the_policy_names_the_one_style_and_the_one_script(report: ReportData) -> None:
    text = render_report(report)
    policy = next(
        value
        for key, value in Reader(text).attributes
        if key == "content" and "default-src" in value
    )
    for element in ("style", "script"):
        (body,) = re.findall(f"<{element}>(.*?)</{element}>", text, flags=re.DOTALL)
        assert (
            f"{element}-src 'sha256-{b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
            in policy
        )


def test_a_report_stays_small(report: ReportData) -> None:
    assert len(render_report(report).encode()) < 300_000


@pytest.mark.parametrize(
    "part", [f.name for f in fields(ReportData) if f.name not in ("title", "headline")]
)
def test_any_part_may_be_missing(report: ReportData, part: str) -> None:
    bare = ReportData(title="t", headline="h")
    whole = replace(report, titles=("before the training", "after the training"))
    text = render_report(replace(whole, **{part: getattr(bare, part)}))
    assert Reader(text).open == []
    assert len(text) < len(render_report(whole))


def test_a_report_of_nothing_is_a_title_and_a_sentence() -> None:
    read = Reader(render_report(ReportData(title="empty run", headline="Nothing was measured.")))
    assert read.text == "empty run empty run Nothing was measured."
    assert not {"section", "figure", "table"} & set(read.tags)


def test_one_evaluation_alone_is_shown_without_a_before() -> None:
    groups = make_groups(0.4, 1, count=24)
    data = ReportData(
        title="eval",
        headline="h",
        evals=(NamedEval(name="model", summary=summarise(groups)),),
        samples=pick_samples([], groups, line_notes, count=2),
    )
    text = render_report(data)
    assert 'class="fill after"' in text
    assert 'class="fill before"' not in text
    assert "before" not in Reader(text).text


def test_the_f1_of_a_subset_is_a_column_of_the_evaluations(report: ReportData) -> None:
    first, *others = report.evals
    halves = dict.fromkeys(("correct", "error"), first.summary.tokens)
    summary = replace(first.summary, f1={"gsm8k": F1(value=0.625, halves=halves)})
    page = render_report(replace(report, evals=(replace(first, summary=summary), *others)))

    assert "F1 of gsm8k" in page
    assert page.count("<td>62.5") == 1
    assert "F1 of" not in render_report(report)


def test_hostile_text_anywhere_stays_text(report: ReportData) -> None:
    line = ResponseLine(text=HOSTILE, is_right=False, note=HOSTILE)
    answer = ResponseView(
        lines=(line,), verdict=Verdict.WRONG, note=HOSTILE, num_tokens=3, is_finished=False
    )
    hostile = ReportData(
        title=HOSTILE,
        headline=HOSTILE,
        evals=(replace(report.evals[0], name=HOSTILE), report.evals[1]),
        curves=(Curve(name=HOSTILE, stage=HOSTILE, steps=[0, 1], values=[0.0, 1.0]),),
        samples=(ReportSample(problem=HOSTILE, label=HOSTILE, before=answer, after=answer),),
        stages=(StageTime(name=HOSTILE, seconds=1.0),),
        settings=f"a = {HOSTILE}  # {HOSTILE}",
        facts={HOSTILE: HOSTILE},
    )
    text = render_report(hostile)
    read = Reader(text)
    assert read.open == []
    assert read.tags.count("script") == read.tags.count("style") == 1
    assert "img" not in read.tags
    assert not [key for key, _ in read.attributes if key.startswith("on")]
    assert read.texts.count(HOSTILE) >= 12


def test_chart_data_survive_the_page_as_json(report: ReportData) -> None:
    charts = [
        json.loads(value)
        for key, value in Reader(render_report(report)).attributes
        if key == "data-points"
    ]
    assert len(charts) == len(report.curves)
    assert len(charts[0]) == 300
    assert charts[1][0][2] == "step 0: 18\xa0%"


def test_characters_that_hide_or_reorder_text_are_shown() -> None:
    assert (
        escape_hidden("a\u202eb\x1b[0m\ud800\n\té\u200b") == "a\\u202eb\\x1b[0m\\ud800\n\té\\u200b"
    )


def test_lone_surrogates_do_not_stop_the_page() -> None:
    render_report(ReportData(title="\ud800", headline="h", facts={"a": "\udfff"})).encode()


def test_endless_responses_are_cut_and_say_so() -> None:
    lines = (ResponseLine(text="x" * (MAX_CHARACTERS + 7)),) * (MAX_LINES + 5)
    answer = ResponseView(
        lines=lines, verdict=Verdict.UNSCORED, note="", num_tokens=9, is_finished=True
    )
    read = Reader(
        render_report(
            ReportData(title="t", headline="h", samples=(ReportSample(problem="p", after=answer),))
        )
    )
    assert "… 7 more characters" in read.text
    assert "… 5 more lines" in read.text
    assert "not graded" in read.text


def test_an_empty_answer_is_called_empty() -> None:
    answer = ResponseView(
        lines=(), verdict=Verdict.NO_ANSWER, note="", num_tokens=0, is_finished=True
    )
    read = Reader(
        render_report(
            ReportData(title="t", headline="h", samples=(ReportSample(problem="p", before=answer),))
        )
    )
    assert "The answer is empty." in read.text


def test_verdicts_are_told_in_words_not_by_colour_alone(report: ReportData) -> None:
    text = Reader(render_report(report)).text
    assert "✓ right" in text
    assert "✗ wrong" in text


def test_curves_that_cannot_be_drawn_are_left_out_and_odd_ones_are_drawn() -> None:
    curves = (
        Curve(name="gone", stage="RL", steps=[0], values=[float("nan")]),
        Curve(name="flat", stage="RL", steps=[3], values=[0.0]),
        Curve(name="tiny", stage="RL", steps=[0, 1], values=[1e-9, 3e-9]),
        Curve(name="huge", stage="SFT", steps=[0, 1, 2], values=[1e12, float("inf"), -1e12]),
        Curve(name="none", stage="DPO", steps=[], values=[]),
    )
    read = Reader(render_report(ReportData(title="t", headline="h", curves=curves)))
    assert "gone" not in read.text
    assert "DPO" not in read.text
    assert "1 values were not finite" in read.text
    assert read.tags.count("figure") == 3


def test_stages_that_took_no_time_are_listed() -> None:
    read = Reader(
        render_report(
            ReportData(title="t", headline="h", stages=(StageTime(name="sft", seconds=0.0),))
        )
    )
    assert "sft" in read.text


def test_the_time_of_a_stage_is_split_into_the_parts_of_its_steps() -> None:
    stage = StageTime(name="rl", seconds=10.0, phases={"sample": 5.0, "update": 3.0})
    text = render_report(ReportData(title="t", headline="h", stages=(stage,)))
    widths = re.findall(r'x="([\d.]+)%" width="([\d.]+)%" height="8" class="fill part-(\w+)"', text)
    assert widths == [
        ("0.00", "50.00", "sample"),
        ("50.00", "30.00", "update"),
        ("80.00", "20.00", "rest"),  # 10 - 5 - 3 seconds
    ]
    assert "Where the time of training went" in text


def test_every_phase_of_time_has_its_own_colour() -> None:
    style = read_static("report.css")
    fills = re.findall(r"\.fill\.part-(\w+) \{ fill: (\S+); \}", style)
    keys = re.findall(r"\.who\.part-(\w+)::before \{ background: (\S+); \}", style)
    assert [pair for pair in fills if pair[0] != "time"] == keys
    assert dict(keys).keys() == TIME_PHASES.keys()
    assert len({colour for _, colour in keys}) == len(TIME_PHASES)


def test_a_third_evaluation_between_first_and_last_has_a_tone_of_its_own(
    report: ReportData,
) -> None:
    between = replace(report.evals[0], name="after DPO")
    text = render_report(replace(report, evals=(report.evals[0], between, report.evals[1])))
    assert 'class="fill middle"' in text


def test_writing_replaces_the_file_at_once(report: ReportData, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(report, path)
    assert path.read_text(encoding="utf-8") == render_report(report)
    assert list(tmp_path.iterdir()) == [path]
