"""How fast completions are sampled: our engine against transformers, TRL or vLLM, in turn on the
same machine.

    python bench/rollout.py --peer transformers --model 4m --new-tokens 128
    python bench/rollout.py --peer vllm --vllm-python ENVIRONMENT/bin/python --model 4m --new-tokens 128
    python bench/rollout.py --peer trl --model 0.5b --device cuda --lengths natural
    python bench/rollout.py --peer whet --tree ../other-checkout --model 4m --new-tokens 128

Each side is a child process with the same random weights and prompts. After one round of warm-up
they take turns; the table has medians and spread. The limit counts the prefill of each prompt once
and every decode step.
"""

import sys

from speed.comparison import main
from speed.limits import rollout_seconds

if __name__ == "__main__":
    sys.exit(main("rollout", __doc__, rollout_seconds))
