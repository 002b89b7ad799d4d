"""The documents are true: their Python runs, their commands parse, their paths exist, their tables
match the code."""

import ast
import re
import shlex
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from small import Pipeline, check_metrics, documented_metrics
from small import whet as call_whet
from typer.core import TyperGroup
from typer.main import get_command

from whet.algos.algorithm import build_algorithm
from whet.algos.settings import AlgoConfig
from whet.cli import app
from whet.config import Config, kind_of, load_settings
from whet.config_errors import list_keys
from whet.data.sources import load_source
from whet.grading.check_task import check_grader
from whet.grading.limits import GradingConfig
from whet.pipeline.pipeline_config import STAGE_KINDS, PipelineConfig
from whet.store.run import RunStore
from whet.study.study_file import StudyConfig
from whet.tasks.game24 import Game24
from whet.tasks.user_task import load_user_task
from whet.testing.fakes import group as fake_group
from whet.testing.tiny import tiny_model
from whet.train.learner import LocalLearner
from whet.train.rl_step import assign_advantages, select_rollouts, to_examples, update_policy
from whet.train.settings import TrainConfig
from whet.types import SPLITS, Verdict

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    ROOT.glob("docs/*.md")
)
CLASSES: dict[str, type[Config]] = {"run": PipelineConfig, "study": StudyConfig, **STAGE_KINDS}
WALKED = ("quickstart.md", "tutorial.md")
"""Pages whose files name each other; tests/test_quickstart.py and tests/test_tutorial.py run them."""
TOPS = ("whet", "tests", "docs", "experiments", "bench", "tools", ".ci")
METRIC = re.compile(r"[a-z]+/[a-z_]+\d?(?:@\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a document."""

    place: str
    kind: str
    text: str


def blocks(kind: str) -> list[Block]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text[: match.start()].count("\n") + 1
            found.append(Block(place=f"{document.name}:{line}", kind=match[1], text=match[2]))
    return [block for block in found if block.kind == kind]


def prose(document: Path) -> str:
    return re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def code_spans(document: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(document))


def commands() -> list[tuple[str, str]]:
    """List the command lines of all bash and console blocks, and those in the running text that
    begin with whet."""
    lines = [(b.place, line) for b in blocks("bash") for line in b.text.splitlines()]
    lines += [
        (b.place, line[2:])
        for b in blocks("console")
        for line in b.text.splitlines()
        if line.startswith("$ ")
    ]
    lines += [
        (d.name, span)
        for d in DOCUMENTS
        for span in code_spans(d)
        if re.match(r"(whet|make) \S", span)
    ]
    return [(place, line.split("  #")[0].strip()) for place, line in lines if line.strip()]


WHET = [(place, line) for place, line in commands() if line.startswith("whet ")]
MAKE = [(place, line) for place, line in commands() if line.startswith("make ")]


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.place)
def test_python_in_the_documents_runs(block: Block) -> None:
    exec(compile(block.text, block.place, "exec"), {"__name__": "document"})


@pytest.mark.parametrize(("place", "line"), WHET, ids=[f"{place} {line}" for place, line in WHET])
def test_a_whet_command_has_a_known_verb_and_options_that_parse(place: str, line: str) -> None:
    file, settings = parsed(shlex.split(line)[1:])
    if file is None or "--suite" in line:
        return
    if not str(file).isupper() and not place.startswith(WALKED):
        path = ROOT / str(file)
        load_settings(CLASSES[kind_of(path)], path, settings)


def verbs() -> TyperGroup:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def parsed(words: list[str]) -> tuple[object, list[str]]:
    """Parse a command without running it; the file it names, if any, and the settings behind it."""
    if words[0].startswith("-") or words[:2] == ["teach", "status"]:
        return None, []
    # A mention such as `whet try` in the running text is of the verb alone.
    context = (
        verbs()
        .commands[words[0]]
        .make_context(words[0], words[1:], resilient_parsing=len(words) == 1)
    )
    return context.params.get("file"), context.args


def test_the_command_check_sees_unknown_verbs_and_options() -> None:
    with pytest.raises(KeyError):
        parsed(["sharpen", "FILE"])
    with pytest.raises(Exception, match="No such option"):
        parsed(["try", "RUN", "4 6 8 1", "--sample", "3"])


@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: block.place)
def test_what_a_console_block_shows_is_what_the_command_prints(block: Block) -> None:
    command, *shown = block.text.splitlines()
    words = shlex.split(command.removeprefix("$ "))
    is_cheap = words[:2] == ["whet", "show"] or "--plan" in words
    assert is_cheap, "only cheap commands are shown with their output"
    done = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=60,
    )
    printed = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert [line for line in shown if " ".join(line.split()) not in printed] == []


@pytest.mark.parametrize("block", blocks("diff"), ids=lambda block: block.place)
def test_a_diff_starts_from_lines_that_the_code_has(block: Block) -> None:
    before = "".join(
        f"{line[1:]}\n" for line in block.text.splitlines() if not line.startswith("+")
    )
    assert before.strip(), "a diff quotes what it changes, or what it comes after"
    assert any(before in file.read_text() for file in ROOT.glob("whet/**/*.py")), before


def test_make_commands_name_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"make train", "make test"} <= {line for _, line in MAKE}
    assert {word for _, line in MAKE for word in line.split()[1:]} <= targets


@pytest.mark.parametrize(
    "block",
    [block for block in blocks("toml") if not block.place.startswith(WALKED)],
    ids=lambda block: block.place,
)
def test_an_experiment_in_the_documents_loads(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(block.text)
    if block.place.startswith("sources.md"):
        load_source(str(file))
    else:
        load_settings(CLASSES[kind_of(file)], file, [])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_paths_and_links_lead_somewhere(document: Path) -> None:
    spans = [span for span in code_spans(document) if re.fullmatch(r"[\w.-]+(?:/[\w.-]*)*", span)]
    paths = [span for span in spans if span.split("/")[0] in TOPS and "/" in span]
    links = [link for link in re.findall(r"\]\(([^)#]+)", prose(document)) if "://" not in link]
    missing = [path for path in paths if not (ROOT / path).exists()]
    missing += [link for link in links if not (document.parent / link).exists()]
    assert missing == []


def test_the_readme_lists_every_package() -> None:
    tree = next(block.text for block in blocks("text") if block.text.startswith("whet/\n"))
    listed = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    packages = {folder.parent.name for folder in (ROOT / "whet").glob("*/__init__.py")}
    assert listed == packages
    top = re.findall(r"^(\w+)/ ", tree, re.MULTILINE) + [
        f"whet/{f}" for f in re.findall(r"^  (\w+\.py)", tree, re.M)
    ]
    assert [name for name in top if not (ROOT / name).exists()] == []


def test_the_readme_names_every_command() -> None:
    listed = re.search(r"cli/ +the commands: ((?:.+[,;]\n)*.+)", (ROOT / "README.md").read_text())
    assert listed is not None and set(re.split(r"[,;]\s+", listed[1])) == set(verbs().commands)


def test_the_rl_step_in_the_readme_is_that_of_the_code() -> None:
    section = (ROOT / "README.md").read_text().split("## One RL step")[1].split("\n## ")[0]
    loop, step = section.split("`RLTrainer.step`")
    recipe = ast.parse((ROOT / "whet" / "recipes" / "rl.py").read_text())
    trainer = ast.parse((ROOT / "whet" / "train" / "rl_step.py").read_text())
    loops = [node for node in ast.walk(recipe) if isinstance(node, ast.For)]
    body = next(node for node in loops if ast.unparse(node.target) == "step")
    method = next(
        node
        for node in ast.walk(trainer)
        if isinstance(node, ast.FunctionDef) and node.name == "step"
    )
    for text, whole, part, fewest in ((loop, recipe, body, 6), (step, method, method, 6)):
        named = re.findall(r"`([a-z_.]+)`", re.sub(r"`\w+/\S*`|`group_size`|`tango`", "", text))
        named = [name for name in named if name != "policy_objective"]
        assert [name for name in named if name not in calls_in(whole)] == []
        in_order = [name for name in named if name in calls_in(part)]
        assert len(in_order) >= fewest
        assert in_order == sorted(in_order, key=calls_in(part).index), (
            "the order is that of the code"
        )


def calls_in(tree: ast.AST) -> list[str]:
    """List what a piece of code calls, from its top to its bottom."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        ast.unparse(node.func)
        for node in sorted(calls, key=lambda node: (node.lineno, node.col_offset))
    ]


def test_the_task_of_your_own_in_the_documents_passes_its_check(tmp_path: Path) -> None:
    file = tmp_path / "my_task.py"
    file.write_text(
        next(block.text for block in blocks("python") if "class Doubles(Task)" in block.text)
    )
    task = load_user_task(f"{file}:Doubles")
    problems = [problem for split in SPLITS for problem in task.problems(split)]
    assert len(problems) == len({problem.id for problem in problems}) == 499
    assert {problem.split for problem in problems} == set(SPLITS)
    assert check_grader(task, problems[::10], limits=GradingConfig(workers=0)).failures == ()


def test_the_estimator_and_loss_in_the_documents_train(tmp_path: Path) -> None:
    file = tmp_path / "my_algo.py"
    file.write_text(next(block.text for block in blocks("python") if "soft_clip" in block.text))
    cfg = AlgoConfig(advantage=f"{file}:median_advantage", surrogate=f"{file}:soft_clip")
    learner = LocalLearner(tiny_model(), TrainConfig(), steps=1)
    algo = build_algorithm(cfg, max_tokens=8)
    selection = select_rollouts([fake_group([1.0, 0.25, 0.0])], algo)

    examples, state = assign_advantages(
        selection, to_examples(selection, temperature=1.0), algo, {}
    )

    assert ([item.advantage for item in examples], state) == ([0.75, 0.0, -0.25], {"steps": 1.0})
    assert update_policy(learner, examples, algo, seed=0).metrics["train/grad_norm"] > 0


def test_the_trial_in_the_documents_trains_with_its_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo = next(block.text for block in blocks("python") if "soft_clip" in block.text)
    (tmp_path / "my_algo.py").write_text(algo)
    trial = next(block.text for block in blocks("toml") if '{ kind = "random" }' in block.text)
    (tmp_path / "trial.toml").write_text(trial)
    monkeypatch.chdir(tmp_path)

    assert call_whet("run", "trial.toml", "--out", "out").code == 0

    rows = RunStore.view(tmp_path / "out" / "03-rl").metrics()
    assert [row["train/grad_norm"] > 0 for row in rows if "train/grad_norm" in row] == [True, True]


def written_metrics() -> set[str]:
    """Find the metric names written out in the source; `loss` is the one without an area."""
    texts = {text for file in (ROOT / "whet").rglob("*.py") for text in _constants(file)}
    return {text for text in texts if METRIC.fullmatch(text)} - {"application/json"} | {"loss"}


def _constants(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_troubleshooting_names_metrics_that_are_logged_and_settings_that_exist() -> None:
    spans = set(code_spans(ROOT / "docs" / "troubleshooting.md"))
    metrics = {span for span in spans if METRIC.fullmatch(span)}
    assert len(metrics) > 20 and metrics <= set(documented_metrics())
    known = {key for kind in STAGE_KINDS.values() for key in list_keys(kind)}
    dotted = {
        span.partition(" = ")[0] for span in spans if re.match(r"[a-z_]+\.[a-z_.]+( = |$)", span)
    }
    keys = {key for key in dotted if key.split(".")[0] in known}
    assert len(keys) > 25 and keys <= known


def test_prose_is_wrapped_at_120_columns() -> None:
    long = [
        f"{document.name}: {line}"
        for document in DOCUMENTS
        if document.name
        not in ("LOG.md", "CHANGELOG.md")  # their entries stay as they were written
        for line in prose(document).splitlines()
        if len(line) > 120 and not line.startswith("|")
    ]
    assert long == []


def test_every_metric_in_the_code_is_documented_and_no_other() -> None:
    scores = {name for name in documented_metrics() if name.startswith("score/")}
    assert {"reward/mean", "validation/pass@1"} <= written_metrics()
    assert set(documented_metrics()) - scores == written_metrics() - scores


@pytest.mark.parametrize(("folder", "stage"), [("03-sft", "sft"), ("05-rl", "rl")])
def test_a_run_logs_the_metrics_that_are_documented(
    tiny: Pipeline, folder: str, stage: str
) -> None:
    check_metrics(tiny.folder / folder, stage)


def test_every_trace_in_the_formats_is_right_in_every_line() -> None:
    task = Game24()
    problem = task.problem((1, 6, 8, 13))
    traces = blocks("trace")
    assert len(traces) == 6
    for block in traces:
        score = task.score(problem, block.text)
        assert (score.verdict, score.parts["process"]) == (Verdict.CORRECT, 1.0), block.place


FOREIGN_NAMES = {
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "_default_compute_score",  # Reasoning360
    "cu_seqlens",  # flash-attention
    "early_stop_imp_ratio",  # RLinf
    "n_minibatches",  # RLinf
    "reasoning_effort",  # of servers
    "rl.py",  # LLM4Game24
    "rollout_batch_size",  # RLinf
    "train.to_pandas",  # of pyarrow
    "verifier_loss",  # a metric: a prefix and a name
}
"""Names in backticks that are no names of this code."""


def known_words() -> set[str]:
    """Every name in the code, and every word of its strings that are no text in backticks."""
    words: set[str] = set()
    for folder in ("whet", "tests", "bench", "tools", "examples"):
        for file in ROOT.glob(f"{folder}/**/*.py"):
            for token in tokens_of(file):
                if token.type == tokenize.NAME:
                    words.add(token.string)
                elif token.type == tokenize.STRING and not {"`", "\n"} & set(token.string):
                    words.update(re.findall(r"\w+", token.string))
    for pattern in ("experiments/*.toml", "whet/**/*.toml", "whet/**/*.c", "pyproject.toml"):
        for file in ROOT.glob(pattern):
            words.update(re.findall(r"\w+", f"{file.stem} {file.read_text()}"))
    return words


def tokens_of(file: Path) -> list[tokenize.TokenInfo]:
    with tokenize.open(file) as lines:
        return list(tokenize.generate_tokens(lines.readline))


def written_lines() -> Iterator[tuple[str, str]]:
    """List the lines of documents outside of blocks, and of docstrings and comments in whet/."""
    for document in DOCUMENTS:
        if document.name not in ("LOG.md", "CHANGELOG.md"):
            for line in prose(document).splitlines():
                yield document.name, line
    for file in ROOT.glob("whet/**/*.py"):
        for token in tokens_of(file):
            is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
            if token.type == tokenize.COMMENT or is_docstring:
                for line in token.string.splitlines():
                    yield str(file.relative_to(ROOT)), line


def names_in(line: str) -> Iterator[str]:
    """Find what looks like a name of code in backticks: with an underscore, a dot or humps."""
    for span in re.findall(r"`([^`\n]+)`", line):
        name = re.sub(r"\(.*\)$", "", span)
        looks_so = re.search(r"_|\.|[a-z][A-Z]", name)
        if looks_so and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
            yield name


def missing_names(line: str, known: set[str]) -> list[str]:
    """List the names of a line that the code does not have, nor, for `name` in `file`, the file."""
    missing = [name for name in names_in(line) if not set(name.split(".")) <= known]
    for name, path in re.findall(r"`([a-zA-Z_]\w*)`(?: \([^)]*\))? in `([\w/]+\.py)`", line):
        file = ROOT / path
        if file.is_file() and not re.search(rf"\b{name}\b", file.read_text()):
            missing.append(f"{name} in {path}")
    return [name for name in missing if name not in FOREIGN_NAMES]


def test_every_name_in_backticks_is_one_of_the_code() -> None:
    known = known_words()
    missing = [
        f"{place}: {name}" for place, line in written_lines() for name in missing_names(line, known)
    ]
    assert missing == []


def test_the_check_of_names_sees_those_that_are_gone() -> None:
    known = {"kl_coef", "algo", "Rollout"}
    assert missing_names("`algo.kl_coef` of a `Rollout`, `a few words`", known) == []
    assert missing_names("`algo.kl_weight` and `OldClass`", known) == ["algo.kl_weight", "OldClass"]
    line = "`select` in `whet/train/rl_step.py`"
    assert missing_names(line, known) == ["select in whet/train/rl_step.py"]
