"""The stages of the learning study, as text: the SFT start on countdown with 3 numbers, and each
method after it."""

from dataclasses import dataclass

GRID = (2e-4, 5e-4, 1e-3, 2e-3)
LOW_GRID = (5e-5, 1e-4, 2e-4, 5e-4)
"""For DPO, which without fresh answers goes astray sooner."""
START = """kind = "run"
seed = {seed}

[stages.problems]
kind = "make"
task = {{ name = "countdown", count = {problems}, level = [0.0, 0.199] }}

[stages.answers]
kind = "teach"
task = {{ name = "countdown" }}
problems = "@problems"
per_problem = 1
workers = 1

[stages.sft]
kind = "sft"
task = {{ name = "countdown" }}
data = "@answers"
problems = "@problems"
model = {{ new = "tiny", positions = 96 }}
steps = {sft_steps}
batch_size = 64
train = {{ lr = 6e-3, lr_schedule = "cosine", warmup_steps = 30, weight_decay = 0.1, micro_batch_tokens = 8192 }}
sampling = {{ max_tokens = 16 }}
engine = {{ max_num_seqs = 512 }}
validation = {{ samples = 8 }}
"""
EVAL = """
[stages.eval]
kind = "eval"
task = {{ name = "countdown" }}
problems = "{problems}"
model = {{ path = "{model}" }}
sampling = {{ max_tokens = 16 }}
engine = {{ max_num_seqs = 512 }}
"""
TRAIN = """kind = "run"
seed = {seed}

[stages.train]
kind = "{kind}"
task = {{ name = "countdown" }}
problems = "{problems}"
model = {{ path = "{model}" }}
steps = {steps}
sampling = {{ max_tokens = 16 }}
train = {{ lr = {lr}, lr_schedule = "linear", warmup_steps = 5, micro_batch_tokens = 8192 }}
engine = {{ max_num_seqs = 512 }}
save = {{ every = 1000 }}
{settings}"""
RL = """problems_per_step = 32
group_size = 8
algo = {{ {algo} }}
validation = {{ samples = 8 }}
"""
DPO = """batch_size = 64
own = {{ samples = 16 }}
loss = {{ beta = {beta} }}
validation = {{ samples = 8 }}
"""
COLLAPSE = """problems_per_step = 32
group_size = 8
algo = {{ name = "grpo" }}
{more}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A stage of training: what stands in its table, and at which rate; without one it is searched
    for."""

    settings: str
    lr: float | None = None
    kind: str = "rl"
    weight: float = 1.0
    """How long it takes, beside the others."""
    share: float = 1.0
    """Of the steps that are asked for."""
    grid: tuple[float, ...] = GRID
    others: tuple[str, ...] = ()
    """Other settings that the search may choose."""


def rl(algo: str, more: str = "") -> str:
    return RL.format(algo=algo) + more


METHODS = {
    "GRPO": Method(settings=rl('name = "grpo", num_minibatches = 2')),
    "Dr. GRPO": Method(settings=rl('name = "dr_grpo", num_minibatches = 2')),
    "DAPO": Method(
        settings=rl(
            'name = "dapo", num_minibatches = 2', "dynamic_sampling = { max_extra_problems = 32 }\n"
        ),
        weight=1.6,
    ),
    "RLOO": Method(settings=rl('name = "rloo"')),
    "GSPO": Method(
        settings=rl('name = "gspo", num_minibatches = 2'),
        others=(rl('name = "gspo", num_minibatches = 2, clip_low = 0.03, clip_high = 0.04'),),
    ),
    "CISPO": Method(settings=rl('name = "cispo", num_minibatches = 2')),
    "REINFORCE++": Method(settings=rl('name = "reinforce_pp", num_minibatches = 2, kl = 0.001')),
    "PPO": Method(
        settings=rl(
            'name = "ppo", num_minibatches = 2, kl = 0.001',
            "critic = { lr = 1e-3, warmup_steps = 5 }\n",
        ),
        weight=2.5,
    ),
    "DPO": Method(
        settings=DPO.format(beta=0.1),
        others=(DPO.format(beta=0.5), DPO.format(beta=2.0)),
        grid=LOW_GRID,
        kind="dpo",
        weight=0.6,
    ),
}
COLLAPSES = {
    "GRPO, rate far too high": Method(lr=0.1, share=0.05, weight=0.2, settings=COLLAPSE.format(more="")),
    "the same with the guard": Method(
        lr=0.1, share=0.25, weight=0.4,
        settings=COLLAPSE.format(more="validation = { every = 5 }\nguard = { restores = 3, lr_factor = 0.1 }\n"),
    ),
}  # fmt: skip
