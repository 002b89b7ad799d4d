"""A second engine, that of docs/add_an_engine.md: the page's own test, and RL from a settings file."""

import copy
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from small import write

from whet.config import load_settings
from whet.engine.base import Detokenize, Engine, Request, SamplingParams
from whet.engine.native import NativeConfig
from whet.errors import ConfigError
from whet.models.transformer import Transformer
from whet.pipeline.pipeline_config import PipelineConfig
from whet.pipeline.smoke import shrink, write_smoke_inputs
from whet.plan.predict import print_plan
from whet.recipes.rl import RLConfig, rl
from whet.store.run import RunStore
from whet.testing.contracts import check_engine
from whet.testing.tiny import tiny_model, tiny_tokenizer
from whet.train.policy import build_policy
from whet.train.selftest import measure_exactness
from whet.types import Completion

PAGE = (Path(__file__).parents[2] / "docs" / "add_an_engine.md").read_text()
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
PLAIN = ModuleType("plain")
# Not the page's path: pydantic would look for the code of the classes at the same lines there.
exec(compile(BLOCKS["python"], "<add_an_engine>", "exec"), PLAIN.__dict__)


def zeroed(model: Transformer) -> Transformer:
    own = copy.deepcopy(model).requires_grad_(False)
    for weight in own.parameters():
        weight.zero_()
    return own


class RemoteConfig(PLAIN.PlainConfig):  # type: ignore[name-defined, misc]
    """The page's engine with weights of its own, which are none before it is given some."""

    def build(
        self,
        model: Transformer,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
    ) -> Engine:
        engine: Engine = super().build(zeroed(model), stop_tokens=stop_tokens)
        return engine


@pytest.fixture(autouse=True)
def _in_a_folder_with_the_file_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "plain.py", BLOCKS["python"])


def load_file(folder: Path, *flags: str) -> PipelineConfig:
    file = write(folder / "rl.toml", BLOCKS["TOML"])
    return load_settings(PipelineConfig, file, flags).config


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
    assert measure_exactness(policy).largest_gap < 1e-4


def test_the_contract_hands_weights_to_an_engine_that_has_none() -> None:
    model = tiny_model()
    own = zeroed(model)
    engine = PLAIN.PlainEngine(own, 64, frozenset({3}))

    check_engine(engine, [np.array([1, 2], dtype=np.int32)], weights=model.named_weights())

    assert torch.equal(own.norm.weight, model.norm.weight)


class DeafEngine(PLAIN.PlainEngine):  # type: ignore[name-defined, misc]
    """Takes requests with top_k, top_p, min_p and stop strings, and ignores some of these."""

    ignored: frozenset[str] = frozenset()

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        return super().generate(map(self._ignore, requests))  # type: ignore[no-any-return]

    def _ignore(self, request: Request) -> Request:
        sampling = SamplingParams(**request.sampling.model_dump(exclude=set(self.ignored)))
        return replace(request, sampling=sampling)


@pytest.mark.parametrize(
    ("ignored", "promise"),
    [("top_k", "with {'top_k': 1}"), ("top_p", "top_p"), ("stop", "with the stop string")],
)
def test_an_engine_that_ignores_a_setting_breaks_the_contract(ignored: str, promise: str) -> None:
    engine = DeafEngine(tiny_model(), 64, frozenset({3}))
    engine.ignored = frozenset({ignored})

    with pytest.raises(AssertionError, match=promise):
        check_engine(engine, [np.array([1, 2], dtype=np.int32)], detokenize=tiny_tokenizer().decode)


def test_rl_samples_every_step_by_the_engine_that_its_file_names(tmp_path: Path) -> None:
    small = shrink(load_file(tmp_path).stages, tmp_path)
    cfg = PipelineConfig.model_validate({"stages": small}).stages["rl"]
    assert isinstance(cfg, RLConfig)
    assert cfg.engine.kind == "plain.py:PlainConfig" and cfg.engine.max_model_len is None
    write_smoke_inputs({"rl": cfg}, tmp_path)

    with RunStore.open(tmp_path / "run", cfg, {}, resume=False) as run:
        rl(cfg, run)
        rows = [row for row in run.metrics() if "policy/engine_gap" in row]
        versions = [
            {r.completion.policy_version for r in run.rollouts("train", n)} for n in (1, 2, 3)
        ]

    assert versions == [{0}, {1}, {2}]
    assert len(rows) == 3 and all(row["policy/engine_gap"] < 1e-4 for row in rows)
    assert all(row["train/grad_norm"] > 0 for row in rows), "the weights move from step to step"


def test_settings_of_another_engine_are_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r'engine.kind = "plane": should be one of "native", "fleet", "vllm"'
    ):
        load_file(tmp_path, "--stages.rl.engine.kind", "plane")
    with pytest.raises(ConfigError, match=r"PlainConfig': unknown key \"kv_cache_gb\""):
        load_file(tmp_path, "--stages.rl.engine.kv_cache_gb", "2")
    with pytest.raises(ConfigError, match=r"max_num_seqs = 3 has no effect: the plain engine runs"):
        load_file(tmp_path, "--stages.rl.engine.max_num_seqs", "3")
    with pytest.raises(
        ConfigError, match=r"should name a class that inherits from EngineConfig \(whet/engine/base"
    ):
        load_file(tmp_path, "--stages.rl.engine.kind", "plain.py:PlainEngine")
    cfg = load_file(tmp_path, "--stages.rl.engine.kind", "native").stages["rl"]
    assert isinstance(cfg, RLConfig) and cfg.engine == NativeConfig(max_model_len=512)


def test_a_plan_leaves_out_what_an_engine_does_not_predict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = load_file(tmp_path).stages["rl"]
    policy = build_policy(tiny_model(), tiny_tokenizer(), NativeConfig(), name="tiny")
    policy.save(tmp_path / "model")
    stage = cfg.with_inputs({"model.path": str(tmp_path / "model")})

    assert print_plan({"rl": stage}, gpu="h200", prompt_tokens=64, new_tokens=None)

    printed = capsys.readouterr().out
    assert (
        "rl, sample: not counted" in printed
        and "'plain.py:PlainConfig' predicts nothing" in printed
    )
