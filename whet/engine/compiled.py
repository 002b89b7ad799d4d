"""Decode steps of small models on a CPU by the C kernel: one call a thread and step, instead of hundreds of operations.

The kernel draws from whole distributions. Rows that cut theirs are drawn by torch, from the kernel's final states.

Shapes: B rows in use, K layers, P prompts, G key/value heads, L tokens of the longest prompt, D head size, N and M the
sizes of a weight.
"""

import ctypes

import torch
from torch import Tensor, nn

from whet.engine.prompts import Layout
from whet.engine.slots import BLOCK, Prefill, Slots
from whet.engine.state import Rows
from whet.engine.team import is_small
from whet.engine.transfer import Link
from whet.errors import EngineError
from whet.kernels import c_library
from whet.models.transformer import Layer, Transformer

LANES = 16
"""Numbers that the kernel takes at a time; sizes of a model have to be multiples of it."""
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64


class _Model(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("layers", "hidden", "inner", "heads", "groups", "size", "vocab")),
        ("eps", ctypes.c_float),
        *((name, _POINTER) for name in ("embed", "rope", "norm", "head", "weights")),
    )


class _Cache(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("keys", "prompt")),
        *((name, _INT) for name in ("prompts", "columns", "length")),
        ("blocks", _POINTER),
        ("slots", _INT),
    )


class _Rows(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("count", "columns")),
        *((name, _POINTER) for name in ("token", "position", "slot", "prompt", "before", "column", "place")),
        *((name, _POINTER) for name in ("uniform", "temperature", "hidden", "drawn", "logprob")),
    )


def build_slots(model: Transformer, *, slots: int, context: int) -> Slots:
    """Take the kernel where it can serve: a small float32 model on a CPU, of even sizes, without adapters."""
    library = c_library.library() if _is_fit(model) else None
    if library is None:
        return Slots(model, slots=slots, context=context)
    return CompiledSlots(model, library, slots=slots, context=context)


def _is_fit(model: Transformer) -> bool:
    weight, cfg = model.embed.weight, model.cfg
    if type(model) is not Transformer or weight.device.type != "cpu" or weight.dtype != torch.float32:
        return False
    linears = [part for layer in model.layers for part in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    sizes = cfg.hidden_size, cfg.intermediate_size, cfg.head_dim
    return is_small(model) and all(type(part) is nn.Linear for part in linears) and not any(n % LANES for n in sizes)


class CompiledSlots(Slots):
    """The dense cache as the kernel reads it, with a copy of the weights in its layout.

    Keys lie transposed: those that rows add in their blocks, those of prompts in a copy. Rows that move keep their
    place in the blocks, and `slot_R` says which it is.
    """

    def __init__(self, model: Transformer, library: ctypes.CDLL, *, slots: int, context: int) -> None:
        super().__init__(model, slots=slots, context=context)
        library.pack.argtypes, library.pack.restype = (_POINTER, _INT, _INT, _POINTER), None
        library.panel.argtypes, library.panel.restype = (), _INT
        library.step.argtypes, library.step.restype = (_POINTER, _POINTER, _POINTER), ctypes.c_int
        self.model, self.library, self.panel = model, library, int(library.panel())
        self.slot_R = torch.arange(slots)
        self.keys_KPGDL = torch.empty(0)
        self._filed: set[int] = set()
        self._kept: list[Tensor] = []

    def start(self) -> None:
        """Lay the weights out as they are now."""
        self._kept, cfg = [], self.model.cfg
        addresses: list[int | None] = []
        for layer in self.model.layers:
            assert isinstance(layer, Layer), "a Transformer is made of them"
            addresses += self._layer(layer)
        self._weights = (_POINTER * len(addresses))(*addresses)
        self.shape = _Model(
            layers=cfg.num_layers,
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
            weights=ctypes.addressof(self._weights),
        )

    def prefill(self, layout: Layout, link: Link) -> Prefill:
        self._filed.update(self.room.prompt_R[layout.row_T].tolist())
        return super().prefill(layout, link)

    def move(self, source_M: Tensor, target_M: Tensor, longest: int) -> None:
        self.slot_R[source_M], self.slot_R[target_M] = self.slot_R[target_M], self.slot_R[source_M]

    def step(self, rows: Rows, size: int) -> "Step":
        """Prepare a step of the first rows."""
        self._turn_keys()
        return Step(self, rows, size)

    def _turn_keys(self) -> None:
        """Copy the keys of prompts that have been filed since the last step."""
        if not self._filed:
            return
        keys_KPGLD, line_M = self.prompts[:, 0], torch.tensor(sorted(self._filed))
        layers, prompts, groups, length, size = keys_KPGLD.shape
        room = layers, prompts, groups, size, -(-length // LANES) * LANES
        if self.keys_KPGDL.shape != room:
            # Zeros, since what lies past the end of a prompt is read before it is left out, and must be a number.
            self.keys_KPGDL, line_M = keys_KPGLD.new_zeros(room), torch.arange(prompts)
        self.keys_KPGDL[:, line_M, :, :, :length] = keys_KPGLD[:, line_M].transpose(3, 4)
        self._filed.clear()

    def _layer(self, layer: Layer) -> list[int | None]:
        odd = -len(layer.qkv.weight) % self.panel
        return [
            self._address(layer.input_norm.weight),
            self._pack(layer.qkv.weight),
            self._address(None if layer.qkv.bias is None else nn.functional.pad(layer.qkv.bias, (0, odd))),
            *(self._address(None if norm is None else norm.weight) for norm in (layer.q_norm, layer.k_norm)),
            self._pack(layer.out.weight),
            self._address(layer.post_norm.weight),
            self._pack(layer.gate_up.weight),
            self._pack(layer.down.weight),
        ]

    def _pack(self, weight_NM: Tensor) -> int | None:
        n, m = weight_NM.shape
        to = torch.empty(-(-n // self.panel) * self.panel * m)
        self.library.pack(self._address(weight_NM), n, m, to.data_ptr())
        return self._address(to)

    def _address(self, x: Tensor | None) -> int | None:
        """Keep a tensor for as long as the kernel may read it."""
        if x is None:
            return None
        self._kept.append(x.detach().contiguous())
        return self._kept[-1].data_ptr()


class Step:
    """One step of the first rows, to be run share by share."""

    def __init__(self, store: CompiledSlots, rows: Rows, size: int) -> None:
        self.store, self.rows = store, rows
        used = slice(0, size)
        self.prompt_B, self.before_B = map(torch.from_numpy, store.room.prompts_of(used))
        self.position_B = rows.position_of(used)
        self.column_B = self.position_B - self.before_B
        self.place_B = rows.column_of(used)[:, 0].contiguous()
        store.reserve_blocks(int(self.column_B.max()) // BLOCK + 1)
        self._blocks = (_POINTER * len(store.blocks))(*(block.data_ptr() for block in store.blocks))
        self._cache = _Cache(
            keys=store.keys_KPGDL.data_ptr(),
            prompt=store.prompts.data_ptr(),
            prompts=store.prompts.shape[2],
            columns=store.keys_KPGDL.shape[4],
            length=store.prompts.shape[4],
            blocks=ctypes.addressof(self._blocks),
            slots=len(store.slot_R),
        )

    def run(self, token_B: Tensor, logprob_B: Tensor, hidden_BH: Tensor | None, used: slice) -> None:
        """Run a share of the rows and draw a token for each; fill in the final states too, if they are wanted."""
        results = None if hidden_BH is None else hidden_BH[used], token_B[used], logprob_B[used]
        rows = self.rows
        settings = rows.token_R, self.position_B, self.store.slot_R, self.prompt_B, self.before_B, self.column_B
        given = [each[used] for each in (*settings, self.place_B, rows.uniform_RX, rows.temperature_R)]
        addresses = (None if each is None else each.data_ptr() for each in (*given, *results))
        taken = _Rows(used.stop - used.start, rows.uniform_RX.shape[1], *addresses)
        parts = (ctypes.byref(part) for part in (self.store.shape, self._cache, taken))
        if self.store.library.step(*parts):
            raise EngineError("there is no memory left for a decode step; lower engine.slots")
