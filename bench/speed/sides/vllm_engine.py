"""vLLM in its own environment: it lacks whet, so this module imports nothing of it."""

# The peer's own annotations are partial.
# mypy: disable-error-code="import-not-found"

import time

from speed.serve import Round, serve
from speed.work import Spec


def prepare(spec: Spec) -> Round:
    from vllm import LLM, SamplingParams  # noqa: TID251 - a peer, measured from outside
    from vllm.inputs import TokensPrompt  # noqa: TID251

    assert spec.task == "rollout", "vLLM samples and does not train"
    assert spec.folder is not None, "vLLM needs a checkpoint"
    work = spec.work
    most = {"max_num_seqs": int(spec.settings["sequences"])} if "sequences" in spec.settings else {}
    engine = LLM(
        model=spec.folder,
        dtype=work.dtype,
        skip_tokenizer_init=True,
        max_model_len=work.context,
        enable_prefix_caching=bool(spec.settings["prefix_caching"]),
        enforce_eager=bool(spec.settings.get("eager", False)),
        seed=work.seed,
        **most,
    )

    def round_of(number: int) -> dict[str, float]:
        prompts = work.prompt_ids(spec.vocab_size, number)
        requests = [
            TokensPrompt(prompt_token_ids=ids) for ids in prompts for _ in range(work.samples)
        ]
        settings = [
            SamplingParams(
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                max_tokens=limit,
                ignore_eos=True,
                detokenize=False,
                logprobs=0,
                seed=None,
            )
            for limit in work.limits()
        ]
        began = time.perf_counter()
        done = engine.generate(requests, settings, use_tqdm=False)
        seconds = time.perf_counter() - began
        tokens = sum(len(output.outputs[0].token_ids) for output in done)
        assert tokens == sum(work.limits()), "a completion has not the length it was given"
        assert all(output.outputs[0].logprobs is not None for output in done), (
            "log-probabilities are missing"
        )
        return {"seconds": seconds, "tokens": float(tokens)}

    return round_of


if __name__ == "__main__":
    serve(prepare)
