"""Greedy decoding against two references: no cache at all, and transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from engines import FAMILIES, STOPS, all_requests, random_prompts, small_engine
from transformers import AutoModelForCausalLM

from whet.engine.base import SamplingParams
from whet.engine.kv_cache import BuildCache
from whet.models.load import load_decoder
from whet.models.save import save_model
from whet.models.transformer import PackedAttention, Transformer
from whet.testing.tiny import tiny_model
from whet.types import Tokens


@torch.no_grad()
def _greedy(model: Transformer, prompt: Tokens, max_tokens: int) -> list[int]:
    """Decode with no cache: the whole sequence again for every token."""
    tokens = torch.from_numpy(prompt.astype(np.int64))
    for _ in range(max_tokens):
        attend = PackedAttention(torch.tensor([len(tokens)]))
        logits = model.logits(model(tokens, torch.arange(len(tokens)), attend))[-1]
        tokens = torch.cat([tokens, logits.argmax()[None]])
        if int(tokens[-1]) in STOPS:
            break
    return tokens[len(prompt) :].tolist()


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
def test_greedy_takes_the_most_likely_token_every_time(
    build: BuildCache, family: str, tied: bool
) -> None:
    model, prompts = tiny_model(family=family, tied=tied), random_prompts(6)

    done = dict(
        small_engine(model, build=build, slots=4).generate(
            all_requests(prompts, 1, SamplingParams(temperature=0.0, max_tokens=20))
        )
    )

    for index, prompt in enumerate(prompts):
        assert done[f"{index}/0"].tokens.tolist() == _greedy(model, prompt, 20)


def test_greedy_equals_the_generate_of_transformers(tmp_path: Path) -> None:
    save_model(tiny_model(), tmp_path, eos_tokens=STOPS)
    foreign = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    engine = small_engine(load_decoder(tmp_path, dtype=torch.float32, device="cpu"), slots=3)

    done = dict(
        engine.generate(
            all_requests(random_prompts(6), 1, SamplingParams(temperature=0.0, max_tokens=24))
        )
    )

    for index, prompt in enumerate(random_prompts(6)):
        tokens = torch.from_numpy(prompt.astype(np.int64))[None]
        whole = foreign.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            do_sample=False,
            max_new_tokens=24,
            pad_token_id=0,
        )
        assert done[f"{index}/0"].tokens.tolist() == whole[0, len(prompt) :].tolist()
