"""The engine's loop: close ended rows, admit what fits, decode a window, read its tokens.

With a dense cache the host looks at each window before the next. With pages it looks at the window
before while the present one runs, so the device never waits for the host; a row that a stop token
ends is then closed one window later. What has reached its length limit needs no look: it is closed
at once, and answered when its tokens arrive.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from whet.engine.base import Request
from whet.engine.kv_cache import KVCache
from whet.engine.row_state import HostRows, Rows
from whet.engine.runner import Runner
from whet.engine.scheduler import Scheduler
from whet.engine.sequences import Report, Sequences
from whet.engine.transfer import Link
from whet.models.transformer import Transformer
from whet.types import Completion, Finish, Tokens

Detokenize = Callable[[Tokens], str]
Result = tuple[str, Completion]


class Loop:
    """Ties scheduler, sequences and runner together over one cache."""

    def __init__(
        self,
        model: Transformer,
        cache: KVCache,
        link: Link,
        *,
        slots: int,
        context: int,
        window: int,
        stops: frozenset[int],
        prefill_tokens: int,
        detokenize: Detokenize | None,
    ) -> None:
        self.cache = cache
        self.link = link
        self.window = window
        self.stops = stops
        self.detokenize = detokenize
        # Requests that have left their row may still wait for their last tokens, so there are more
        # sequences than rows.
        self.sequences = Sequences(2 * slots, context)
        is_stop_V = torch.zeros(model.cfg.vocab_size, dtype=torch.bool, device=model.device)
        is_stop_V[torch.tensor(sorted(stops), dtype=torch.int64)] = True
        kind = HostRows if link.device.type == "cpu" else Rows
        self.rows = kind(slots, window, link, is_stop_V)
        self.scheduler = Scheduler(
            cache.allocator, self.sequences, slots=slots, context=context, window=window
        )
        self.runner = Runner(model, cache, self.rows, link, prefill_tokens=prefill_tokens)
        self.version = 0
        self._ended: list[int] = []

    def serve(self, requests: Iterable[Request], version: int) -> Iterator[list[Result]]:
        """Result every request, stamped with a version; those that end together come together."""
        self.scheduler.start(requests)
        self.rows.clear()
        self.cache.start()
        self.version = version
        self._ended = []
        return self._serve_ahead() if self.cache.has_lag else self._serve_in_step()

    def _serve_in_step(self) -> Iterator[list[Result]]:
        while True:
            self._begin()
            if not self.scheduler.num_rows:
                return
            yield self._harvest(self._post()())
            self._close(self._ended)
            self._decode()

    def _serve_ahead(self) -> Iterator[list[Result]]:
        while True:
            report = self._post() if self.scheduler.num_rows else None
            self._close([*self._ended, *self.scheduler.full()])
            self._close(self.scheduler.make_room())
            self._begin()
            if report is None and not self.scheduler.num_rows:
                return
            self._decode()
            if report is not None:
                yield self._harvest(report())

    def _begin(self) -> None:
        admission = self.scheduler.admit()
        if admission is not None:
            self.runner.begin(admission, self.sequences)
            self.link.counts.begun += len(admission.sequence_B)

    def _decode(self) -> None:
        """Enqueue a window, or less where no row has that far to go."""
        sequences, sequence_B = self.sequences, self.scheduler.running_B
        steps = min(
            self.window, int((sequences.limit_S - sequences.bound_S)[sequence_B].max(initial=0))
        )
        if steps:
            longest = self.scheduler.advance(steps)
            has_cuts = bool(sequences.has_cuts_S[sequence_B].any())
            self.runner.window(len(sequence_B), steps, longest=longest, has_cuts=has_cuts)

    def _post(self) -> Callable[[], Report]:
        sequence_B = self.scheduler.running_B.copy()
        sequence_B[self._ended] = -1
        return self.rows.post(sequence_B)

    def _close(self, rows: Sequence[int]) -> None:
        if rows:
            before = self.scheduler.num_rows
            source_M, target_M = self.scheduler.drop(rows)
            self.runner.drop(source_M, target_M, before=before, after=self.scheduler.num_rows)
        self._ended = []

    def _harvest(self, report: Report) -> list[Result]:
        """Read a report; answer what ended, and note the rows that this leaves idle."""
        ends = {
            sequence: int(self.sequences.count_S[sequence])
            for sequence in self.sequences.read(report)
        }
        by_text = self._ended_by_text(report)
        ends |= by_text
        answers = [
            self._result(sequence, length, sequence in by_text) for sequence, length in ends.items()
        ]
        for sequence in ends:
            self.scheduler.withdraw(sequence)
            self.sequences.close(sequence)
        self._ended = self.scheduler.rows_of(ends)
        self.link.counts.tokens += sum(ends.values())
        self.link.counts.preemptions = self.scheduler.num_preempted
        return answers

    def _result(self, sequence: int, length: int, is_stopped: bool) -> Result:
        tokens, logprobs = self.sequences.output(sequence, length)
        finish = Finish.STOP if is_stopped or int(tokens[-1]) in self.stops else Finish.LENGTH
        completion = Completion(
            tokens=tokens, logprobs=logprobs, finish=finish, version=self.version
        )
        return self.sequences.request(sequence).id, completion

    def _ended_by_text(self, report: Report) -> dict[int, int]:
        """Find sequences whose text holds a stop string, and how many tokens it takes."""
        open_B = report.sequence_B[report.sequence_B >= 0]
        ends = {
            sequence: self._text_end(sequence)
            for sequence in open_B[self.sequences.has_stops_S[open_B]].tolist()
        }
        return {sequence: end for sequence, end in ends.items() if end is not None}

    def _text_end(self, sequence: int) -> int | None:
        assert self.detokenize is not None, "stop strings need a tokenizer"
        tokens = self.sequences.tokens(sequence)
        words = self.sequences.request(sequence).sampling.stop
        for end in range(max(1, len(tokens) - self.window), len(tokens) + 1):
            text = self.detokenize(tokens[:end])
            if any(word in text for word in words):
                return end
        return None
