from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError, field_validator, model_validator

from whet.config import (
    Config,
    LoadedSettings,
    differences,
    kind_of,
    load_settings,
    show_settings,
    to_toml,
)
from whet.errors import ConfigError


class Shade(StrEnum):
    DARK = "dark"
    LIGHT = "light"


class Clip(Config):
    kind: Literal["clip"] = "clip"
    low: float = 0.2
    """How far below 1 a ratio counts."""
    high: float = 0.2


class Plain(Config):
    kind: Literal["plain"] = "plain"
    weight: float = 1.0


Loss = Annotated[Clip | Plain, Field(discriminator="kind")]


class Train(Config):
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    clip_norm: float | None = 1.0


class Suite(Config):
    samples: int = 8
    low: int = 0
    top: int = 100

    @model_validator(mode="after")
    def _ordered(self) -> "Suite":
        if self.low > self.top:
            raise ValueError("low is above top")
        return self


class Job(Config):
    steps: int
    name: str = "job"
    out: Path | None = None
    shade: Shade = Shade.DARK
    fast: bool = False
    ends: list[str] = Field(default_factory=list)
    train: Train = Train(lr=0.5)
    loss: Loss = Clip(high=0.28)
    suites: dict[str, Suite] = Field(default_factory=dict)
    rows: list[Loss] = Field(default_factory=list)

    @field_validator("name")
    @classmethod
    def _no_spaces(cls, name: str) -> str:
        if " " in name:
            raise ValueError("a name has no spaces")
        return name


def job(*flags: str, file: Path | None = None) -> Job:
    return load_settings(Job, file, ["--steps", "3", *flags]).config


def complaint(*flags: str, file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(Job, file, flags)
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(
        'steps = 7\nname = "seven"\n[train]\nlr = 0.25\n[loss]\nkind = "clip"\nlow = 0.1\n'
    )
    return path


def test_flags_win_over_the_file_and_the_file_over_defaults(file: Path) -> None:
    loaded = load_settings(
        Job, file, ["--train.lr", "0.125"], defaults={"steps": 1, "name": "one", "fast": True}
    )
    assert (loaded.config.steps, loaded.config.name, loaded.config.fast) == (7, "seven", True)
    assert loaded.config.train.lr == 0.125
    assert {key: loaded.origin[key] for key in ("steps", "fast", "train.lr", "train.betas")} == {
        "steps": "job.toml",
        "fast": "default",
        "train.lr": "cli",
        "train.betas": "default",
    }


def test_a_flag_takes_its_value_after_a_space_or_an_equals_sign_and_alone_means_true() -> None:
    config = job("--fast", "--name=a=b", "--train.clip_norm", "-1")
    assert (config.fast, config.name, config.train.clip_norm) == (True, "a=b", -1.0)


def test_the_last_of_two_equal_flags_wins() -> None:
    assert job("--name", "a", "--name", "b").name == "b"


def test_flag_values_are_toml_values_or_else_bare_text() -> None:
    config = job(
        "--ends",
        '["a", "b"]',
        "--suites.dev",
        "{samples = 2}",
        "--out",
        "runs/x",
        "--shade",
        "light",
    )
    assert config.ends == ["a", "b"]
    assert config.suites == {"dev": Suite(samples=2)}
    assert (config.out, config.shade) == (Path("runs/x"), Shade.LIGHT)


@pytest.mark.parametrize("text", ["24", "true", "2024-01-31", "1\nfast = true"])
def test_a_text_setting_takes_any_flag_value_as_text(text: str) -> None:
    assert load_settings(
        Job,
        None,
        ["--steps", "3", "--ends", "[]", "--loss.kind", "plain", "--name", text.replace(" ", "")],
    )
    assert job("--name", text.replace(" ", "")).name == text.replace(" ", "")


def test_a_table_changes_a_default_key_by_key() -> None:
    assert job("--train.clip_norm", "2").train == Train(lr=0.5, clip_norm=2.0)


def test_a_table_without_its_kind_changes_the_default_variant(file: Path) -> None:
    assert job("--loss.low", "0.1").loss == Clip(low=0.1, high=0.28)
    assert job("--loss.low", "0.3", file=file).loss == Clip(low=0.3, high=0.28)


def test_another_kind_starts_from_that_variants_own_defaults() -> None:
    assert job("--loss.kind", "plain").loss == Plain(weight=1.0)


def test_a_number_in_a_flag_picks_a_row_of_a_list(tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text('[[rows]]\nkind = "plain"\n[[rows]]\nkind = "clip"\n')
    loaded = load_settings(Job, path, ["--steps", "1", "--rows.1.low", "0.5"])
    assert loaded.config.rows == [Plain(), Clip(low=0.5)]
    assert (loaded.origin["rows.1.low"], loaded.origin["rows.0.kind"]) == ("cli", "rows.toml")


def test_none_clears_an_optional_setting() -> None:
    assert job("--train.clip_norm", "none").train.clip_norm is None


def test_a_file_kind_that_is_no_field_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('kind = "job"\nsteps = 1\n')
    assert load_settings(Job, path, []).config.steps == 1


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        job().steps = 4


def test_an_unknown_key_names_the_file_and_the_nearest_name(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("steps = 1\n[train]\nlearning = 1\nbeta = [1, 2]\n")
    told = complaint("--train.learning", "2", file=path)
    assert told.startswith(
        "unknown flag --train.learning; known keys of train: betas, clip_norm, lr"
    )
    path.write_text("steps = 1\n[train]\nbeta = [1, 2]\n")
    assert (
        complaint(file=path) == 'unknown key "train.beta" in job.toml; did you mean "train.betas"?'
    )


def test_an_unknown_key_in_a_variant_is_compared_with_that_variants_keys() -> None:
    told = complaint("--steps", "1", "--loss.kind", "plain", "--loss.wieght", "1")
    assert told == 'unknown flag --loss.wieght; did you mean "loss.weight"?'
    assert "known keys of loss: kind, weight" in complaint(
        "--steps", "1", "--loss.kind", "plain", "--loss.low", "1"
    )


def test_a_known_key_without_its_table_is_found() -> None:
    assert complaint("--steps", "1", "--lr", "1") == 'unknown flag --lr; did you mean "train.lr"?'


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--steps", "true"], "steps = true: should be a whole number"),
        (["--steps", "1.5"], "steps = 1.5: should be a whole number"),
        (["--steps", '"1"'], 'steps = "1": should be a whole number'),
        (["--train.lr", "true"], "train.lr = true: should be a number"),
        (["--train.lr", "fast"], 'train.lr = "fast": should be a number'),
        (["--train.lr", "0"], "train.lr = 0: should be greater than 0.0"),
        (["--fast", "1"], "fast = 1: should be true or false"),
        (["--train", "3"], "train = 3: should be a table"),
        (["--train.lr.x", "3"], "train.lr = {x = 3}: should be a number"),
        (["--train.betas", "[0.5]"], "train.betas = [0.5]: should have 2 or more items"),
        (["--ends", "[1]"], "ends.0 = 1: should be text"),
        (["--shade", "grey"], 'shade = "grey": should be "dark" or "light"'),
        (["--loss.kind", "hinge"], 'loss.kind = "hinge": should be one of "clip", "plain"'),
        (["--rows", "[{low = 1}]"], 'rows.0.kind = none: should be one of "clip", "plain"'),
        (["--name", "a b"], 'name = "a b": a name has no spaces'),
        (["--suites.dev.low", "101"], "suites.dev: low is above top"),
        (["--rows", "[]", "--rows.0.low", "1"], "unknown flag --rows.0.low: there is no '0' in []"),
        (
            ["steps"],
            "cannot read 'steps': settings are given as --key value, such as --train.lr 0.001",
        ),
        (["--"], "cannot read '--': settings are given as --key value, such as --train.lr 0.001"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(flags: list[str], told: str) -> None:
    assert complaint(*(flags if "--steps" in flags else ["--steps", "1", *flags])) == told


def test_a_wrong_value_names_its_file(file: Path) -> None:
    file.write_text('steps = "many"\n')
    assert complaint(file=file) == 'steps = "many" in job.toml: should be a whole number'


def test_a_missing_key_is_named() -> None:
    assert complaint() == '"steps" is missing: set it in the file or with --steps'


def test_of_several_mistakes_the_first_is_told_and_the_rest_counted() -> None:
    told = complaint("--steps", "x", "--fast", "2", "--nam", "y")
    assert told == 'steps = "x": should be a whole number (and 2 more mistakes)'
    assert complaint("--steps", "x", "--fast", "2").endswith("(and 1 more mistake)")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    assert complaint(file=path) == f"there is no file {path}"
    path.write_text("steps = 1\nname = \n")
    assert complaint(file=path) == f"broken TOML in {path} line 2: invalid value"
    path.write_text('name = "a')
    assert complaint(file=path).startswith(f"broken TOML in {path} at its end: ")
    path.write_bytes(b"\xff\xfe")
    assert complaint(file=path) == f"{path} is not UTF-8 text, so it is not a TOML file"
    assert complaint(file=tmp_path) == f"cannot read {tmp_path}: Is a directory"


def test_the_first_line_says_the_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('# what it shows\nkind = "rl"\ntask.name = "game24"\nsteps = 1\n')
    assert kind_of(path) == "rl"
    for text in ('steps = 1\nkind = "rl"\ntask.name = "game24"\n', "kind = 3\n", ""):
        path.write_text(text)
        with pytest.raises(ConfigError, match="its first line should be like"):
            kind_of(path)


def test_show_aligns_every_key_with_its_value_and_origin() -> None:
    class Small(Config):
        steps: int = 5
        train: Train = Train()

    assert show_settings(load_settings(Small, None, ["--train.lr", "16"])) == (
        "steps           = 5            # default\n"
        "train.lr        = 16.0         # cli\n"
        "train.betas     = [0.9, 0.95]  # default\n"
        "train.clip_norm = 1.0          # default\n"
    )


def test_an_empty_config_shows_nothing() -> None:
    assert show_settings(LoadedSettings(config=Config(), origin={})) == ""


def test_written_settings_load_back_equal(tmp_path: Path) -> None:
    config = Job(
        steps=3,
        name='q"\\\u007f\tä\n',
        out=Path("a/b"),
        ends=["x"],
        train=Train(lr=1e-7, clip_norm=None),
        loss=Plain(weight=1e300),
        suites={"a b": Suite(samples=1), "c": Suite()},
        rows=[Clip(low=2.0), Plain()],
    )
    path = tmp_path / "back.toml"
    path.write_text(to_toml(config).replace("a b", "a_b"))
    assert load_settings(Job, path, []).config.suites.keys() == {"a_b", "c"}
    path.write_text(to_toml(config))
    assert load_settings(Job, path, []).config == config


@given(
    name=st.text().filter(lambda text: " " not in text),
    lr=st.floats(min_value=1e-300, allow_infinity=False),
    ends=st.lists(st.text()),
)
def test_any_text_and_number_survive_the_round_trip(name: str, lr: float, ends: list[str]) -> None:
    import tomllib

    config = Job(steps=1, name=name, train=Train(lr=lr), ends=ends)
    assert Job.model_validate(tomllib.loads(to_toml(config))) == config


def test_differences_name_the_key_and_both_values() -> None:
    old, new = (
        Job(steps=1, train=Train(lr=0.001)),
        Job(steps=1, train=Train(lr=0.002), loss=Plain()),
    )
    assert differences(old, new) == [
        "train.lr: 0.001 -> 0.002",
        'loss.kind: "clip" -> "plain"',
        "loss.low: 0.2 -> (not there)",
        "loss.high: 0.28 -> (not there)",
        "loss.weight: (not there) -> 1.0",
    ]
    assert differences(old, old) == []
