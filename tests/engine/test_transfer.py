"""Small copies: what is packed is found again, and a copy that was asked for shows the moment of
asking."""

import numpy as np
import torch

from whet.engine.input_batch import HostTransfer, pack_bytes, unpack


def test_arrays_of_any_kind_are_found_again_at_aligned_places() -> None:
    table = np.arange(60, dtype=np.int32).reshape(6, 10)
    arrays = [
        np.arange(5),
        table[:3, :4],
        np.array([], dtype=np.int64),
        np.array([[1.5], [2.5]], dtype=np.float32),
        table.T,
    ]

    found = unpack(torch.from_numpy(pack_bytes(arrays)), arrays)

    for tensor, array in zip(found, arrays, strict=True):
        assert torch.equal(tensor, torch.from_numpy(np.ascontiguousarray(array)))
        assert tensor.storage_offset() * tensor.element_size() % 16 == 0


def test_a_fetched_copy_does_not_follow_later_writes() -> None:
    transfer, tensor = HostTransfer(torch.device("cpu")), torch.zeros(3)

    wait = transfer.to_host(tensor)
    tensor.fill_(1.0)

    assert wait().tolist() == [0, 0, 0] and transfer.stats.copies_to_host == 1
