"""The shape of the package, as docs/architecture.md states it: who imports whom, how long things
get, what is light."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "whet").rglob("*.py"))
GROUND = {
    "types",
    "level_bands",
    "rng",
    "errors",
    "environment",
    "amx_probe",
    "config",
    "toml",
    "config_errors",
    "user_code",
    "world",
}
GROUND_OUTSIDE = {"numpy", "pydantic", "pydantic_core"}
HEAVY = (
    "torch",
    "numpy",
    "pydantic",
    "pyarrow",
    "scipy",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
)

parse = cache(ast.parse)
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60
LONG_FILES: dict[str, str] = {
    "whet/config.py": "settings: layers, origins, checks and how they are shown",
    "whet/engine/fleet.py": "one engine: calls, streams, pushes and lost workers share its state",
    "whet/tasks/code/referee.py": "the part of pytest that published tests use",
    "whet/tasks/game24/lines.py": "every form that a line of a response may have",
    "whet/tasks/math/compare.py": "one comparison, of every kind of answer",
    "whet/tasks/math/parser.py": "one grammar, in one class",
}
"""Files above the limit, each with a reason."""
LONG_FUNCTIONS: dict[str, str] = {
    "whet/kernels/triton_attention.py:_prefill": "one kernel: its loads, loops and stores",
}
"""Functions above the limit, as "whet/x.py:name", each with a reason."""


SHARED_NAMES: dict[str, str] = {
    "main": "what a module does as a program",
    "unsupported_reason": "importers ask it of the module of each task",
    "dpo": "a loss has the name of its paper, a recipe that of its kind",
    "COLUMNS": "what a table or a line on the screen shows, of each recipe and command",
    "READERS": "each module of importers lists its own, by format",
    "FEATURES": "each kernel and cache lists the features of models that it has",
    "STYLES": "how words are coloured on the screen, by each command",
}
"""Public names that several modules define, each with a reason. Commands are not among them: a
function of `whet/cli*` has the name that a user types."""
LIMIT = re.compile(r"(MAX|MIN|NUM)_.*|.*_(SECONDS|BYTES)")
"""Constants that bound something in their own module, under the same name in many."""


REPLACED_NAMES: dict[str, str] = {
    r"feed": "sampler",
    r"(num|first|stored|scored|judged|sampled|graded|imported|running)_?answers?": "response",
    r"worked_answers?": "worked_solution",
    r"_?make_(learner|value_learner|frozen_model|reference|task)": "build_",
    r"_?open_(teacher|model|task)": "load_, build_",
    r"_?(lesson|exam|contestant|ticket|tally)s?": "teach job, benchmark, model, planned group, counter",
    r"step_?notes?|take_apart|no_score|is_fall": "line note, break_down, unscored, is_collapse",
    r"(split_)?by_origin": "by_task_and_source",
    r"float_?array": "Doubles",
}
"""Names that a variable, parameter, function or class does not have, and what replaces them."""
REPLACED_WORDS: dict[str, str] = {
    r"\bfeed\b(?!-forward)": "problem sampler",
    r"\bhead start\b": "warm-up",
    r"\b(stored|sampled|graded|scored|cut-off|running|long|longest|imported) answers?\b": "response",
    r"\banswers (per problem|to (a|the|each|every|one) problem|finish|are cut)\b": "responses",
    r"\bworked answers?\b": "worked solution",
    r"(?<![a-z])lessons?\b": "teach run",
}
"""Words of docstrings and pages that docs/glossary.md replaces."""
NAMES_IN_FILES = {
    "whet/data/difficulty.py:num_answers": "a field of a difficulty map",
    "whet/suites/result.py:num_answers": "a field of a stored result",
}
"""Old names that files of users have."""


PEFT_NAMES = {"lora_A", "lora_B"}
"""Parameters that are called so in files of peft; their last letter is no shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports:
    """What a file imports: modules of whet by their full names, other packages by their first."""

    inside: frozenset[str]
    outside: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a package may import; None stands for everything."""

    inside: frozenset[str] | None
    outside: frozenset[str] | None


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(file): file for file in FILES}


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports_of(source: str) -> Imports:
    names = {name for node in ast.walk(parse(source)) for name in _imported(node)}
    inside = frozenset(name for name in names if name.split(".")[0] == "whet")
    tops = {name.split(".")[0] for name in names - inside}
    return Imports(inside=inside, outside=frozenset(tops - sys.stdlib_module_names))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0 and node.module is not None, "imports are absolute"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in MODULES else node.module


IMPORTS = {module: imports_of(file.read_text()) for module, file in MODULES.items()}


def read_table() -> dict[str, Row]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split("## Who may import whom")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    return {
        package: Row(inside=_cell(inside), outside=_cell(outside))
        for package, inside, outside in rows
    }


def _cell(text: str) -> frozenset[str] | None:
    if text.strip() == "all":
        return None
    return frozenset(name for name in re.split(r",\s*", text.strip()) if name != "—")


TABLE = read_table()


def used(package: str) -> tuple[set[str], set[str]]:
    """Gather what the modules of a package import: other packages of whet beyond the ground, and
    outside ones."""
    own = [IMPORTS[module] for module in MODULES if package_of(module) == package]
    inside = (
        {package_of(name) for imports in own for name in imports.inside} - GROUND - {package, ""}
    )
    return inside, {name for imports in own for name in imports.outside}


def test_imports_are_found_wherever_they_stand() -> None:
    source = "import torch.nn\nfrom whet import toml\ndef f():\n    from whet.store.run import RunStore\n    import json\n"
    assert imports_of(source) == Imports(
        inside=frozenset({"whet.toml", "whet.store.run"}), outside=frozenset({"torch"})
    )


def test_the_table_has_a_row_for_every_package_and_no_other() -> None:
    packages = {package_of(module) for module in MODULES} - GROUND - {""}
    assert set(TABLE) == packages


@pytest.mark.parametrize("package", TABLE)
def test_a_package_imports_what_its_row_allows_and_the_row_allows_no_more(package: str) -> None:
    inside, outside = used(package)
    row = TABLE[package]
    assert row.inside is None or inside == row.inside
    assert row.outside is None or outside == row.outside


def test_the_ground_imports_only_itself_and_light_libraries() -> None:
    for module in MODULES:
        if package_of(module) in GROUND:
            assert {package_of(name) for name in IMPORTS[module].inside} <= GROUND, module
            assert IMPORTS[module].outside <= GROUND_OUTSIDE, module


def test_nothing_imports_testing() -> None:
    guilty = [
        module
        for module in MODULES
        if "testing" in {package_of(name) for name in IMPORTS[module].inside}
    ]
    assert [module for module in guilty if package_of(module) != "testing"] == []


def test_the_table_has_no_cycle() -> None:
    TopologicalSorter({package: row.inside or () for package, row in TABLE.items()}).prepare()


def test_modules_have_no_cycle() -> None:
    TopologicalSorter({module: imports.inside for module, imports in IMPORTS.items()}).prepare()


def private_imports(source: str) -> list[str]:
    """List the names with an underscore that a file imports from modules of whet."""
    return [
        f"{node.module}.{alias.name}"
        for node in ast.walk(parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "whet"
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]


def test_a_private_name_stays_in_its_module() -> None:
    source = "from whet import __version__\nfrom whet.a import b, _c\nfrom os import _exit\n"
    assert private_imports(source) == ["whet.a._c"]
    private = {str(file.relative_to(ROOT)): private_imports(file.read_text()) for file in FILES}
    assert {name: names for name, names in private.items() if names} == {}


def test_files_and_functions_stay_short() -> None:
    long_files, long_functions = set(), set()
    for file in FILES:
        name, source = str(file.relative_to(ROOT)), file.read_text()
        if source.count("\n") > MAX_FILE_LINES:
            long_files.add(name)
        for node in ast.walk(parse(source)):
            if (
                isinstance(node, ast.FunctionDef)
                and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
            ):
                long_functions.add(f"{name}:{node.name}")
    assert long_files == LONG_FILES.keys()
    assert long_functions == LONG_FUNCTIONS.keys()


def test_no_file_is_named_for_nothing() -> None:
    assert not {file.stem for file in FILES} & {"utils", "util", "helpers", "common", "misc"}


def test_a_public_name_is_defined_in_one_module() -> None:
    places: dict[str, list[str]] = {}
    for module, file in MODULES.items():
        if not module.startswith("whet.cli"):
            for name in public_names(file.read_text()):
                if not LIMIT.fullmatch(name):
                    places.setdefault(name, []).append(module)
    several = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: where for name, where in several.items() if name not in SHARED_NAMES} == {}
    assert several.keys() == SHARED_NAMES.keys(), "a name that is no longer shared leaves the table"


def public_names(source: str) -> set[str]:
    """Find the classes, functions, constants and aliases at the top of a module that others may
    import; type variables are none."""
    names: set[str] = set()
    for node in parse(source).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
                continue
            case ast.Assign(targets=targets):
                items = [item for target in targets for item in ast.walk(target)]
                names |= {item.id for item in items if isinstance(item, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def test_public_names_are_all_that_a_module_defines_at_the_top() -> None:
    source = (
        "class A:\n    def f(self): ...\ndef g(): ...\ndef _h(): ...\nX = Y, Z = 1, 2\nW: int = 1\n"
        "T = TypeVar('T')\n_V = 1\nif TYPE_CHECKING:\n    U = 1\n"
    )
    assert public_names(source) == {"A", "g", "X", "Y", "Z", "W"}


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(file)
        for file in FILES
        if file.read_text().strip() and not ast.get_docstring(parse(file.read_text()))
    ]
    assert silent == []


def letters_of_the_glossary() -> list[str]:
    text = (ROOT / "docs" / "glossary.md").read_text()
    return re.findall(
        r"^\| `([A-Z])` \|", text.split("## Letters in tensor names")[1], re.MULTILINE
    )


@cache
def tensor_names(source: str) -> set[str]:
    """Find the names that end in a shape, such as logits_TV."""
    names: set[str] = set()
    for node in ast.walk(parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
    return {name for name in names if re.fullmatch(r"[a-z0-9_]+_[A-Z][A-Z0-9]*", name)}


def test_tensor_names_are_found_in_variables_parameters_and_attributes() -> None:
    source = "def f(x_TH):\n    self.rope_CD = x_TH[starts_S1]\n    MAX_LINES = lora.y_B2"
    assert tensor_names(source) == {"x_TH", "rope_CD", "starts_S1", "y_B2"}


def test_every_letter_of_a_tensor_name_is_in_the_glossary() -> None:
    letters = letters_of_the_glossary()
    assert len(letters) == len(set(letters)), "a letter has one meaning"
    unknown = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in FILES
        for name in tensor_names(file.read_text()) - PEFT_NAMES
        if set(re.sub(r"\d", "", name.rsplit("_", 1)[1])) - set(letters)
    }
    assert sorted(unknown) == []


def test_every_letter_of_the_glossary_is_in_use() -> None:
    shapes = {
        name.rsplit("_", 1)[1]
        for file in FILES
        for name in tensor_names(file.read_text()) - PEFT_NAMES
    }
    assert set(letters_of_the_glossary()) <= set("".join(shapes))


def defined_names(source: str) -> set[str]:
    """Find the names of variables, parameters, fields, functions and classes."""
    names: set[str] = set()
    for node in ast.walk(parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
    return names


def docstrings_of(source: str) -> list[str]:
    """List docstrings, also those below fields and constants, each on one line."""
    nodes = [node.value for node in ast.walk(parse(source)) if isinstance(node, ast.Expr)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return [" ".join(text.split()) for text in texts if isinstance(text, str)]


def replaced_in(source: str) -> list[str]:
    """List the names and words of a module that the glossary has others for."""
    found = []
    for pattern in REPLACED_NAMES:
        found += [name for name in defined_names(source) if re.fullmatch(pattern, name.lower())]
    for pattern in REPLACED_WORDS:
        found += [match[0] for text in docstrings_of(source) if (match := re.search(pattern, text))]
    return found


def test_code_has_the_words_of_the_glossary() -> None:
    found = {
        f"{file.relative_to(ROOT)}:{name}"
        for file in FILES
        for name in replaced_in(file.read_text())
        if package_of(module_of(file)) != "testing"
    }
    assert found == NAMES_IN_FILES.keys()


def test_tests_have_the_names_of_the_glossary() -> None:
    files = (file for file in (ROOT / "tests").rglob("*.py") if file != Path(__file__))
    found = {str(file.relative_to(ROOT)): replaced_in(file.read_text()) for file in files}
    assert {name: words for name, words in found.items() if words} == {}


def replaced_on(page: str) -> list[str]:
    """List the words of a page, its code included, that the glossary has others for."""
    text = " ".join(page.split())
    return [match[0] for pattern in REPLACED_WORDS for match in re.finditer(pattern, text)]


def test_pages_have_the_words_of_the_glossary() -> None:
    assert replaced_on("of graded\nanswers: runs/more_lessons") == ["graded answers", "lessons"]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {page.name: replaced_on(page.read_text()) for page in pages if page.name != "LOG.md"}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_check_of_words_sees_names_and_docstrings() -> None:
    source = '''class JudgedAnswer:
    """Of graded
    answers, with a head start."""
    num_answers: int
def f(feed): return feed.answer
'''
    assert sorted(replaced_in(source)) == [
        "JudgedAnswer",
        "feed",
        "graded answers",
        "head start",
        "num_answers",
    ]


def bare_asserts(source: str) -> list[int]:
    """List the lines of asserts without a sentence."""
    asserts = [node for node in ast.walk(parse(source)) if isinstance(node, ast.Assert)]
    return [node.lineno for node in asserts if node.msg is None]


def test_an_assert_has_a_sentence() -> None:
    assert bare_asserts("assert x, 'why'\nassert x\n") == [2]
    bare = {str(file.relative_to(ROOT)): bare_asserts(file.read_text()) for file in FILES}
    assert {name: lines for name, lines in bare.items() if lines} == {}


GENERATORS = {
    "make_rng",
    "make_numpy_rng",
    "Random",
    "random.Random",
    "np.random.default_rng",
    "np.random.Generator",
    "torch.Generator",
    "torch.Generator().manual_seed",
}
"""What makes a random generator, and the types of one."""


def generators_of(source: str) -> set[str]:
    """Find the names that random generators have, as variables and as parameters."""
    names: set[str] = set()
    for node in ast.walk(parse(source)):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=maker))
                | ast.arg(arg=name, annotation=ast.expr() as maker)
            ) if ast.unparse(maker) in GENERATORS:
                names.add(name)
    return names


def test_a_random_generator_is_called_rng() -> None:
    source = "def f(a: Random, b: torch.Generator): c = make_rng(0); d = torch.Generator().manual_seed(1)"
    assert generators_of(source) == {"a", "b", "c", "d"}
    names = {name for file in FILES for name in generators_of(file.read_text())}
    assert names == {"rng", "_RNG"}


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from whet.cli import app\n"
        "app(['--help'], standalone_mode=False)\n"
        f"print('loaded:', *(name for name in {HEAVY!r} if name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "Usage:" in done.stdout
    assert done.stdout.splitlines()[-1].strip() == "loaded:"
