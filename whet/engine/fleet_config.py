"""Settings of fleets: workers are native engines, or servers."""

import pickle
from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, field_validator

from whet.endpoints.client import check_url
from whet.endpoints.stream import allow_open_files
from whet.engine.base import Detokenize, EngineConfig
from whet.engine.fleet import Fleet
from whet.engine.native import NativeConfig
from whet.engine.process_worker import ProcessWorker
from whet.engine.server_worker import ServerWorker
from whet.engine.worker import EngineSpec, Worker
from whet.errors import ConfigError
from whet.models.transformer import Transformer
from whet.world import get_world


class FleetSettings(EngineConfig):
    """Settings of all engines made of workers."""

    placement: Literal["disaggregated", "collocated"] = "disaggregated"
    """Where workers run: on their own devices, so that `lag` overlaps sampling and training; or on
    the learner's, taking turns with it."""
    wait: float = Field(default=600.0, gt=0)
    """Seconds without a response after which a worker counts as lost; set it above the time that
    the longest response takes."""
    scratch: str | None = None
    """Folder for weights on their way to workers; servers on other machines need a shared one; none
    is this machine's memory."""

    @property
    def is_central(self) -> bool:
        return True

    @property
    def can_overlap(self) -> bool:
        return self.placement == "disaggregated"

    @abstractmethod
    def build_workers(
        self, model: Transformer, *, stop_tokens: frozenset[int], detokenize: Detokenize | None
    ) -> Sequence[Worker]:
        """Make the workers; they start with the first weights."""

    def build(
        self,
        model: Transformer,
        *,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None = None,
    ) -> Fleet:
        workers: Sequence[Worker] = ()
        if get_world().is_rank_zero:
            workers = self.build_workers(model, stop_tokens=stop_tokens, detokenize=detokenize)
        return Fleet(
            workers,
            model,
            context=self.max_model_len,
            wait=self.wait,
            scratch=self.scratch,
            is_collocated=self.placement == "collocated",
        )


class FleetConfig(FleetSettings):
    """Several native engines, as processes of this machine or actors of a Ray cluster."""

    kind: Literal["fleet"] = "fleet"

    workers: int = Field(default=2, ge=1, le=4096)
    """Native engines, each with up to `max_num_seqs` requests and its own weights."""
    ray: str | None = None
    """Address of the Ray cluster that runs the workers, `auto` for this machine's; none starts
    processes here."""
    kv_cache_gb: float | None = Field(default=None, gt=0)
    """KV cache of each worker on a GPU in GiB; none is enough for full slots, up to 90 % of free
    memory."""

    def without_effect(self) -> dict[str, str]:
        reason = "Ray carries weights from node to node"
        return {} if self.ray is None else {"scratch": reason}

    def build_workers(
        self, model: Transformer, *, stop_tokens: frozenset[int], detokenize: Detokenize | None
    ) -> Sequence[Worker]:
        specs = [
            EngineSpec(
                model=model.cfg,
                dtype=model.dtype,
                device=device,
                num_threads=max(1, torch.get_num_threads() // self.workers),
                engine=NativeConfig(
                    max_num_seqs=self.max_num_seqs,
                    max_model_len=self.max_model_len,
                    kv_cache_gb=self.kv_cache_gb,
                ),
                stop_tokens=stop_tokens,
                detokenize=detokenize,
            )
            for device in self._devices(model.device)
        ]
        try:
            pickle.dumps(specs[0])
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(f"the tokenizer cannot be sent to a worker: {error}") from error
        if self.ray is not None:
            try:
                # Ray is optional, and imported nowhere else.
                from whet.engine.ray_worker import build_ray_workers  # noqa: PLC0415
            except ModuleNotFoundError as error:
                raise ConfigError(
                    "engine.ray needs the package ray, which is not installed: pip install "
                    "'whet[ray]', or leave engine.ray out to start processes on this machine"
                ) from error
            return build_ray_workers(self.ray, specs, wait=self.wait)
        return [
            ProcessWorker(f"worker {number}", spec, wait=self.wait)
            for number, spec in enumerate(specs)
        ]

    def _devices(self, learner: torch.device) -> list[str]:
        """Choose the device of each worker; Ray shows an actor only its own GPU."""
        if learner.type == "cpu" or self.ray is not None:
            return [learner.type] * self.workers
        if self.placement == "collocated":
            return [str(learner)] * self.workers
        first = get_world().size
        count = torch.cuda.device_count()
        if first + self.workers > count:
            raise ConfigError(
                f'engine.workers = {self.workers} and engine.placement = "disaggregated" need '
                f"{self.workers} GPUs besides the learner's, and there are {count - first}: set "
                'fewer workers, or engine.placement = "collocated"'
            )
        return [f"cuda:{first + number}" for number in range(self.workers)]


class VllmConfig(FleetSettings):
    """vLLM or SGLang servers (docs/fleet.md); whet does not start them."""

    kind: Literal["vllm"] = "vllm"

    urls: tuple[str, ...] = Field(min_length=1)
    """Addresses of the servers, such as `http://localhost:8000`; each gets up to `max_num_seqs`
    requests at once."""

    @field_validator("urls")
    @classmethod
    def _are_web(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(urls)) < len(urls):
            raise ValueError("names a server twice")
        return tuple(check_url(url) for url in urls)

    def build_workers(
        self, model: Transformer, *, stop_tokens: frozenset[int], detokenize: Detokenize | None
    ) -> Sequence[Worker]:
        allow_open_files(self.max_num_seqs * len(self.urls))
        longest = model.cfg.max_positions
        return [
            ServerWorker(
                url,
                num_slots=self.max_num_seqs,
                context=min(self.max_model_len or longest, longest),
                wait=self.wait,
                stop_tokens=stop_tokens,
                detokenize=detokenize,
                sleeps=self.placement == "collocated",
            )
            for url in self.urls
        ]
