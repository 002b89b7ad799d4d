"""A mark for tests of Triton code: they run where Triton's interpreter is on, as
test_interpreter.py turns it on."""

import pytest
import torch
from torch import Tensor

from whet.kernels import HAS_TRITON, IS_INTERPRETED, AttentionSpec

WHY = "Triton's interpreter is off" if HAS_TRITON else "triton is not installed"
interpreted = pytest.mark.skipif(not (HAS_TRITON and IS_INTERPRETED), reason=WHY)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def grads_of(outputs: tuple[Tensor, ...], inputs: list[Tensor]) -> list[Tensor]:
    """Pull one fixed random gradient through all outputs at once."""
    total = sum(
        (out * draw(*out.shape, seed=100 + i, dtype=out.dtype)).sum()
        for i, out in enumerate(outputs)
    )
    assert isinstance(total, Tensor)
    return list(torch.autograd.grad(total, inputs))


def head_spec(
    table_PD: Tensor,
    positions_T: Tensor | None,
    heads: int,
    groups: int,
    *norms: Tensor | None,
    eps: float = 1e-5,
) -> AttentionSpec:
    """Say how heads are split and turned."""
    q_norm_D, k_norm_D = norms or (None, None)
    return AttentionSpec(
        num_heads=heads,
        num_kv_heads=groups,
        head_dim=table_PD.shape[1],
        rope_CD=table_PD,
        positions_T=positions_T,
        q_norm_D=q_norm_D,
        k_norm_D=k_norm_D,
        eps=eps,
    )


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [x.clone().requires_grad_() for x in tensors]


def _mend_loops() -> None:
    """Let numpy 2.4 read loop bounds: Triton 3.6 hands it arrays of one element, which int() no
    longer takes."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def mended(tensor: type, scope: interpreter._LangPatchScope) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = mended


if HAS_TRITON and IS_INTERPRETED:
    _mend_loops()
