"""The ledger of a teacher's responses: append-only JSON lines, so that a kill loses none.

A response is written when it arrives and a score when it is known, each in one write. A line cut
short by a kill is removed when the ledger is opened again. Texts stay on disk; memory holds only
their positions.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from whet.errors import DataError
from whet.store.files import Row, to_line, write_errors
from whet.types import FinishReason, Json, Score, Verdict

ResponseKey = tuple[str, int]
"""A problem's id and the number of the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A response of a teacher; without a text, a failed request."""

    problem: str
    sample: int
    """Numbers from 0; below it are worked solutions that came with the data."""
    text: str | None
    model: str
    finish: FinishReason = FinishReason.STOP
    prompt_tokens: int = 0
    tokens: int = 0
    fault: str = ""
    may_pass: bool = False
    """Whether a later attempt asks again."""

    @property
    def key(self) -> ResponseKey:
        return self.problem, self.sample


class ResponseLedger:
    """The responses and scores in a folder; each has a single writer."""

    def __init__(self, folder: Path) -> None:
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._responses = _Lines(folder / "answers.jsonl")
        self._scores = _Lines(folder / "scores.jsonl")
        self._samples: dict[str, dict[int, int]] = defaultdict(dict)
        self._scored: dict[ResponseKey, int] = {}
        self._failed_once: set[ResponseKey] = set()
        self.num_responses = 0
        """Responses with a text, without those that came with the data."""
        self.num_failed = 0
        """Requests that failed permanently."""
        self.last_fault = ""
        """Why the latest request failed."""
        self.num_tokens = 0
        self.num_prompt_tokens = 0
        for offset, row in self._responses.read():
            self._note(_to_response(row, self._responses.path), offset)
        for offset, row in self._scores.read():
            self._scored[_to_key(row, self._scores.path)] = offset

    def __enter__(self) -> "ResponseLedger":
        return self

    def __exit__(self, *_: object) -> None:
        self._responses.close()
        self._scores.close()

    def __contains__(self, key: ResponseKey) -> bool:
        """Whether a response does not need to be asked for again."""
        return key[1] in self._samples.get(key[0], ())

    def add(self, response: StoredResponse) -> None:
        """Store a response; a request that fails twice is given up."""
        assert response.key not in self, f"the response {response.key} is stored already"
        if response.key in self._failed_once:
            response = replace(response, may_pass=False)
        row: Row = {"problem": response.problem, "sample": response.sample, "model": response.model}
        row |= {"text": response.text, "finish": response.finish, "tokens": response.tokens}
        row["prompt_tokens"] = response.prompt_tokens
        if response.text is None:
            row |= {"fault": response.fault, "may_pass": response.may_pass}
        self._note(response, self._responses.append(row))

    def add_score(self, key: ResponseKey, score: Score) -> None:
        row: Row = {"problem": key[0], "sample": key[1], "verdict": score.verdict}
        row |= {"parts": dict(score.parts), "answer": score.answer, "note": score.note}
        self._scored[key] = self._scores.append(row)

    def responses(self, problem: str) -> list[StoredResponse]:
        """Read the responses to a problem, in the order of their numbers."""
        offsets = [offset for _, offset in sorted(self._samples.get(problem, {}).items())]
        rows = [self._responses.read_at(offset) for offset in offsets]
        return [_to_response(row, self._responses.path) for row in rows]

    def ungraded(self) -> Iterator[StoredResponse]:
        """Read the responses that have a text and no score."""
        for problem, samples in self._samples.items():
            if any((problem, sample) not in self._scored for sample in samples):
                for response in self.responses(problem):
                    if response.text is not None and response.key not in self._scored:
                        yield response

    def scores(self) -> Iterator[tuple[ResponseKey, Score]]:
        """Read every score in the order in which they were stored."""
        for _, row in self._scores.read():
            yield _to_key(row, self._scores.path), _to_score(row, self._scores.path)

    def score(self, key: ResponseKey) -> Score | None:
        """Read the score of a response; None if it has none yet."""
        if key not in self._scored:
            return None
        return _to_score(self._scores.read_at(self._scored[key]), self._scores.path)

    def sync(self) -> None:
        """Flush to disk, so that a power cut cannot undo a write."""
        self._responses.sync()
        self._scores.sync()

    def _note(self, response: StoredResponse, offset: int) -> None:
        self.last_fault = response.fault or self.last_fault
        if response.may_pass:
            self._failed_once.add(response.key)
            return
        self._samples[response.problem][response.sample] = offset
        self.num_failed += response.text is None
        self.num_responses += response.text is not None and response.sample >= 0
        self.num_tokens += response.tokens
        self.num_prompt_tokens += response.prompt_tokens


class _Lines:
    """A file of JSON lines, appended to and read at offsets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with write_errors(path), ExitStack() as on_error:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            on_error.callback(os.close, self._descriptor)
            self._end = self._find_end()
            os.ftruncate(self._descriptor, self._end)
            on_error.pop_all()

    def _find_end(self) -> int:
        """Find the end of the last whole line."""
        size = os.fstat(self._descriptor).st_size
        while size:
            start = max(size - (1 << 16), 0)
            newline = os.pread(self._descriptor, size - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            size = start
        return 0

    def append(self, row: Row) -> int:
        """Write a line and return its offset; a full disk leaves no part of it."""
        line = to_line(row)
        offset = self._end
        with write_errors(self.path):
            try:
                written = 0
                while written < len(line):
                    written += os.pwrite(self._descriptor, line[written:], offset + written)
            except OSError:
                os.ftruncate(self._descriptor, offset)
                raise
        self._end = offset + len(line)
        return offset

    def read(self) -> Iterator[tuple[int, Row]]:
        """Yield every row with its offset."""
        offset = 0
        with self.path.open("rb") as file:
            for line in file:
                yield offset, self._parse_line(line)
                offset += len(line)

    def read_at(self, offset: int) -> Row:
        size = 1 << 13
        while b"\n" not in (line := os.pread(self._descriptor, size, offset)):
            assert len(line) == size, "a stored line ends"
            size *= 8
        return self._parse_line(line[: line.index(b"\n")])

    def _parse_line(self, line: bytes) -> Row:
        try:
            row: Json = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _broken(self.path, error) from error
        if not isinstance(row, dict):
            raise _broken(self.path, "a line is not an object")
        return row

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        self.sync()
        os.close(self._descriptor)


def _to_key(row: Row, path: Path) -> ResponseKey:
    problem = row.get("problem")
    sample = row.get("sample")
    if not isinstance(problem, str) or not isinstance(sample, int):
        raise _broken(path, "a line names no problem and sample")
    return problem, sample


def _to_response(row: Row, path: Path) -> StoredResponse:
    problem, sample = _to_key(row, path)
    text = row.get("text")
    tokens = row.get("tokens")
    prompt_tokens = row.get("prompt_tokens")
    return StoredResponse(
        problem=problem,
        sample=sample,
        text=text if isinstance(text, str) else None,
        model=str(row.get("model", "")),
        finish=FinishReason.LENGTH
        if row.get("finish") == FinishReason.LENGTH
        else FinishReason.STOP,
        tokens=tokens if isinstance(tokens, int) else 0,
        prompt_tokens=prompt_tokens if isinstance(prompt_tokens, int) else 0,
        fault=str(row.get("fault", "")),
        may_pass=row.get("may_pass") is True,
    )


def _to_score(row: Row, path: Path) -> Score:
    parts = row.get("parts")
    answer = row.get("answer")
    try:
        return Score(
            verdict=Verdict(str(row.get("verdict"))),
            parts={
                name: float(part)
                for name, part in (parts.items() if isinstance(parts, dict) else ())
                if isinstance(part, int | float)
            },
            answer=answer if isinstance(answer, str) else None,
            note=str(row.get("note", "")),
        )
    except ValueError as error:
        raise _broken(path, error) from error


def _broken(path: Path, reason: object) -> DataError:
    return DataError(f"{path} is damaged ({reason}): put it back, or start in another folder")
