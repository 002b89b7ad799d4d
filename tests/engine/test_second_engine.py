"""A second engine, that of docs/add_an_engine.md: the page's own test, and RL from a settings file."""

import copy
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
from pydantic import Field

from whet.config import Loaded, load_settings, to_table
from whet.engine.base import Detokenize, Engine
from whet.engine.native import NativeConfig
from whet.errors import ConfigError
from whet.models.transformer import Transformer
from whet.pipeline.predict import print_plan
from whet.pipeline.smoke import shrink, write_stand_ins
from whet.recipes.rl import RLConfig, rl
from whet.store.run import RunStore
from whet.testing.tiny import tiny_model, tiny_tokenizer
from whet.train.policy import build_policy
from whet.train.selftest import check_exact

PAGE = (Path(__file__).parents[2] / "docs" / "add_an_engine.md").read_text()
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
PLAIN = ModuleType("whet.engine.plain")
exec(compile(BLOCKS["python"], "docs/add_an_engine.md", "exec"), PLAIN.__dict__)


class RemoteConfig(PLAIN.PlainConfig):  # type: ignore[name-defined, misc]
    """The page's engine with weights of its own, which are none before it is given some."""

    def build(
        self,
        model: Transformer,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
    ) -> Engine:
        own = copy.deepcopy(model).requires_grad_(False)
        for weight in own.parameters():
            weight.zero_()
        engine: Engine = super().build(own, stop_tokens=stop_tokens)
        return engine


class TwoEngineRLConfig(RLConfig):
    engine: Annotated[NativeConfig | RemoteConfig, Field(discriminator="kind")] = NativeConfig()  # type: ignore[assignment]


def load_file(folder: Path, *flags: str) -> Loaded[TwoEngineRLConfig]:
    file = folder / "rl.toml"
    file.write_text(BLOCKS["TOML"])
    return load_settings(TwoEngineRLConfig, file, flags)


def test_the_engine_of_the_page_passes_the_test_of_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, PLAIN.__name__, PLAIN)
    names: dict[str, object] = {}
    exec(compile(BLOCKS["py"], "docs/add_an_engine.md", "exec"), names)
    tests = [item for name, item in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        assert callable(test)
        test()


def test_an_engine_with_weights_of_its_own_has_them_before_the_first_request() -> None:
    model = tiny_model(vocab_size=tiny_tokenizer().vocab_size)
    policy = build_policy(model, tiny_tokenizer(), RemoteConfig(), name="remote")
    assert check_exact(policy).largest_gap < 1e-4


def test_rl_samples_every_step_by_the_engine_that_its_file_names(tmp_path: Path) -> None:
    table = shrink({"stages": {"rl": to_table(load_file(tmp_path).config)}}, tmp_path)["stages"]
    assert isinstance(table, dict)
    cfg = TwoEngineRLConfig.model_validate(table["rl"])
    assert cfg.engine.kind == "plain" and cfg.engine.context is None
    write_stand_ins({"rl": cfg}, tmp_path)

    with RunStore.open(tmp_path / "run", cfg, {}, resume=False) as run:
        rl(cfg, run)
        rows = [row for row in run.metrics() if "policy/engine_gap" in row]
        versions = [{r.completion.version for r in run.rollouts("train", n)} for n in (1, 2, 3)]

    assert versions == [{0}, {1}, {2}]
    assert len(rows) == 3 and all(row["policy/engine_gap"] < 1e-4 for row in rows)
    assert all(row["train/grad_norm"] > 0 for row in rows), "the weights move from step to step"


def test_settings_of_another_engine_are_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r'engine.kind = "plane": should be one of "native", "plain"'
    ):
        load_file(tmp_path, "--engine.kind", "plane")
    with pytest.raises(ConfigError, match=r"engine\.kv_gb"):
        load_file(tmp_path, "--engine.kv_gb", "2")
    assert load_file(tmp_path, "--engine.kind", "native").config.engine == NativeConfig(context=512)


def test_a_plan_leaves_out_what_an_engine_does_not_predict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = load_file(tmp_path).config
    policy = build_policy(tiny_model(), tiny_tokenizer(), NativeConfig(), name="tiny")
    policy.save(tmp_path / "model")
    stage = cfg.with_inputs({"model.path": str(tmp_path / "model")})

    assert print_plan({"rl": stage}, gpu="h200", prompt=64, tokens=None)

    printed = capsys.readouterr().out
    assert "rl, sample: not counted" in printed and "'plain' predicts nothing" in printed
