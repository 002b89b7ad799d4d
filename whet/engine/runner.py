"""What runs on the device: contexts, windows of decode steps, and rows that move. It only ever
enqueues.

Shapes: R rows, B rows in use, H hidden, V vocabulary, E contexts that end in a pass, M rows that
move.
"""

from functools import partial

import torch
from torch import Tensor

from whet.engine.cpu.compiled import CompiledSlots, Step
from whet.engine.cpu.dense_cache import Slots
from whet.engine.cpu.threads import Team, team_for
from whet.engine.graphs import DecodeGraphs, rounded_length, rounded_rows
from whet.engine.kv_cache import Store
from whet.engine.prompts import Layout, passes
from whet.engine.rows import Rows
from whet.engine.sampling import sample
from whet.engine.scheduler import Admission
from whet.engine.sequences import Indices, Seats
from whet.engine.transfer import Link
from whet.models.transformer import Attend, Transformer


class Runner:
    """A model, a store and the state of its rows. `graphs` is None where steps are not recorded."""

    def __init__(
        self,
        model: Transformer,
        store: Store,
        rows: Rows,
        link: Link,
        *,
        stops: frozenset[int],
        prefill_tokens: int,
        graphs: DecodeGraphs | None,
    ) -> None:
        self.model = model
        self.store = store
        self.rows = rows
        self.link = link
        self.graphs = graphs
        self.prefill_tokens = prefill_tokens
        self.team = team_for(model)
        self.slots = len(rows.token_R)
        # What the model made of the last token of each context; the spare row's stays for samples
        # still to come.
        self.end_RH = torch.zeros(
            self.slots + 1, model.cfg.hidden_size, dtype=model.dtype, device=model.device
        )
        self.is_stop_V = torch.zeros(model.cfg.vocab_size, dtype=torch.bool, device=model.device)
        self.is_stop_V[torch.tensor(sorted(stops), dtype=torch.int64)] = True
        self.compiled = (
            Step(store, rows, self.is_stop_V) if isinstance(store, CompiledSlots) else None
        )

    def begin(self, admission: Admission, seats: Seats) -> None:
        """Run the contexts of new rows, each once, and sample the first token of every row."""
        seat_B, rows = admission.seat_B, admission.rows
        first = rows.start
        contexts = {row: seats.context(int(seat_B[row - first])) for row in admission.fresh}
        for layout in passes(contexts, most=self.prefill_tokens, splits=self.store.splits):
            self._prefill(layout)
        self.store.copy(int((seats.start_S + seats.count_S)[seat_B].max()), self.link)
        self.rows.open(
            rows,
            [seats.request(seat) for seat in seat_B.tolist()],
            seats.count_S[seat_B],
            seats.limit_S[seat_B],
        )
        (source_B,) = self.link.send(admission.source_B)
        logits_BV = self.model.logits(self.end_RH[source_B])
        if admission.kept is not None:
            self.end_RH[-1] = self.end_RH[admission.kept]
        self.rows.draw(rows)
        self._sample(rows, logits_BV, has_cuts=bool(seats.has_cuts_S[seat_B].any()))

    def window(self, num_rows: int, steps: int, *, longest: int, has_cuts: bool) -> None:
        """Decode `steps` tokens of the first rows, none of which will have cached more than
        `longest`."""
        self.store.sync(num_rows, longest, self.link)
        if has_cuts or self.compiled is None:
            self.rows.draw(slice(0, num_rows))
        size = num_rows
        if self.store.is_recorded:
            size = rounded_rows(num_rows, self.slots)
            longest = rounded_length(longest)
        for _ in range(steps):
            if self.compiled is not None:
                self._step_compiled(self.compiled, size, has_cuts)
            elif isinstance(self.store, Slots) and self.team is not None:
                self._step_apart(self.store, self.team, size, has_cuts)
            elif self.graphs is None:
                self._step(size, longest, has_cuts)
            else:
                self.graphs.run(
                    (size, longest, has_cuts), lambda: self._step(size, longest, has_cuts)
                )
        counts = self.link.counts
        counts.windows += 1
        counts.steps += steps
        counts.row_steps += steps * size
        counts.recordings = 0 if self.graphs is None else len(self.graphs)

    def drop(self, source_M: Indices, target_M: Indices, *, before: int, after: int) -> None:
        """Shrink from `before` to `after` rows, moving some into the gaps."""
        if len(source_M):
            self.rows.move(source_M, target_M)
            self.store.move(source_M, target_M)
        self.rows.end(slice(after, before))

    def _prefill(self, layout: Layout) -> None:
        counts = self.link.counts
        counts.prefills += 1
        counts.prefill_tokens += len(layout.tokens_T)
        attend = self.store.prefill(layout, self.link)
        tokens_T, positions_T, end_E, row_E = self.link.send(
            layout.tokens_T, layout.positions_T, layout.end_E, layout.row_E
        )
        hidden_TH = self.model(tokens_T, positions_T, attend)
        self.end_RH[row_E] = hidden_TH[end_E]

    def _step(self, size: int, longest: int, has_cuts: bool) -> None:
        used = slice(0, size)
        attend = self.store.decode(self.rows, size, longest)
        hidden_BH = self.model(self.rows.token_R[used], self.rows.position_of(used), attend)
        self._sample(used, self.model.logits(hidden_BH), has_cuts)

    def _step_apart(self, store: Slots, team: Team, size: int, has_cuts: bool) -> None:
        """Do the same on a CPU, each core its share of the rows."""
        shares = team.shares(size)

        def act(used: slice, attend: Attend) -> None:
            hidden_BH = self.model(self.rows.token_R[used], self.rows.position_of(used), attend)
            self._sample(used, self.model.logits(hidden_BH), has_cuts)

        attends = store.decode_shares(self.rows, shares)
        team.run([partial(act, used, attend) for used, attend in zip(shares, attends, strict=True)])

    def _step_compiled(self, step: Step, size: int, has_cuts: bool) -> None:
        """Do the same by the C kernel."""
        if not has_cuts:
            step.run(size)
            return
        used = slice(0, size)
        hidden_BH = self.end_RH.new_empty(size, self.end_RH.shape[1])
        step.run(size, hidden_BH)
        # Rows without cuts keep their token: it must be the same whether a row with cuts is beside
        # or not.
        are_cut_B = self.rows.cuts_of(used).are_cut_B
        pairs = zip(
            self._drawn(used, self.model.logits(hidden_BH), has_cuts),
            self.rows.filed(used),
            strict=True,
        )
        token_B, logprob_B = (torch.where(are_cut_B, cut_B, kept_B) for cut_B, kept_B in pairs)
        self.rows.record(used, self.rows.column_of(used), token_B, logprob_B, self.is_stop_V)

    def _sample(self, used: slice, logits_BV: Tensor, has_cuts: bool) -> None:
        token_B, logprob_B = self._drawn(used, logits_BV, has_cuts)
        self.rows.record(used, self.rows.column_of(used), token_B, logprob_B, self.is_stop_V)

    def _drawn(self, used: slice, logits_BV: Tensor, has_cuts: bool) -> tuple[Tensor, Tensor]:
        uniform_B = self.rows.uniform_RX[used].gather(1, self.rows.column_of(used))[:, 0]
        return sample(logits_BV, uniform_B, self.rows.cuts_of(used), has_cuts=has_cuts)
