"""How long a whole GRPO step takes: sampling, rewards, advantages and the update, ours against
TRL's.

    python bench/rl_step.py --peer trl --model 4m --new-tokens 128
    python bench/rl_step.py --peer trl --model 0.5b --device cuda

Tokens are the sampled ones. The reward is the mean of a completion's token ids, which costs nothing
and leaves no group without an advantage. The limit is that of the rollout and the update together.
"""

import sys

from speed.comparison import main
from speed.limits import rl_step_seconds

if __name__ == "__main__":
    sys.exit(main("rl_step", __doc__, rl_step_seconds))
