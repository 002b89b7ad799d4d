"""The proofs, from what stands alone to what rests on it: where several fail, the first is the one
to mend."""

from functools import partial

from whet.proofs import counting, gradient, pairing, penalty, resuming, shared_weights, speech
from whet.proofs.base import Proof
from whet.train.policy import Policy

PROOFS = (
    Proof(
        name="divisor",
        claim="token weights come from the lengths of the whole step, whatever the rule",
        fault="wrong divisor",
        remedy="compare whet/algos/weights.py with the formulas in docs/algorithms.md",
        measure=counting.divisor,
    ),
    Proof(
        name="rewards",
        claim="a reward stays with its rollout, whatever order answers come in",
        fault="shifted rewards",
        remedy="look for a changed order in whet/rollout/collect.py, whet/rewards/spec.py and whet/train/credit.py",
        measure=pairing.rewards,
    ),
    Proof(
        name="pass@k",
        claim="pass@k is what enumeration gives, and its mean is the chance it estimates",
        fault="biased pass@k",
        remedy="use 1 - C(n - c, k) / C(n, k) in whet/evals/stats.py",
        measure=counting.pass_at_k,
    ),
    Proof(
        name="stop token",
        claim="an answer keeps the stop token of its chat format, token for token",
        fault="dropped stop token",
        remedy="a model trained so never ends its turn: look at whet/text/chat.py, and at what ends a completion",
        measure=speech.stop_tokens,
    ),
    Proof(
        name="kl",
        claim="k1, k2 and k3 have the values and gradients they are meant to, and the penalty is applied once",
        fault="KL applied wrongly or twice",
        remedy="look at whet/algos/losses.py, and whether the KL is in the loss and in the reward (algo.kl_in)",
        measure=penalty.kl,
    ),
    Proof(
        name="targets",
        claim="every target of a step is seen once, the last micro-batch included",
        fault="dropped micro-batch",
        remedy="look at whet/data/pack.py and the loop of Learner.accumulate",
        measure=counting.targets,
    ),
    Proof(
        name="packing",
        claim="the loss of packed sequences is the sum of their losses alone",
        fault="packed sequences see each other",
        remedy="look at the starts that whet/models/attention.py gives attention, and at positions in to_batch",
        measure=gradient.packed,
    ),
    Proof(
        name="gradient",
        claim="micro-batches, accumulation, packing and order change nothing in the gradient",
        fault="gradient depends on the split",
        remedy="mend the proofs above first; else look for a mean over a micro-batch in a loss or in the learner",
        measure=gradient.splits,
    ),
    Proof(
        name="ratio",
        claim="the ratio of the first mini-batch is exactly 1",
        fault="first ratio is not 1",
        remedy="look at what whet/algos/losses.py compares with where no old log-probabilities are given",
        measure=gradient.ratio,
    ),
    Proof(
        name="engine",
        claim="engine and learner give what was sampled the same log-probabilities",
        fault="engine and learner disagree",
        remedy='set algo.old = "learner", and nothing is lost; on a GPU report the card, torch and triton versions',
        measure=shared_weights.engine,
    ),
    Proof(
        name="publish",
        claim="after an update the engine samples from the learner's present weights, under their version",
        fault="stale weights",
        remedy="the engine must share the learner's weights, or copy them in Policy.publish",
        measure=shared_weights.publish,
    ),
    Proof(
        name="resume",
        claim="a step after loading a checkpoint is the step that would have been",
        fault="resumed run departs",
        remedy="look for state that whet/train/checkpoint.py does not write; on a GPU, for sums in no fixed order",
        measure=resuming.resume,
    ),
)


def of_model(policy: Policy) -> tuple[Proof, ...]:
    """The proofs that a model of the user's can be put to."""
    return (
        Proof(
            name="your template",
            claim="the model's chat template keeps the stop token",
            fault="dropped stop token",
            remedy="mend chat_template in the model folder: an assistant's turn ends with the token the model stops at",
            measure=partial(speech.stop_tokens_of, policy.chat),
        ),
        Proof(
            name="your engine",
            claim="engine and learner give the model's own samples the same log-probabilities",
            fault="engine and learner disagree",
            remedy='set algo.old = "learner", and nothing is lost; report the model, card, torch and triton versions',
            measure=partial(shared_weights.engine_of, policy),
        ),
    )
