"""What the device knows of each running request: one row a request, dense from row 0, no Python per token.

Shapes: R rows, B rows in use, W longest completion.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whet.engine.base import Request, Sampling
from whet.engine.sampling import Cuts
from whet.types import Floats, Tokens


@dataclass(slots=True)
class Finished:
    """A row that ended: its request, its tokens, and whether the length limit ended it."""

    request: Request
    tokens: Tokens
    logprobs: Floats
    is_cut: bool


class Rows:
    """Tensors for R rows and the requests they serve. The last output column takes the writes of ended rows.

    One row more, the spare, keeps the newest prompt. `end_RH` is what the model made of each prompt's last token.
    """

    def __init__(self, rows: int, width: int, embed_VH: Tensor) -> None:
        device = embed_VH.device

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.device, self.width, self.spare = device, width, rows
        self.kept_prompt = b""
        self.end_RH = embed_VH.new_zeros(rows + 1, embed_VH.shape[1])
        self.requests: list[Request] = []
        self.token_R, self.position_R, self.count_R = zeros(rows), zeros(rows), zeros(rows)
        self.seed_R, self.limit_R = zeros(rows), zeros(rows)
        self.is_done_R = ~zeros(rows, dtype=torch.bool)
        self.cuts = Cuts.of([Sampling()] * rows, device)
        self.tokens_RW = zeros(rows, width + 1, dtype=torch.int32)
        self.logprobs_RW = zeros(rows, width + 1, dtype=torch.float32)

    def clear(self) -> None:
        """Forget every request; weights may have changed, so the kept prompt goes too."""
        self.requests.clear()
        self.kept_prompt = b""
        self.is_done_R.fill_(True)

    def __len__(self) -> int:
        return len(self.requests)

    def _all(self) -> list[Tensor]:
        own = [self.token_R, self.position_R, self.count_R, self.seed_R, self.limit_R, self.is_done_R]
        return [*own, self.tokens_RW, self.logprobs_RW, *self.cuts.tensors()]

    def admit(self, requests: list[Request], context: int) -> slice:
        """Open a row for each request, after those in use; its first token is still to be sampled."""
        rows = slice(len(self), len(self) + len(requests))
        lengths = [len(request.prompt) for request in requests]
        room = [min(request.sampling.max_tokens, context - len(request.prompt)) for request in requests]
        # The position of the newest token: the prompt's last one until the first sample is taken.
        self.position_R[rows] = torch.tensor(lengths, device=self.device) - 1
        self.limit_R[rows] = torch.tensor(room, device=self.device)
        self.seed_R[rows] = torch.tensor([request.seed for request in requests], device=self.device)
        self.count_R[rows], self.is_done_R[rows] = 0, False
        for stored, new in zip(self.cuts.tensors(), self._cuts_of(requests), strict=True):
            stored[rows] = new
        self.requests.extend(requests)
        return rows

    def _cuts_of(self, requests: list[Request]) -> list[Tensor]:
        return Cuts.of([request.sampling for request in requests], self.device).tensors()

    def cuts_of(self, rows: slice) -> Cuts:
        temperature, top_k, top_p, min_p = (tensor[rows] for tensor in self.cuts.tensors())
        return Cuts(temperature_B=temperature, top_k_B=top_k, top_p_B=top_p, min_p_B=min_p)

    def record(self, rows: slice, token_B: Tensor, logprob_B: Tensor, stops_K: Tensor) -> None:
        """File the sampled tokens of running rows and mark those that end; ended rows stay as they are."""
        is_done_B, count_B = self.is_done_R[rows], self.count_R[rows]
        column_B = torch.where(is_done_B, self.width, count_B)[:, None]
        self.tokens_RW[rows].scatter_(1, column_B, token_B[:, None].int())
        self.logprobs_RW[rows].scatter_(1, column_B, logprob_B[:, None])
        is_running_B = (~is_done_B).long()
        self.token_R[rows] = token_B
        self.count_R[rows] += is_running_B
        self.position_R[rows] += is_running_B
        is_stop_B = torch.isin(token_B, stops_K) | (self.count_R[rows] >= self.limit_R[rows])
        self.is_done_R[rows] = is_done_B | is_stop_B

    def outputs(self) -> tuple[list[bool], list[int]]:
        """Read, once a window, which rows ended and how long each is."""
        used = len(self)
        return self.is_done_R[:used].tolist(), self.count_R[:used].tolist()

    def take(self, ended: list[int], counts: list[int], stops: frozenset[int]) -> list[Finished]:
        """Copy the outputs of ended rows to the host."""
        rows = torch.tensor(ended, device=self.device)
        tokens = self.tokens_RW[rows].cpu().numpy()
        logprobs = self.logprobs_RW[rows].cpu().numpy()
        finished = []
        for index, row in enumerate(ended):
            out: Tokens = tokens[index, : counts[row]].astype(np.int32)
            is_cut = int(out[-1]) not in stops
            logs = logprobs[index, : counts[row]].copy()
            finished.append(Finished(request=self.requests[row], tokens=out, logprobs=logs, is_cut=is_cut))
        return finished

    def drop(self, ended: list[int]) -> tuple[Tensor, Tensor]:
        """Close ended rows: rows from the end move into their places. Returns the moves, source and target."""
        gone, left = set(ended), len(self) - len(ended)
        holes = [row for row in sorted(gone) if row < left]
        movers = [row for row in range(left, len(self)) if row not in gone]
        source, target = torch.tensor(movers, device=self.device), torch.tensor(holes, device=self.device)
        if holes:
            for tensor in self._all():
                tensor[target] = tensor[source]
        self.is_done_R[left : len(self)] = True
        for hole, mover in zip(holes, movers, strict=True):
            self.requests[hole] = self.requests[mover]
        del self.requests[left:]
        return source, target
