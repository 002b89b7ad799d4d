"""transformers alone: `generate` for rollouts, and a plain padded training loop for updates."""

# The peer's own annotations are partial.
# mypy: disable-error-code="arg-type, no-untyped-call, operator"

import time
from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)

from speed.serve import Round, serve
from speed.work import Spec


class LengthTable(StoppingCriteria):
    """Ends each row at its own length, as an end-of-sequence token would."""

    def __init__(self, limit_B: Tensor, prompt_tokens: int) -> None:
        self.end_B = limit_B + prompt_tokens

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: object) -> Tensor:
        return self.end_B <= input_ids.shape[1]


def prepare(spec: Spec) -> Round:
    model = load(spec)
    assert spec.task in ("rollout", "update"), "transformers has no step of its own"
    return rollout_round(spec, model) if spec.task == "rollout" else update_round(spec, model)


def load(spec: Spec) -> PreTrainedModel:
    assert spec.folder is not None, "transformers needs a checkpoint"
    dtype = getattr(torch, spec.work.dtype)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(spec.folder, dtype=dtype).to(
        spec.work.device
    )
    return model


def rollout_round(spec: Spec, model: PreTrainedModel) -> Round:
    """Sample by `generate`, which returns no log-probabilities; a user of it pays for those
    later."""
    work, batch = spec.work, int(spec.settings["batch"])
    cache = {"cache_implementation": "static"} if spec.settings.get("static") else {}
    model.eval()
    # A None below is filled from here, and a drawn end token would then stop a row early.
    assert model.generation_config is not None
    model.generation_config.eos_token_id = None

    @torch.no_grad()
    def round_of(number: int) -> dict[str, float]:
        ids = torch.tensor(work.prompt_ids(spec.vocab_size, number), device=work.device)
        rows = ids.repeat_interleave(work.samples, dim=0)
        limit_R = torch.tensor(work.limits(), device=work.device)
        began = time.perf_counter()
        for first in range(0, len(rows), batch):
            part = slice(first, first + batch)
            config = GenerationConfig(
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=int(limit_R[part].max()),
                pad_token_id=0,
                eos_token_id=None,
                **cache,
            )
            ends = StoppingCriteriaList([LengthTable(limit_R[part], work.prompt_tokens)])
            stops = {"stopping_criteria": ends} if work.lengths == "natural" else {}
            out = model.generate(
                rows[part],
                attention_mask=torch.ones_like(rows[part]),
                generation_config=config,
                **stops,
            )
            assert out.shape[1] == work.prompt_tokens + int(limit_R[part].max()), (
                "generate stopped early"
            )
        return {"seconds": elapsed(spec, began), "tokens": float(limit_R.sum())}

    return round_of


def update_round(spec: Spec, model: PreTrainedModel) -> Round:
    """One policy gradient over all completions in padded micro-batches, and one fused AdamW
    step."""
    work, batch = spec.work, int(spec.settings["batch"])
    if spec.settings.get("checkpointing"):
        model.gradient_checkpointing_enable()
    model.train()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    tokens = work.num_requests * work.prompt_tokens + sum(work.limits())

    def round_of(number: int) -> dict[str, float]:
        began = time.perf_counter()
        for ids_BT, mask_BT, advantage_B in padded(spec, batch):
            prompt = work.prompt_tokens
            out = model(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                logits_to_keep=ids_BT.shape[1] - prompt + 1,
            )
            logits_BRV = out.logits[:, :-1].float()
            label_BR, keep_BR = ids_BT[:, prompt:], mask_BT[:, prompt:]
            picked = logits_BRV.gather(2, label_BR[:, :, None])[:, :, 0]
            logprob_BR = picked - logits_BRV.logsumexp(-1)
            ratio_BR = (logprob_BR - logprob_BR.detach()).exp()
            loss = -(ratio_BR * advantage_B[:, None] * keep_BR).sum() / sum(work.limits())
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        return {"seconds": elapsed(spec, began), "tokens": float(tokens)}

    return round_of


def padded(spec: Spec, batch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rows of like length together, each group padded on the right to its longest."""
    work = spec.work
    prompts = [
        prompt for prompt in work.prompt_ids(spec.vocab_size, 0) for _ in range(work.samples)
    ]
    rows = [
        prompt + response
        for prompt, response in zip(prompts, work.responses(spec.vocab_size), strict=True)
    ]
    rows.sort(key=len)
    for first in range(0, len(rows), batch):
        part = [torch.tensor(row) for row in rows[first : first + batch]]
        ids_BT = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
        length_B = torch.tensor([len(row) for row in part])
        mask_BT = (torch.arange(ids_BT.shape[1]) < length_B[:, None]).long()
        yield (
            ids_BT.to(work.device),
            mask_BT.to(work.device),
            torch.ones(len(part), device=work.device),
        )


def elapsed(spec: Spec, began: float) -> float:
    if spec.work.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    serve(prepare)
