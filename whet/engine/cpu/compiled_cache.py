"""Decode steps of small models on a CPU, each one call of a C kernel.

The kernel samples from the full distribution. Rows with top-k, top-p or min-p are sampled by torch,
from the kernel's final hidden states.

Shapes: B rows in use, L layers, S prompts, G key/value heads, C tokens of the longest prompt, D
head size, H hidden, O and I the outputs and inputs of a weight, Q rows that move.
"""

import ctypes
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn

from whet.engine.cpu import dense_cache
from whet.engine.cpu.dense_cache import DenseCache, DensePrefill
from whet.engine.input_batch import HostTransfer, InputBatch
from whet.engine.kv_cache import KVCache
from whet.engine.paged_cache import build_paged_cache
from whet.engine.scheduler import PrefillPass
from whet.errors import EngineError
from whet.kernels import LANES
from whet.kernels.c import library as c_library
from whet.models.lora import LoraLinear
from whet.models.transformer import Layer, Transformer
from whet.types import Indices

FEATURES = frozenset({"tied", "qkv_bias", "qk_norm", "rope_scaling"})
"""The `ModelConfig.features` that decode.c supports."""

MAX_BYTES = 2**26
"""Largest model that decodes in C: every core reads all weights, so they should fit its caches."""
MIN_ROWS_PER_THREAD = 32
"""Fewer rows are not worth another thread."""

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64


def _fields(ctype: type, names: str) -> list[tuple[str, type]]:
    return [(name, ctype) for name in names.split()]


class _Layer(ctypes.Structure):
    _fields_ = _fields(_POINTER, "input_norm qkv qkv_bias q_norm k_norm out post_norm gate_up down")


class _Model(ctypes.Structure):
    _fields_ = (
        *_fields(_INT, "num_layers hidden inner heads groups size vocab"),
        ("eps", ctypes.c_float),
        *_fields(_POINTER, "embed rope norm head layers"),
    )


class _Cache(ctypes.Structure):
    _fields_ = (
        *_fields(_POINTER, "keys prompt"),
        *_fields(_INT, "prompts columns length"),
        ("blocks", _POINTER),
        *_fields(_INT, "num_blocks slots"),
    )


class _Rows(ctypes.Structure):
    _fields_ = (
        *_fields(_INT, "used threads columns"),
        *_fields(_POINTER, "token count live first fetched limit seed temperature"),
        *_fields(_POINTER, "output slot prompt length is_stop hidden"),
    )


def build_cpu_cache(model: Transformer, *, slots: int, context: int) -> KVCache:
    """Use the C kernel for small float32 models with supported features, else torch.

    The paged cache supports every feature: it leaves attention to `whet.kernels.attention`.
    """
    if not model.cfg.features <= dense_cache.FEATURES:
        return build_paged_cache(model, slots=slots, context=context)
    library = c_library.library() if _is_supported(model) else None
    if library is None:
        return DenseCache(model, slots=slots, context=context)
    return CompiledCache(model, library, slots=slots, context=context)


def _is_supported(model: Transformer) -> bool:
    cfg = model.cfg
    if type(model) is not Transformer or model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    if any(isinstance(module, LoraLinear) for module in model.modules()):
        return False
    num_bytes = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    sizes = cfg.hidden_size, cfg.intermediate_size, cfg.head_dim
    return num_bytes <= MAX_BYTES and cfg.features <= FEATURES and not any(n % LANES for n in sizes)


class CompiledCache(DenseCache):
    """The dense cache in the kernel's layout, with a copy of the weights.

    Keys are transposed: those of responses in the blocks, those of prompts in a copy. A row that
    moves keeps its slot in the blocks, given by `slot_R`.
    """

    def __init__(
        self, model: Transformer, library: ctypes.CDLL, *, slots: int, context: int
    ) -> None:
        super().__init__(model, slots=slots, context=context)
        self.library = library
        self.panel = int(library.decode_panel())
        self.slot_R = np.arange(slots)
        self.keys_LSGDC = torch.empty(0)
        self._new_prompts: set[int] = set()
        self._batch: InputBatch | None = None
        self._alive: list[Tensor] = []

    def refresh_weights(self) -> None:
        """Copy the current weights into the layout of the kernel."""
        self._alive = []
        cfg = self.model.cfg
        assert self.model.dtype == torch.float32, "a model stays what it was when the engine began"
        layers = [self._layer(layer) for layer in self.model.layers if isinstance(layer, Layer)]
        self._layers = (_Layer * len(layers))(*layers)
        self.shape = _Model(
            num_layers=len(layers),
            hidden=cfg.hidden_size,
            inner=cfg.intermediate_size,
            heads=cfg.num_heads,
            groups=cfg.num_kv_heads,
            size=cfg.head_dim,
            vocab=cfg.vocab_size,
            eps=cfg.norm_eps,
            embed=self._address(self.model.embed.weight),
            rope=self._address(self.model.rope_CD),
            norm=self._address(self.model.norm.weight),
            head=self._pack(self.model.head_weight_VH),
            layers=ctypes.addressof(self._layers),
        )

    def prefill(self, chunks: PrefillPass, transfer: HostTransfer) -> DensePrefill:
        self._new_prompts.update(self.allocator.prompt_R[chunks.row_T].tolist())
        return super().prefill(chunks, transfer)

    def move(self, source_Q: Indices, target_Q: Indices) -> None:
        self.slot_R[source_Q], self.slot_R[target_Q] = self.slot_R[target_Q], self.slot_R[source_Q]

    def decode_window(
        self, batch: InputBatch, num_rows: int, *, steps: int, longest: int, is_truncated: bool
    ) -> int:
        if is_truncated:
            batch.draw_uniforms(slice(0, num_rows))
        for _ in range(steps):
            if is_truncated:
                self._step_truncated(batch, num_rows)
            else:
                self.step(batch, num_rows)
        return num_rows

    def _step_truncated(self, batch: InputBatch, size: int) -> None:
        """Sample rows with top-k, top-p or min-p by torch, from the kernel's final states.

        Other rows keep their token: it must not depend on whether a truncated row runs beside it.
        """
        used = slice(0, size)
        hidden_BH = torch.empty(size, self.model.cfg.hidden_size)
        self.step(batch, size, hidden_BH)
        is_truncated_B = batch.sampling_of(used).is_truncated_B
        chosen = batch.sample(used, self.model.logits(hidden_BH), True)
        token_B, logprob_B = (
            torch.where(is_truncated_B, drawn_B, kept_B)
            for drawn_B, kept_B in zip(chosen, batch.newest_tokens(used), strict=True)
        )
        batch.append_tokens(used, token_B, logprob_B)

    def step(self, batch: InputBatch, size: int, hidden_BH: Tensor | None = None) -> None:
        """Sample a token for each of the first rows and append it.

        With `hidden_BH`, fill it with final states instead, and leave the tokens in the output
        buffer for the caller to append.
        """
        if batch is not self._batch:
            self._batch = batch
            self._rows = self._describe_rows(batch)
        self._rows.used = size
        self._rows.threads = max(1, min(torch.get_num_threads(), size // MIN_ROWS_PER_THREAD))
        self._rows.hidden = None if hidden_BH is None else hidden_BH.data_ptr()
        if self._new_prompts:
            self._transpose_keys()
            self._cache = self._describe_cache()
        while needed := self.library.decode_step(
            *map(ctypes.byref, (self.shape, self._cache, self._rows))
        ):
            if needed < 0:
                raise EngineError(
                    "there is no memory left for a decode step; lower engine.max_num_seqs"
                )
            self.reserve_blocks(needed)
            self._cache = self._describe_cache()

    def _describe_rows(self, batch: InputBatch) -> _Rows:
        """Look up addresses once: the tensors of the batch never move."""
        ints = batch.token_R, batch.count_R, batch.live_R, batch.prompt_end_R, batch.fetched_R
        tensors = *ints, batch.limit_R, batch.seed_R, batch.temperature_R, batch.output_RW
        arrays = self.slot_R, self.allocator.prompt_R, self.allocator.length_S
        addresses = *(x.data_ptr() for x in tensors), *(x.ctypes.data for x in arrays)
        return _Rows(0, 1, batch.columns, *addresses, batch.is_stop_V.data_ptr())

    def _describe_cache(self) -> _Cache:
        self._addresses = (_POINTER * len(self.blocks))(
            *(block.data_ptr() for block in self.blocks)
        )
        return _Cache(
            keys=self.keys_LSGDC.data_ptr(),
            prompt=self.prompts.data_ptr(),
            prompts=self.prompts.shape[2],
            columns=self.keys_LSGDC.shape[4],
            length=self.prompts.shape[4],
            blocks=ctypes.addressof(self._addresses),
            num_blocks=len(self.blocks),
            slots=len(self.slot_R),
        )

    def _transpose_keys(self) -> None:
        """Copy the keys of prompts cached since the last step."""
        keys_LSGCD = self.prompts[:, 0]
        line_S = torch.tensor(sorted(self._new_prompts))
        layers, prompts, groups, length, size = keys_LSGCD.shape
        padded_shape = layers, prompts, groups, size, ceil(length / LANES) * LANES
        if self.keys_LSGDC.shape != padded_shape:
            # Zeros: keys past the end of a prompt are read before masking, so none may be NaN.
            self.keys_LSGDC = keys_LSGCD.new_zeros(padded_shape)
            line_S = torch.arange(prompts)
        self.keys_LSGDC[:, line_S, :, :, :length] = keys_LSGCD[:, line_S].transpose(3, 4)
        self._new_prompts.clear()

    def _layer(self, layer: Layer) -> _Layer:
        odd = -len(layer.qkv.weight) % self.panel
        bias = layer.qkv.bias
        norms = layer.q_norm, layer.k_norm
        q_norm, k_norm = (self._address(None if norm is None else norm.weight) for norm in norms)
        return _Layer(
            input_norm=self._address(layer.input_norm.weight),
            qkv=self._pack(layer.qkv.weight),
            qkv_bias=self._address(None if bias is None else nn.functional.pad(bias, (0, odd))),
            q_norm=q_norm,
            k_norm=k_norm,
            out=self._pack(layer.out.weight),
            post_norm=self._address(layer.post_norm.weight),
            gate_up=self._pack(layer.mlp.gate_up.weight),
            down=self._pack(layer.mlp.down.weight),
        )

    def _pack(self, weight_OI: Tensor) -> int | None:
        n, m = weight_OI.shape
        to = weight_OI.new_empty(ceil(n / self.panel) * self.panel * m)
        self.library.decode_pack(self._address(weight_OI), n, m, to.data_ptr())
        return self._address(to)

    def _address(self, x: Tensor | None) -> int | None:
        """Return the address of a tensor, and keep it alive while the kernel may read it."""
        if x is None:
            return None
        self._alive.append(x.detach().contiguous())
        return self._alive[-1].data_ptr()
