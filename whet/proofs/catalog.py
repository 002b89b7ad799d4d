"""The proofs, each resting on those before: where several fail, mend the first."""

from functools import partial

from whet.proofs import learner_proofs, penalty, policy_proofs, speech
from whet.proofs.base import Proof
from whet.train.policy import Policy

PROOFS = (
    Proof(
        name="divisor",
        claim="token weights come from the lengths of the whole step, whatever the rule",
        fault="wrong divisor",
        remedy=(
            "compare the weights in whet/algos/losses.py with the formulas in docs/algorithms.md"
        ),
        measure=learner_proofs.divisor,
    ),
    Proof(
        name="rewards",
        claim="a reward stays with its rollout, whatever order answers come in",
        fault="shifted rewards",
        remedy=(
            "look for a changed order in whet/rollout/collect.py, whet/rewards/spec.py and "
            "whet/train/credit.py"
        ),
        measure=policy_proofs.rewards,
    ),
    Proof(
        name="pass@k",
        claim="pass@k is what enumeration gives, and its mean is the chance it estimates",
        fault="biased pass@k",
        remedy="use 1 - C(n - c, k) / C(n, k) in whet/evals/stats.py",
        measure=learner_proofs.pass_at_k,
    ),
    Proof(
        name="stop token",
        claim="an answer keeps the stop token of its chat format, token for token",
        fault="dropped stop token",
        remedy=(
            "a model trained so never ends its turn: look at whet/text/chat.py, and at what ends "
            "a completion"
        ),
        measure=speech.stop_tokens,
    ),
    Proof(
        name="kl",
        claim=(
            "k1, k2 and k3 have the values and gradients they are meant to, and the penalty is "
            "applied once"
        ),
        fault="KL applied wrongly or twice",
        remedy=(
            "look at whet/algos/losses.py, and whether the KL is in the loss and in the reward "
            "(algo.kl_in)"
        ),
        measure=penalty.kl,
    ),
    Proof(
        name="targets",
        claim="every target of a step is seen once, the last micro-batch included",
        fault="dropped micro-batch",
        remedy="look at pack in whet/data/examples.py and the loop of LocalLearner.run_backward",
        measure=learner_proofs.targets,
    ),
    Proof(
        name="packing",
        claim="the loss of packed sequences is the sum of their losses alone",
        fault="packed sequences see each other",
        remedy=(
            "look at the starts that whet/models/transformer.py gives attention, and at positions "
            "in to_batch"
        ),
        measure=learner_proofs.packing,
    ),
    Proof(
        name="gradient",
        claim="micro-batches, accumulation, packing and order change nothing in the gradient",
        fault="gradient depends on the split",
        remedy=(
            "mend the proofs above first; else look for a mean over a micro-batch in a loss or in "
            "the learner"
        ),
        measure=learner_proofs.splits,
    ),
    Proof(
        name="ratio",
        claim="the ratio of the first mini-batch is exactly 1",
        fault="first ratio is not 1",
        remedy=(
            "look at what whet/algos/losses.py compares with where no old log-probabilities are "
            "given"
        ),
        measure=learner_proofs.ratio,
    ),
    Proof(
        name="engine",
        claim="engine and learner give what was sampled the same log-probabilities",
        fault="engine and learner disagree",
        remedy=(
            'set algo.old = "learner", and nothing is lost; on a GPU report the card, torch and '
            "triton versions"
        ),
        measure=policy_proofs.engine,
    ),
    Proof(
        name="publish",
        claim=(
            "after an update the engine samples from the learner's present weights, under their "
            "version"
        ),
        fault="stale weights",
        remedy="the engine must share the learner's weights, or copy them in Policy.publish",
        measure=policy_proofs.publish,
    ),
    Proof(
        name="resume",
        claim="a step after loading a checkpoint is the step that would have been",
        fault="resumed run departs",
        remedy=(
            "look for state that whet/train/checkpoint.py does not write; on a GPU, for sums in "
            "no fixed order"
        ),
        measure=policy_proofs.resume,
    ),
)


def of_model(policy: Policy) -> tuple[Proof, ...]:
    """The proofs that a model of the user's can be put to."""
    return (
        Proof(
            name="your template",
            claim="the model's chat template keeps the stop token",
            fault="dropped stop token",
            remedy=(
                "mend chat_template in the model folder: an assistant's turn ends with the token "
                "the model stops at"
            ),
            measure=partial(speech.stop_tokens_of, policy.chat),
        ),
        Proof(
            name="your engine",
            claim="engine and learner give the model's own samples the same log-probabilities",
            fault="engine and learner disagree",
            remedy=(
                'set algo.old = "learner", and nothing is lost; report the model, card, torch and '
                "triton versions"
            ),
            measure=partial(policy_proofs.engine_of, policy),
        ),
    )
