"""Alternative settings for an update, from flags and files.

Only settings that change what an update makes of stored rollouts can be replaced.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet import toml
from whet.algos.algorithm import needs_critic
from whet.algos.settings import resolve_preset
from whet.config import load_settings, to_table
from whet.errors import ConfigError
from whet.recipes.rl import RLConfig
from whet.types import Json

REPLACEABLE = (
    "algo",
    "train",
    "reward",
    "critic",
    "dynamic_sampling.max_extra_problems",
    "dynamic_sampling.mask_unfinished",
)
"""Settings that an update reads, as keys or the tables around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Settings to replace, by key, written as on a command line."""

    name: str
    settings: Mapping[str, str]

    def apply(self, cfg: RLConfig) -> RLConfig:
        """Replace settings of a run; refuse changes that would need new rollouts."""
        for key in self.settings:
            if not any(f"{key}.".startswith(f"{known}.") for known in REPLACEABLE):
                raise ConfigError(
                    f"{self.name}: {key} does not change what an update does with stored "
                    f"rollouts; settings that do: {', '.join(REPLACEABLE)}"
                )
        flags = [f"--{key}={text}" for key, text in self.settings.items()]
        try:
            table = to_table(cfg, keep_none=False)
            other = load_settings(RLConfig, None, flags, defaults=table).config
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        wants_critic, has_critic = (needs_critic(resolve_preset(c.algo)) for c in (other, cfg))
        if wants_critic and not has_critic:
            raise ConfigError(
                f"{self.name}: it needs the values of a critic, and the run trained none"
            )
        return other


def read_alternatives(
    settings: Sequence[str], named: Sequence[str], grid: Path | None
) -> list[Alternative]:
    """Read alternatives: all `--set KEY=VALUE` are one, each `--try "NAME: KEY=VALUE …"` is one,
    and so is each table of a TOML file."""
    alternatives = []
    if settings:
        words = [word for text in settings for word in _split(text, "--set")]
        alternatives.append(Alternative(name=" ".join(words), settings=_read_words(words, "--set")))
    for text in named:
        name, colon, rest = text.partition(":")
        if not colon or not name.strip() or not rest.strip():
            raise ConfigError(
                f'--try {text!r} should be a name and settings, like "dapo: algo.name=dapo"'
            )
        words = _split(rest, "--try")
        alternatives.append(Alternative(name=name.strip(), settings=_read_words(words, "--try")))
    alternatives += _read_grid(grid) if grid is not None else []
    names = [alternative.name for alternative in alternatives]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"two alternatives are called {twice!r}")
    return alternatives


def _read_grid(file: Path) -> list[Alternative]:
    alternatives = []
    for name, table in toml.read(file).items():
        if not isinstance(table, dict) or not table:
            raise ConfigError(
                f'{file}: {name} should be a table of settings, like [{name}] with algo.name = "…"'
            )
        settings = {key: _write_value(item) for key, item in toml.flatten(table).items()}
        alternatives.append(Alternative(name=name, settings=settings))
    if not alternatives:
        raise ConfigError(f"{file} has no alternative: each is a table of settings with its name")
    return alternatives


def _split(text: str, flag: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"cannot read {flag} {text!r}: {error}") from error


def _read_words(words: Sequence[str], flag: str) -> dict[str, str]:
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value or not all(key.split(".")):
            raise ConfigError(f"{flag} {word!r} should be KEY=VALUE, like algo.name=dr_grpo")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def _write_value(item: Json) -> str:
    return item if isinstance(item, str) else toml.literal(item)
