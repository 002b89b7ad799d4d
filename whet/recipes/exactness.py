"""On a GPU, before the first step: whether engine and learner give a token the same bits, and what
follows from it."""

from whet.algos.catalog import AlgoConfig
from whet.store.run import RunStore
from whet.track.progress import say
from whet.train.policy import Policy
from whet.train.selftest import Exactness, check_exact

EVENT = "exactness"


def proved(algo: AlgoConfig, policy: Policy, run: RunStore, *, lag: int = 0) -> AlgoConfig:
    """Try it with the loaded model on the user's own card; on a CPU, where it never holds, nothing
    is tried.

    The engine sleeps afterwards, since most of what the run needs of the card's memory is still to
    come.
    """
    if policy.model.device.type != "cuda":
        return algo
    found = check_exact(policy)
    policy.engine.sleep()
    return noted(found, algo, policy.player.name, run, lag=lag)


def noted(
    found: Exactness, algo: AlgoConfig, name: str, run: RunStore, *, lag: int = 0
) -> AlgoConfig:
    """Say what was found and file it with the run; the settings that training then goes by."""
    sentence = found.sentence(algo, lag=lag)
    say(f"{name}: {sentence}")
    run.ledger(
        EVENT,
        model=name,
        exact=found.is_exact,
        tokens=found.num_tokens,
        equal_share=found.equal_share,
        largest_gap=found.largest_gap,
        said=sentence,
    )
    return found.apply(algo, lag=lag)
