"""Decode steps of small models on a CPU by the C kernel: one call per step.

The kernel draws from whole distributions. Rows that cut theirs are drawn by torch, from the
kernel's final states.

Shapes: B rows in use, K layers, P prompts, G key/value heads, L tokens of the longest prompt, D
head size, N and M the sizes of a weight.
"""

import ctypes

import numpy as np
import torch
from torch import Tensor, nn

from whet.engine.cpu import dense_cache
from whet.engine.cpu.dense_cache import DenseCache, Prefill
from whet.engine.paged_cache import build_paged_cache
from whet.engine.row_state import HostTransfer, Rows
from whet.engine.runner import KVCache, Layout
from whet.engine.scheduler import Indices
from whet.errors import EngineError
from whet.kernels import LANES
from whet.kernels.c import library as c_library
from whet.models.lora import LoraLinear
from whet.models.transformer import Layer, Transformer

FEATURES = frozenset({"tied", "qkv_bias", "qk_norm", "rope_scaling"})
"""Of `ModelConfig.features`, those with which decode.c is right."""

MOST_BYTES = 2**26
"""Largest weights that every core reads for itself: what its caches hold, or nearly."""
FEWEST_ROWS = 32
"""Rows that are worth a thread."""

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


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
        *_fields(_POINTER, "token count live first base limit seed temperature"),
        *_fields(_POINTER, "report slot prompt length is_stop hidden"),
    )


def build_cpu_cache(model: Transformer, *, slots: int, context: int) -> KVCache:
    """Use the C kernel for small float32 models whose features it knows, else torch.

    Pages know every feature: they leave attention to `whet.kernels.attention`.
    """
    if not model.cfg.features <= dense_cache.FEATURES:
        return build_paged_cache(model, slots=slots, context=context)
    library = c_library.library() if _is_fit(model) else None
    if library is None:
        return DenseCache(model, slots=slots, context=context)
    return CompiledCache(model, library, slots=slots, context=context)


def _is_fit(model: Transformer) -> bool:
    cfg = model.cfg
    if type(model) is not Transformer or model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    if any(isinstance(module, LoraLinear) for module in model.modules()):
        return False
    num_bytes = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    sizes = cfg.hidden_size, cfg.intermediate_size, cfg.head_dim
    return (
        num_bytes <= MOST_BYTES and cfg.features <= FEATURES and not any(n % LANES for n in sizes)
    )


class CompiledCache(DenseCache):
    """The dense cache as the kernel reads it, with a copy of the weights in its layout.

    Keys lie transposed: those that rows add in their blocks, those of prompts in a copy. Rows that
    move keep their place in the blocks, and `slot_R` says which it is.
    """

    def __init__(
        self, model: Transformer, library: ctypes.CDLL, *, slots: int, context: int
    ) -> None:
        super().__init__(model, slots=slots, context=context)
        self.model = model
        self.library = library
        self.panel = int(library.decode_panel())
        self.slot_R = np.arange(slots)
        self.keys_KPGDL = torch.empty(0)
        self._filed: set[int] = set()
        self._bound: Rows | None = None
        self._kept: list[Tensor] = []

    def start(self) -> None:
        """Lay the weights out as they are now."""
        self._kept = []
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
            rope=self._address(self.model.rope_PD),
            norm=self._address(self.model.norm.weight),
            head=self._pack(self.model.head_weight_VH),
            layers=ctypes.addressof(self._layers),
        )

    def prefill(self, layout: Layout, transfer: HostTransfer) -> Prefill:
        self._filed.update(self.allocator.prompt_R[layout.row_T].tolist())
        return super().prefill(layout, transfer)

    def move(self, source_M: Indices, target_M: Indices) -> None:
        self.slot_R[source_M], self.slot_R[target_M] = self.slot_R[target_M], self.slot_R[source_M]

    def window(
        self,
        model: Transformer,
        rows: Rows,
        num_rows: int,
        *,
        steps: int,
        longest: int,
        has_cuts: bool,
        transfer: HostTransfer,
    ) -> int:
        if has_cuts:
            rows.draw(slice(0, num_rows))
        for _ in range(steps):
            if has_cuts:
                self._step_with_cuts(rows, num_rows)
            else:
                self.step(rows, num_rows)
        return num_rows

    def _step_with_cuts(self, rows: Rows, size: int) -> None:
        """Draw the rows that cut their distribution by torch, from the kernel's final states.

        Rows without cuts keep their token: it must be the same whether a row with cuts is beside
        or not.
        """
        used = slice(0, size)
        hidden_BH = torch.empty(size, self.model.cfg.hidden_size)
        self.step(rows, size, hidden_BH)
        are_cut_B = rows.cuts_of(used).are_cut_B
        chosen = rows.choose(used, self.model.logits(hidden_BH), True)
        token_B, logprob_B = (
            torch.where(are_cut_B, cut_B, kept_B)
            for cut_B, kept_B in zip(chosen, rows.latest(used), strict=True)
        )
        rows.record(used, token_B, logprob_B)

    def step(self, rows: Rows, size: int, hidden_BH: Tensor | None = None) -> None:
        """Draw a token for each of the first rows and record it.

        Where final states are wanted they are filled in, and tokens are left in the report, for the
        caller to record.
        """
        if rows is not self._bound:
            self._bound = rows
            self._rows = self._describe_rows(rows)
        self._rows.used = size
        self._rows.threads = max(1, min(torch.get_num_threads(), size // FEWEST_ROWS))
        self._rows.hidden = None if hidden_BH is None else hidden_BH.data_ptr()
        if self._filed:
            self._turn_keys()
            self._cache = self._describe_cache()
        while needed := self.library.decode_step(
            *map(ctypes.byref, (self.shape, self._cache, self._rows))
        ):
            if needed < 0:
                raise EngineError("there is no memory left for a decode step; lower engine.slots")
            self.reserve_blocks(needed)
            self._cache = self._describe_cache()

    def _describe_rows(self, rows: Rows) -> _Rows:
        """Look addresses up once: all that a step needs of the rows stays where it is."""
        ints = rows.token_R, rows.count_R, rows.live_R, rows.first_R, rows.base_R, rows.limit_R
        tensors = *ints, rows.seed_R, rows.temperature_R, rows.report_RX
        arrays = self.slot_R, self.allocator.prompt_R, self.allocator.length_P
        addresses = *(x.data_ptr() for x in tensors), *(x.ctypes.data for x in arrays)
        return _Rows(0, 1, rows.columns, *addresses, rows.is_stop_V.data_ptr())

    def _describe_cache(self) -> _Cache:
        self._addresses = (_POINTER * len(self.blocks))(
            *(block.data_ptr() for block in self.blocks)
        )
        return _Cache(
            keys=self.keys_KPGDL.data_ptr(),
            prompt=self.prompts.data_ptr(),
            prompts=self.prompts.shape[2],
            columns=self.keys_KPGDL.shape[4],
            length=self.prompts.shape[4],
            blocks=ctypes.addressof(self._addresses),
            num_blocks=len(self.blocks),
            slots=len(self.slot_R),
        )

    def _turn_keys(self) -> None:
        """Copy the keys of prompts that have been filed since the last step."""
        keys_KPGLD = self.prompts[:, 0]
        line_M = torch.tensor(sorted(self._filed))
        layers, prompts, groups, length, size = keys_KPGLD.shape
        room = layers, prompts, groups, size, -(-length // LANES) * LANES
        if self.keys_KPGDL.shape != room:
            # Zeros, since what lies past the end of a prompt is read before it is left out, and
            # must be a number.
            self.keys_KPGDL = keys_KPGLD.new_zeros(room)
            line_M = torch.arange(prompts)
        self.keys_KPGDL[:, line_M, :, :, :length] = keys_KPGLD[:, line_M].transpose(3, 4)
        self._filed.clear()

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

    def _pack(self, weight_NM: Tensor) -> int | None:
        n, m = weight_NM.shape
        to = weight_NM.new_empty(-(-n // self.panel) * self.panel * m)
        self.library.decode_pack(self._address(weight_NM), n, m, to.data_ptr())
        return self._address(to)

    def _address(self, x: Tensor | None) -> int | None:
        """Keep a tensor for as long as the kernel may read it."""
        if x is None:
            return None
        self._kept.append(x.detach().contiguous())
        return self._kept[-1].data_ptr()
