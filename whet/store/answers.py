"""The ledger of a teacher's answers: append-only JSON lines, so that a kill loses none.

An answer is written once it has arrived and a score once it is known, each in one write. A line
that a kill cut short is removed when the ledger is opened again. Texts stay on disk: memory holds
where they are.
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

Key = tuple[str, int]
"""A problem's id and the number of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """An answer of a teacher; without a text, a request that failed."""

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
    def key(self) -> Key:
        return self.problem, self.sample


class AnswerLedger:
    """The answers and scores in a folder, for one writer each."""

    def __init__(self, folder: Path) -> None:
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._answers = _Lines(folder / "answers.jsonl")
        self._scores = _Lines(folder / "scores.jsonl")
        self._samples: dict[str, dict[int, int]] = defaultdict(dict)
        self._scored: dict[Key, int] = {}
        self._failed_once: set[Key] = set()
        self.num_answers = 0
        """Answers with a text, without those that came with the data."""
        self.num_failed = 0
        """Requests that failed for good."""
        self.last_fault = ""
        """Why the latest request failed."""
        self.num_tokens = 0
        self.num_prompt_tokens = 0
        for offset, row in self._answers.read():
            self._note(_to_answer(row, self._answers.path), offset)
        for offset, row in self._scores.read():
            self._scored[_to_key(row, self._scores.path)] = offset

    def __enter__(self) -> "AnswerLedger":
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._scores.close()

    def __contains__(self, key: Key) -> bool:
        """Whether there is an answer that need not be asked for again."""
        return key[1] in self._samples.get(key[0], ())

    def add(self, answer: StoredAnswer) -> None:
        """Store an answer; a request that has failed twice has failed for good."""
        assert answer.key not in self, f"the answer {answer.key} is stored already"
        if answer.key in self._failed_once:
            answer = replace(answer, may_pass=False)
        row: Row = {"problem": answer.problem, "sample": answer.sample, "model": answer.model}
        row |= {"text": answer.text, "finish": answer.finish, "tokens": answer.tokens}
        row["prompt_tokens"] = answer.prompt_tokens
        if answer.text is None:
            row |= {"fault": answer.fault, "may_pass": answer.may_pass}
        self._note(answer, self._answers.append(row))

    def add_score(self, key: Key, score: Score) -> None:
        row: Row = {"problem": key[0], "sample": key[1], "verdict": score.verdict}
        row |= {"parts": dict(score.parts), "answer": score.answer, "note": score.note}
        self._scored[key] = self._scores.append(row)

    def answers(self, problem: str) -> list[StoredAnswer]:
        """Read the answers to a problem, in the order of their numbers."""
        offsets = [offset for _, offset in sorted(self._samples.get(problem, {}).items())]
        rows = [self._answers.read_at(offset) for offset in offsets]
        return [_to_answer(row, self._answers.path) for row in rows]

    def ungraded(self) -> Iterator[StoredAnswer]:
        """Read the answers that have a text and no score."""
        for problem, samples in self._samples.items():
            if any((problem, sample) not in self._scored for sample in samples):
                for answer in self.answers(problem):
                    if answer.text is not None and answer.key not in self._scored:
                        yield answer

    def scores(self) -> Iterator[tuple[Key, Score]]:
        """Read every score in the order in which they were stored."""
        for _, row in self._scores.read():
            yield _to_key(row, self._scores.path), _to_score(row, self._scores.path)

    def score(self, key: Key) -> Score | None:
        """Read the score of an answer; None where it has none yet."""
        if key not in self._scored:
            return None
        return _to_score(self._scores.read_at(self._scored[key]), self._scores.path)

    def sync(self) -> None:
        """Flush to disk, so that a power cut cannot undo what is written."""
        self._answers.sync()
        self._scores.sync()

    def _note(self, answer: StoredAnswer, offset: int) -> None:
        self.last_fault = answer.fault or self.last_fault
        if answer.may_pass:
            self._failed_once.add(answer.key)
            return
        self._samples[answer.problem][answer.sample] = offset
        self.num_failed += answer.text is None
        self.num_answers += answer.text is not None and answer.sample >= 0
        self.num_tokens += answer.tokens
        self.num_prompt_tokens += answer.prompt_tokens


class _Lines:
    """A file of JSON lines that is appended to and read at offsets."""

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
        """Write a line and return its offset; on a full disk, no part of it stays."""
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
                yield offset, self._parse(line)
                offset += len(line)

    def read_at(self, offset: int) -> Row:
        size = 1 << 13
        while b"\n" not in (line := os.pread(self._descriptor, size, offset)):
            assert len(line) == size, "a stored line ends"
            size *= 8
        return self._parse(line[: line.index(b"\n")])

    def _parse(self, line: bytes) -> Row:
        try:
            row: Json = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _broken(self.path, error) from error
        if not isinstance(row, dict):
            raise _broken(self.path, "a line is no object")
        return row

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        self.sync()
        os.close(self._descriptor)


def _to_key(row: Row, path: Path) -> Key:
    problem = row.get("problem")
    sample = row.get("sample")
    if not isinstance(problem, str) or not isinstance(sample, int):
        raise _broken(path, "a line names no problem and sample")
    return problem, sample


def _to_answer(row: Row, path: Path) -> StoredAnswer:
    problem, sample = _to_key(row, path)
    text = row.get("text")
    tokens = row.get("tokens")
    prompt_tokens = row.get("prompt_tokens")
    return StoredAnswer(
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
    return DataError(f"{path} is damaged ({reason}): put it back, or begin in another folder")
