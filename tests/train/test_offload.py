"""Host memory and the way through a device: every number goes over and comes home, in pieces of any
size."""

import pytest
import torch
from torch import Tensor

from whet.train.offload import StateStreamer, host_zeros


@pytest.mark.parametrize("piece", [1, 7, 100, 1000])
def test_every_number_crosses_once_whatever_the_pieces(piece: int) -> None:
    streamer, seen = StateStreamer(torch.device("cpu"), piece=piece), list[int]()
    first, second = torch.arange(100.0), torch.zeros(100)

    def act(at: slice, here: list[Tensor]) -> None:
        seen.extend(range(at.start, at.stop))
        here[1].copy_(here[0]).mul_(2)
        here[0].neg_()

    streamer.stream([first, second], act)
    streamer.join()
    streamer.wait()

    assert seen == list(range(100))
    assert torch.equal(first, -torch.arange(100.0))
    assert torch.equal(second, 2 * torch.arange(100.0))


def test_what_is_here_is_not_what_is_at_home_until_it_goes_back() -> None:
    home = torch.zeros(4)

    def act(at: slice, here: list[Tensor]) -> None:
        here[0].add_(1)
        assert torch.equal(home, torch.zeros(4))

    StateStreamer(torch.device("cpu")).stream([home], act)

    assert torch.equal(home, torch.ones(4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_host_memory_is_zero_and_keeps_what_is_written(dtype: torch.dtype) -> None:
    room = host_zeros((3, 5), dtype)

    assert room.shape == (3, 5) and room.dtype == dtype and room.is_contiguous()
    assert torch.equal(room, torch.zeros(3, 5, dtype=dtype))
    room[1, 2] = 7
    assert room.sum() == 7


def test_two_rooms_share_nothing() -> None:
    one, other = host_zeros((4,)), host_zeros((4,))
    one.fill_(1.0)

    assert torch.equal(other, torch.zeros(4))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_pieces_pass_each_other_and_none_is_lost() -> None:
    streamer = StateStreamer(torch.device("cuda"), piece=1 << 16)
    homes = [host_zeros((1_000_003,)) for _ in range(3)]
    added = torch.arange(1_000_003.0, device="cuda")

    for _ in range(5):
        streamer.stream(homes, lambda at, here: [each.add_(added[at]) for each in here] and None)
        streamer.join()
    streamer.wait()

    for home in homes:
        assert torch.equal(home, 5 * torch.arange(1_000_003.0))
