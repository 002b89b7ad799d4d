"""Figures of vLLM on a GPU that were recorded once; on CUDA the benches do not run it.

vLLM 0.26 on one H200, bfloat16, random weights, log-probabilities on, 64 prompts of 64 tokens, 8
samples, 512 tokens each; three machines. Rates are medians of a machine, or the best run of all
modes where the name says so.
"""

from dataclasses import dataclass

from speed.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A rate that was measured elsewhere, not in this run."""

    name: str
    model: str
    tokens_per_s: float

    def line(self) -> str:
        return f"recorded, not of this run: {self.name} {self.tokens_per_s:,.0f} tokens/s"

    def to_row(self) -> dict[str, object]:
        return {"name": self.name, "tokens_per_s": self.tokens_per_s, "recorded": True}


FIGURES = (
    Recorded(name="vLLM 0.26, default, slowest machine", model="0.5b", tokens_per_s=23_000),
    Recorded(name="vLLM 0.26, default, fastest machine", model="0.5b", tokens_per_s=32_000),
    Recorded(
        name="vLLM 0.26, one process, collector off, best run", model="0.5b", tokens_per_s=42_900
    ),
    Recorded(name="vLLM 0.26, default, slowest machine", model="1.5b", tokens_per_s=26_400),
    Recorded(name="vLLM 0.26, one process, best machine", model="1.5b", tokens_per_s=44_700),
    Recorded(name="vLLM 0.26, default, without log-probabilities", model="7b", tokens_per_s=29_400),
)


def figures(work: Work) -> list[Recorded]:
    """Those of the model, where the work is the recorded one."""
    same = (work.prompts, work.samples, work.prompt_tokens, work.new_tokens, work.lengths) == (
        64,
        8,
        64,
        512,
        "fixed",
    )
    return [row for row in FIGURES if row.model == work.model] if same else []
