"""Shared by recipes that train: open a run, loop over its steps, drop and rephrase problems."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from whet.algos.settings import AlgoConfig
from whet.data.problems import load_validation
from whet.errors import ConfigError, DataError, NoRoomError, TrainError
from whet.grading.grader import Grader
from whet.models.source import load_model, torch_device, torch_dtype
from whet.rng import derive
from whet.rollout.collect import ChatEngine
from whet.stages.checkpoint_manager import CheckpointManager, Stateful
from whet.stages.guard import CollapseGuard
from whet.stages.stage import ModelWork, TrainingConfig
from whet.stages.validation import Validator
from whet.store.run import RunStore
from whet.tasks.base import Task, explain_user_errors
from whet.tasks.task_config import build_task
from whet.text.chat import PromptConfig
from whet.track.metrics import OUTSIDE_EVENT, Clock, OutsideClock, Tracker
from whet.track.progress import console, get_console, progress_bar, say
from whet.track.sinks import open_trackers
from whet.train.critic import Critic
from whet.train.learner import Learner
from whet.train.learner_factory import choose_learner_factory
from whet.train.memory import DeviceMemory, peak_counter
from whet.train.policy import Policy, build_policy, set_arithmetic
from whet.train.selftest import Exactness, measure_exactness
from whet.train.training_state import OtherPolicies
from whet.types import Advance, Json, Problem
from whet.world import get_world

EXACTNESS_EVENT = "exactness"
MAX_EMPTY_STEPS = 10
"""Steps in a row without a gradient before a run stops, since waiting longer rarely helps."""
NUM_NAMED = 5
"""Problems left out that are named on the screen; the ledger has all."""
STEPS_PER_LINE = 20
"""Steps between two lines on the screen where steps are short; every step is in the metrics."""

Settings = TypeVar("Settings", bound=TrainingConfig)
Settings_co = TypeVar("Settings_co", bound=TrainingConfig, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Session(Generic[Settings_co]):
    """The open parts of a training run that its recipe uses."""

    cfg: Settings_co
    run: RunStore
    task: Task
    policy: Policy
    grader: Grader
    clock: Clock

    def filter_fitting(self, problems: Sequence[Problem]) -> list[Problem]:
        """Leave out the problems whose prompts are too long for the policy."""
        return drop_long_prompts(problems, self.policy.chat_engine, self.run)

    def filter_trainable(self, problems: Sequence[Problem]) -> list[Problem]:
        """Leave out long prompts, and refuse micro-batches that cannot hold the longest response.

        Such a response would end the run in the middle.
        """
        kept = self.filter_fitting(problems)
        micro_batch_tokens = self.cfg.train.micro_batch_tokens
        if self.policy.engine.max_model_len > micro_batch_tokens:
            prompt = max(len(self.policy.chat.encode_problem(problem)) for problem in kept)
            longest = self.most_tokens(prompt)
            if longest > micro_batch_tokens:
                raise ConfigError(
                    f"train.micro_batch_tokens = {micro_batch_tokens} is below {longest}, the "
                    "tokens of the longest prompt with a response of sampling.max_tokens = "
                    f"{self.cfg.sampling.max_tokens}: raise the first or lower the second"
                )
        return kept

    def most_tokens(self, num_prompt_tokens: int) -> int:
        """Return the most tokens that a prompt of this length may have with its response."""
        most = num_prompt_tokens + self.cfg.sampling.max_tokens
        return min(most, self.policy.engine.max_model_len)

    def build_checkpoint_manager(
        self,
        learner: Learner,
        *,
        other_policies: OtherPolicies | None = None,
        stateful: Mapping[str, Stateful] | None = None,
        guard: CollapseGuard | None = None,
        critic: Critic | None = None,
    ) -> CheckpointManager:
        """Build the checkpoint manager, with a validator."""
        cfg = self.cfg
        problems, _ = load_validation(
            self.task, cfg.problems, cfg.validation.split, is_needed=cfg.validation.every > 0
        )
        problems = self.filter_fitting(problems) if problems else []
        validator = Validator(cfg.validation, self.grader, problems, cfg.sampling, seed=cfg.seed)
        return CheckpointManager(
            cfg.save,
            self.run,
            self.policy,
            learner,
            validator,
            steps=cfg.steps,
            other_policies=other_policies,
            stateful=stateful,
            guard=guard,
            critic=critic,
            is_background=cfg.cluster.background_saves,
        )


@contextmanager
def open_loop(
    session: Session[TrainingConfig],
    manager: CheckpointManager,
    columns: Mapping[str, str],
    *,
    every: int = 1,
) -> Iterator["TrainingLoop"]:
    """Load the newest checkpoint, open the trackers, validate, and continue from there.

    A line with the metrics in `columns` is printed after `every` steps.
    """
    cfg = session.cfg
    start = manager.resume()
    with (
        open_trackers(
            cfg.track, session.run, columns, every=every, steps=cfg.steps, console=get_console()
        ) as tracker,
        progress_bar(cfg.kind, cfg.steps, done=start)
        if get_console()
        else nullcontext() as advance,
        manager.stop_on_signal(),
        manager.close_engines(),
    ):
        loop = TrainingLoop(
            manager=manager,
            clock=session.clock,
            tracker=tracker,
            advance=advance,
            steps=range(start, cfg.steps),
        )
        loop.outside.count_start(session.run.opened)
        with loop.outside.measure("validate"):
            manager.validate_first(start, tracker)
        yield loop
        loop.log_outside()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingLoop:
    """The remaining steps of a run: iterating starts the clock of each, a recipe logs and ends it.

    for step in loop:
        loop.log(step, train(step))
        loop.end_step(step)
    """

    manager: CheckpointManager
    clock: Clock
    tracker: Tracker
    advance: Advance | None
    """Moves a bar on a terminal; elsewhere the lines of metrics say how far the run is."""
    steps: range
    outside: OutsideClock = field(default_factory=OutsideClock)

    def __iter__(self) -> Iterator[int]:
        for step in self.steps:
            self.clock.start()
            yield step

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step, and where its time went."""
        self.tracker.log(step + 1, {**metrics, **self.clock.lap()})

    def end_step(self, step: int) -> None:
        """Validate and write a checkpoint when these are due; stop if a signal has asked for it."""
        if self.advance is not None:
            self.advance(1)
        manager = self.manager
        num_done = step + 1
        if num_done in manager.validation_steps:
            with self.outside.measure("validate"):
                manager.validate(num_done, self.tracker)
        # A signal may reach one rank before another, or one alone. `stop_signal` keeps a signal
        # that comes during the exchange for the next step.
        tag = f"the end of step {num_done}"
        stop_signal = max(get_world().all_gather(manager.stop_signal, tag))
        if num_done in manager.save_steps or stop_signal:
            with self.outside.measure("save"):
                manager.save(num_done)
        if manager.is_background:
            manager.writer.check()
        if stop_signal:
            self.log_outside()
            manager.stop(num_done, stop_signal)

    def log_outside(self) -> None:
        """Record where the time outside the steps went; a kill loses it."""
        self.manager.run.log_event(OUTSIDE_EVENT, **self.outside.seconds)


class EmptyStepLimit:
    """Counts steps in a row without a gradient, and stops the run when there are too many."""

    def __init__(self) -> None:
        self.num_empty = 0

    def check(self, is_empty: bool) -> None:
        """Count an empty step; a step with a gradient resets the count."""
        self.num_empty = self.num_empty + 1 if is_empty else 0
        if self.num_empty >= MAX_EMPTY_STEPS:
            raise TrainError(
                f"{self.num_empty} steps in a row had no group with responses of different reward, "
                "so nothing is learned: start from a better model, or change reward.weights, "
                "group_size or sampling.temperature"
            )

    def save(self, folder: Path) -> Json:
        return self.num_empty

    def load(self, folder: Path, state: Json) -> None:
        if not isinstance(state, int):
            raise DataError(
                f"checkpoint {folder} does not record how many steps were empty: start the run "
                "again"
            )
        self.num_empty = state


def open_session(
    cfg: Settings,
    run: RunStore,
    *,
    task: Task | None = None,
    verifier_task: Task | None = None,
    texts: Sequence[str] = (),
    model_seed: int | None = None,
) -> Session[Settings]:
    """Load the model as a policy, and make the grader of its responses.

    A recipe that reads problems before the weights are loaded passes its task; `verifier_task`
    is a second task to grade. `texts` and `model_seed` are for models that start from random
    weights.
    """
    set_arithmetic(deterministic=cfg.is_deterministic)
    policy = open_policy(
        ModelWork(source=cfg.model, sampling=cfg.sampling, train=cfg.train, engine=cfg.engine),
        name=run.folder.name,
        prompt=cfg.prompt,
        seed=cfg.seed if model_seed is None else model_seed,
        texts=texts,
    )
    task = build_task(cfg.task) if task is None else task
    return Session(
        cfg=cfg,
        run=run,
        task=task,
        policy=policy,
        grader=Grader([task] if verifier_task is None else [task, verifier_task], cfg.grading),
        clock=Clock(peak_bytes=peak_counter(policy.model.device)),
    )


def open_policy(
    work: ModelWork,
    *,
    name: str,
    prompt: PromptConfig,
    seed: int,
    texts: Sequence[str] = (),
    memory: DeviceMemory | None = None,
) -> Policy:
    """Load a model to train, with its engine; policies on one device share `memory`."""
    assert work.train is not None and work.engine is not None, "a policy samples and trains"
    model, tokenizer = load_model(
        work.source,
        dtype=torch_dtype(work.train.dtype),
        device=torch_device(),
        texts=list(texts),
        seed=seed,
    )
    return build_policy(
        model,
        tokenizer,
        work.engine,
        name=name,
        prompt=prompt,
        learner_factory=choose_learner_factory(work.train),
        memory=memory,
    )


def drop_long_prompts(
    problems: Sequence[Problem], chat_engine: ChatEngine, run: RunStore
) -> list[Problem]:
    """Leave out problems whose prompts fill the context, and name them on screen and in the ledger.

    In the middle of a run, such a problem would stop the run, and again at every resume.
    """
    context = chat_engine.engine.max_model_len
    kept = []
    too_long = []
    for problem in problems:
        length = len(chat_engine.chat.encode_problem(problem))
        if length < context:
            kept.append(problem)
        else:
            too_long.append(f"{problem.id} ({length:,} tokens)")
    if too_long:
        names = ", ".join(too_long[:NUM_NAMED])
        names += f" and {len(too_long) - NUM_NAMED:,} more" if len(too_long) > NUM_NAMED else ""
        reason = f"leaves no room in a context of {context:,} tokens: {names}"
        if not kept:
            advice = "raise engine.max_model_len or shorten the prompts"
            raise NoRoomError(f"every prompt {reason}; {advice}", context=context)
        say(f"{len(too_long):,} of {len(problems):,} problems left out, whose prompt {reason}")
        run.log_event("too_long", context=context, problems=list(too_long))
    return kept


def check_exactness(algo: AlgoConfig, policy: Policy, run: RunStore, *, lag: int = 0) -> AlgoConfig:
    """Compare the log-probabilities of engine and learner on the user's own GPU, bit for bit.

    Returns the settings to train with. Nothing is compared on a CPU, where the two never agree
    exactly, nor with a fleet, which has a canary. The engine sleeps afterwards, since the run has
    yet to allocate most of the GPU's memory.
    """
    if policy.model.device.type != "cuda" or policy.chat_engine.is_central:
        return algo
    everywhere = get_world().all_gather(measure_exactness(policy), "the test of exactness")
    policy.engine.sleep()
    return record_exactness(everywhere, algo, policy.chat_engine.name, run, lag=lag)


def record_exactness(
    results: Sequence[Exactness], algo: AlgoConfig, name: str, run: RunStore, *, lag: int = 0
) -> AlgoConfig:
    """Print the worst result of all ranks, write it to the run's ledger, and return the settings to
    train with."""
    exactness = min(results, key=lambda result: result.equal_fraction)
    sentence = exactness.describe(algo, lag=lag)
    say(f"{name}: {sentence}")
    run.log_event(
        EXACTNESS_EVENT,
        model=name,
        exact=exactness.is_exact,
        tokens=exactness.num_tokens,
        equal_share=exactness.equal_fraction,  # the key in stored events
        largest_gap=exactness.largest_gap,
        said=sentence,
    )
    return exactness.apply(algo, lag=lag)


def finish_training(run: RunStore, manager: CheckpointManager, **more: Json) -> None:
    """Write the summary of a training run, with the checkpoint that is its result."""
    step, folder = manager.result()
    model = str(folder.relative_to(run.folder))
    best = manager.best
    value = best.value if best.step >= 0 else None
    if (words := manager.describe_loss()) is not None:
        console.print(f"[bold red]{words}[/]")
        run.log_event("worse", said=f"after {manager.steps:,} steps, {words}")
    run.finish({"model": model, **more, "step": step, "validation_pass@1": value})


def vary_problems(
    session: Session[TrainingConfig], problems: Sequence[Problem], step: int
) -> list[Problem]:
    """Rephrase the problems of a step."""
    seeds = [derive(session.cfg.seed, "vary", step, index) for index in range(len(problems))]
    return [vary_problem(session, *pair) for pair in zip(problems, seeds, strict=True)]


def vary_problem(session: Session[TrainingConfig], problem: Problem, seed: int) -> Problem:
    """Rephrase a problem, unless the new wording is too long for the policy."""
    with explain_user_errors(session.task):
        varied = session.task.vary(problem, seed)
    length = len(session.policy.chat.encode_problem(varied))
    has_room = length < session.policy.engine.max_model_len
    is_trainable = session.most_tokens(length) <= session.cfg.train.micro_batch_tokens
    return varied if has_room and is_trainable else problem
