"""How fast one gradient step over recorded completions is: our learner against TRL or a plain
transformers loop.

    python bench/update.py --peer trl --model 4m --new-tokens 128
    python bench/update.py --peer transformers --model 0.5b --device cuda
    python bench/update.py --peer none --model 7b --device cuda --train offload_optimizer=true --prompts 16 --rounds 2

The last one keeps masters and moments, 91 GB, in host memory; weights are drawn on the card.

Tokens are those of prompts and completions, without padding. The limit counts one forward and
backward pass and the traffic of AdamW.
"""

import sys

from speed.comparison import main
from speed.limits import update_seconds

if __name__ == "__main__":
    sys.exit(main("update", __doc__, update_seconds))
