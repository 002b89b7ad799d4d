"""What runs on the device: contexts, windows of decode steps, and rows that move. It only enqueues.

Shapes: R rows, B rows in use, H hidden, E contexts that end in a pass, M rows that move.
"""

import torch

from whet.engine.kv_cache import KVCache
from whet.engine.prefill import Layout, plan_passes
from whet.engine.row_state import Rows
from whet.engine.scheduler import Admission
from whet.engine.sequences import Indices, Sequences
from whet.engine.transfer import Link
from whet.models.transformer import Transformer


class Runner:
    """A model, a cache and the state of its rows."""

    def __init__(
        self, model: Transformer, cache: KVCache, rows: Rows, link: Link, *, prefill_tokens: int
    ) -> None:
        self.model = model
        self.cache = cache
        self.rows = rows
        self.link = link
        self.prefill_tokens = prefill_tokens
        # The hidden state of the last token of each context; the spare row's stays for samples
        # still to come.
        shape = len(rows.token_R) + 1, model.cfg.hidden_size
        self.end_RH = torch.zeros(shape, dtype=model.dtype, device=model.device)

    def begin(self, admission: Admission, sequences: Sequences) -> None:
        """Run the contexts of new rows, each once, and sample the first token of every row."""
        sequence_B, rows = admission.sequence_B, admission.rows
        first = rows.start
        contexts = {row: sequences.context(int(sequence_B[row - first])) for row in admission.fresh}
        for layout in plan_passes(contexts, most=self.prefill_tokens, splits=self.cache.splits):
            self._prefill(layout)
        self.cache.copy(int((sequences.start_S + sequences.count_S)[sequence_B].max()), self.link)
        self.rows.open(
            rows,
            [sequences.request(sequence) for sequence in sequence_B.tolist()],
            sequences.count_S[sequence_B],
            sequences.limit_S[sequence_B],
        )
        (source_B,) = self.link.send(admission.source_B)
        logits_BV = self.model.logits(self.end_RH[source_B])
        if admission.kept is not None:
            self.end_RH[-1] = self.end_RH[admission.kept]
        self.rows.draw(rows)
        has_cuts = bool(sequences.has_cuts_S[sequence_B].any())
        self.rows.record(rows, *self.rows.choose(rows, logits_BV, has_cuts))

    def window(self, num_rows: int, steps: int, *, longest: int, has_cuts: bool) -> None:
        """Decode `steps` tokens of the first rows; none will have cached more than `longest`."""
        size = self.cache.window(
            self.model,
            self.rows,
            num_rows,
            steps=steps,
            longest=longest,
            has_cuts=has_cuts,
            link=self.link,
        )
        counts = self.link.counts
        counts.windows += 1
        counts.steps += steps
        counts.row_steps += steps * size

    def drop(self, source_M: Indices, target_M: Indices, *, before: int, after: int) -> None:
        """Shrink from `before` to `after` rows, moving some into the gaps."""
        if len(source_M):
            self.rows.move(source_M, target_M)
            self.cache.move(source_M, target_M)
        self.rows.end(slice(after, before))

    def _prefill(self, layout: Layout) -> None:
        counts = self.link.counts
        counts.prefills += 1
        counts.prefill_tokens += len(layout.tokens_T)
        attend = self.cache.prefill(layout, self.link)
        tokens_T, positions_T, end_E, row_E = self.link.send(
            layout.tokens_T, layout.positions_T, layout.end_E, layout.row_E
        )
        hidden_TH = self.model(tokens_T, positions_T, attend)
        self.end_RH[row_E] = hidden_TH[end_E]
