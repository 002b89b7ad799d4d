"""Co-training of a generator and a verifier: whose turn it is, what both learn from, and that it
resumes exactly."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from small import Said, check_clock, check_metrics, whet, write

from bench.kill_resume import facts
from whet.algos.agreement import count_agreement
from whet.config import load_settings
from whet.models.source import ModelSource
from whet.pipeline.pipeline_config import load_pipeline
from whet.recipes.tango import Side, TangoConfig, is_stuck, num_steps, side_at
from whet.store.files import sha256
from whet.store.run import RunStore
from whet.tasks.verify import Verify
from whet.text.tokenizer import Tokenizer
from whet.train.rl_step import StepResult
from whet.types import Author, Problem, Rollout, Verdict

ROOT = Path(__file__).parents[2]
TASK = '''
from whet.tasks.base import LineNote, Task
from whet.types import content_id
from whet.types import Message, Problem, Score, Verdict


class Copy(Task):
    """Two lines that say two bits of the question again."""

    name = "copy"

    def problems(self, split):
        for number in range(10, 90):
            bits = [str(number % 2), str(number // 2 % 2)]
            if ("sft", "rl", "dev", "test").index(split) == number // 4 % 4:
                prompt = Message(role="user", content=f"{number}: {' '.join(bits)}")
                yield Problem(
                    id=content_id(self.name, number), task=self.name, prompt=(prompt,), answer="\\n".join(bits),
                    payload={"bits": bits}, level=None, split=split, source=self.name,
                )

    def score(self, problem, text):
        right = text == problem.answer
        verdict = Verdict.CORRECT if right else Verdict.WRONG if text.strip() else Verdict.NO_ANSWER
        return Score(verdict=verdict, parts={"correct": float(right)}, answer=text or None)

    def solve(self, problem, seed):
        return problem.answer

    def comment(self, problem, text):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        bits = [*problem.payload["bits"], *[None] * len(lines)]
        return [LineNote(line=line, is_right=line == bit, note="") for line, bit in zip(lines, bits)]
'''
MODELS = """kind = "run"
task.name = "game24"
seed = 4
[stages.traces]
kind = "teach"
task = "{task}"
per_problem = 20
workers = 1
[stages.sft]
kind = "sft"
task = "{task}"
data = "@traces"
steps = 16
batch_size = 32
model = {{ new = "tiny", positions = 24 }}
train = {{ lr = 5e-3, warmup_steps = 5 }}
sampling = {{ max_tokens = 8 }}
validation = {{ samples = 1 }}
[stages.forms]
kind = "verifications"
task = "{task}"
model = {{ path = "@sft" }}
samples = 24
sampling = {{ max_tokens = 8 }}
[stages.verifier]
kind = "sft"
task = "{task}"
data = "@forms"
steps = 60
batch_size = 64
model = {{ new = "tiny", positions = 96 }}
train = {{ lr = 5e-3, warmup_steps = 5 }}
sampling = {{ max_tokens = 2 }}
validation = {{ samples = 1 }}
"""
FORMS = """kind = "run"
task.name = "game24"
[stages.forms]
kind = "verifications"
task = "{task}"
model = {{ path = "{folder}/02-sft" }}
samples = 24
steps = "{steps}"
sampling = {{ max_tokens = 8 }}
"""
TANGO = """kind = "tango"
seed = 4
task = "{task}"
model = {{ path = "{folder}/02-sft" }}
verifier = {{ path = "{folder}/04-verifier" }}
steps = 9
warmup = 2
generator_turns = 2
verifier_turns = 1
problems_per_step = 12
group_size = 4
judgements = 2
verifier_group_size = 4
sampling = {{ max_tokens = 8 }}
verifier_sampling = {{ max_tokens = 24 }}
algo = {{ name = "{algo}", kl_coef = 0.001 }}
train = {{ lr = 1e-3 }}
verifier_train = {{ lr = 1e-3 }}
validation = {{ every = 4, samples = 1 }}
save = {{ every = 3 }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Danced:
    """Two models that know their layouts, and a co-training of them."""

    folder: Path
    file: Path
    run: Path
    said: Said

    @property
    def rows(self) -> list[dict[str, float]]:
        return [row for row in RunStore.view(self.run).metrics() if "validation/pass@1" not in row]

    def rollouts(self, step: int) -> list[Rollout]:
        return RunStore.view(self.run).rollouts("train", step)


@pytest.fixture(scope="module")
def danced(tmp_path_factory: pytest.TempPathFactory) -> Danced:
    place = tmp_path_factory.mktemp("tango")
    task = f"{write(place / 'copy.py', TASK)}:Copy"
    said = whet(
        "run", write(place / "models.toml", MODELS.format(task=task)), "--out", place / "models"
    )
    assert said.code == 0, said.err
    file = write(
        place / "t.toml", TANGO.format(task=task, folder=place / "models", algo="tango_grpo")
    )
    said = whet("tango", file, "--out", place / "run")
    assert said.code == 0, said.err
    return Danced(folder=place, file=file, run=place / "run", said=said)


def test_a_verifier_can_begin_with_what_the_task_says_of_steps(
    danced: Danced, tmp_path: Path
) -> None:
    for steps in ("lot", "exact"):
        text = FORMS.format(
            task=f"{danced.folder / 'copy.py'}:Copy", folder=danced.folder / "models", steps=steps
        )
        file = write(tmp_path / f"{steps}.toml", text)
        said = whet("run", file, "--out", tmp_path / steps)
        assert said.code == 0, said.err
    judge = Verify()
    found = {}
    for steps in ("lot", "exact"):
        rows = RunStore.view(tmp_path / steps / "01-forms").rollouts("train", 0)
        found[steps] = {
            row.problem.id: (row.problem, judge.marks(row.problem, row.text)) for row in rows
        }
        assert all(row.score is not None and row.score.verdict is Verdict.CORRECT for row in rows)

    assert found["lot"].keys() == found["exact"].keys()
    # A wrong solution of the copy task says another bit in some line; all steps right means the
    # whole is right.
    exact = [
        (problem.answer == "CORRECT", marks)
        for problem, marks in found["exact"].values()
        if marks is not None
    ]
    assert any(not right for right, _ in exact)
    assert all(all(marks) for right, marks in exact if right)
    assert any(found["lot"][key] != found["exact"][key] for key in found["lot"])
    shown = [_said_bits(problem) for problem, _ in found["exact"].values()]
    assert [list(marks or ()) for _, marks in found["exact"].values()] == shown


def _said_bits(problem: Problem) -> list[bool]:
    """Compare the lines of a solution with the bits of its question, from the verifier's prompt
    alone."""
    lines = problem.prompt[-1].content.splitlines()
    bits = next(line for line in lines if ": " in line).split(": ")[1].split()
    said = [line.split("| ", 1)[1].strip() for line in lines if re.match(r"\d+\| ", line)]
    return [place < len(bits) and line == bits[place] for place, line in enumerate(said)]


def cfg(**settings: object) -> TangoConfig:
    return TangoConfig.model_validate(
        {
            "task": "game24",
            "model": ModelSource(path="m"),
            "verifier": ModelSource(path="v"),
            **settings,
        }
    )


def test_the_turns_of_rl_tango_are_300_and_140() -> None:
    """440 steps: 40 of warm-up, then 3 to 1, starting with the generator."""
    plan = cfg(steps=440, warmup=40, generator_turns=3, verifier_turns=1)

    assert num_steps(plan, Side.GENERATOR, 440) == 300
    assert num_steps(plan, Side.VERIFIER, 440) == 140
    assert [side_at(plan, step).value[0] for step in range(38, 46)] == list("vvgggvgg")


def test_without_verifier_turns_the_verifier_stays_as_it_is_after_its_warm_up() -> None:
    plan = cfg(steps=9, warmup=2, verifier_turns=0)

    assert [side_at(plan, step).value[0] for step in range(9)] == list("vvggggggg")


def test_every_step_logs_where_its_time_went(danced: Danced) -> None:
    check_clock(danced.run, samples=True)


def test_each_step_is_one_sides(danced: Danced) -> None:
    is_generators = ["steps/alpha" in row for row in danced.rows]

    assert is_generators == [False, False, True, True, False, True, True, False, True]
    for row in danced.rows:
        assert ("loss" in row) == ("steps/alpha" in row) or row["step/empty"]
        assert (
            ("verifier_reward/mean" in row)
            == ("verifier/count_correct" in row)
            == ("steps/alpha" not in row)
        )
        assert {
            "verifier/accuracy",
            "verifier/f1",
            "verifier/precision",
            "verifier/recall",
            "step/empty",
        } <= set(row)


def test_the_models_have_vocabularies_of_their_own(danced: Danced) -> None:
    last = danced.run / "checkpoints" / "000009"
    generator, verifier = Tokenizer.load(last), Tokenizer.load(last / "others" / "verifier")

    assert generator.vocab_size != verifier.vocab_size
    summary = RunStore.view(danced.run).summary()
    assert (danced.run / str(summary["verifier"]) / "model.safetensors").is_file()


def test_only_the_side_whose_turn_it_is_moves(danced: Danced, tmp_path: Path) -> None:
    said = whet(
        "tango",
        danced.file,
        "--out",
        tmp_path / "run",
        "--steps",
        3,
        "--save.every",
        1,
        "--save.keep",
        9,
    )
    assert said.code == 0, said.err
    first, second, third = (tmp_path / "run" / "checkpoints" / f"{step:06d}" for step in (1, 2, 3))

    weights, verifier = "model.safetensors", "others/verifier/model.safetensors"
    assert sha256(first / weights) == sha256(second / weights) != sha256(third / weights)
    assert sha256(first / verifier) != sha256(second / verifier) == sha256(third / verifier)


def test_alpha_falls_with_the_generators_updates(danced: Danced) -> None:
    """Five updates from 0.1 towards 0.001: before the k-th, k of 5 are done."""
    found = [row["steps/alpha"] for row in danced.rows if row.get("steps/guarded") == 0.0]
    wanted = [0.1 * 0.01 ** (k / 5) for k in range(5)]

    assert len(found) >= 3
    assert [min(abs(value - alpha) for alpha in wanted) for value in found] == pytest.approx(
        [0.0] * len(found)
    )


def test_the_generators_steps_carry_the_verdicts_of_the_verifier(danced: Danced) -> None:
    rollouts = danced.rollouts(3)
    solutions = [rollout for rollout in rollouts if rollout.author is Author.SOLVER]
    verifications = [rollout for rollout in rollouts if rollout.author is Author.VERIFIER]
    judged = [rollout for rollout in solutions if rollout.judged_steps]

    assert len(solutions) == 48 and len(verifications) <= 96
    assert len(judged) > 24
    for rollout in judged:
        count = len(rollout.judged_steps)
        assert {round(step.reward * count, 6) for step in rollout.judged_steps} <= {-1.0, 0.0, 1.0}
        assert all(
            0 <= step.start < step.end <= len(rollout.completion.tokens)
            for step in rollout.judged_steps
        )
    row = danced.rows[2]
    assert row["steps/judged"] == pytest.approx(len(judged) / 48)
    assert row["steps/count"] == pytest.approx(
        sum(len(rollout.judged_steps) for rollout in solutions) / 48
    )


def test_a_verifier_is_rewarded_for_agreeing_with_the_grader_of_the_solution(
    danced: Danced,
) -> None:
    rollouts = danced.rollouts(1)
    truth = {
        each.id: each.score.verdict
        for each in rollouts
        if each.author is Author.SOLVER and each.score is not None
    }
    assert len(truth) == 12

    for each in (each for each in rollouts if each.author is Author.VERIFIER):
        assert each.score is not None and each.problem.source_id is not None
        is_right = truth[each.problem.source_id] is Verdict.CORRECT
        assert each.problem.answer == ("CORRECT" if is_right else "INCORRECT")
        assert each.reward == pytest.approx(
            each.score.parts["correct"] + 0.8 * each.score.parts["format"]
        )


def test_the_running_count_of_both_kinds_is_that_of_the_formula(danced: Danced) -> None:
    """0.8 of what was before and 0.2 of the batch; the first batch starts it."""
    rows = [row for row in danced.rows if "verifier/count_correct" in row]
    batches = [
        len(
            {
                each.problem.source_id
                for each in danced.rollouts(int(row["step"]))
                if each.problem.answer == "CORRECT"
            }
        )
        for row in rows
    ]
    running = float(batches[0])
    for row, batch in zip(rows, batches, strict=True):
        running = 0.8 * running + 0.2 * batch
        assert row["verifier/count_correct"] == pytest.approx(running)


def test_class_weights_move_the_verifier_and_no_metric_of_the_batch(
    danced: Danced, tmp_path: Path
) -> None:
    for rule in ("sqrt_inverse", "inverse"):
        said = whet(
            "tango",
            danced.file,
            "--out",
            tmp_path / rule,
            "--steps",
            2,
            "--warmup",
            1,
            "--balance",
            rule,
        )
        assert said.code == 0, said.err
    one, other = (
        RunStore.view(tmp_path / rule).metrics()[1] for rule in ("sqrt_inverse", "inverse")
    )

    assert one["verifier_reward/mean"] == other["verifier_reward/mean"]
    assert one["verifier_train/grad_norm"] != pytest.approx(
        other["verifier_train/grad_norm"], rel=1e-3
    )


def test_steps_are_measured_against_the_exact_labels_of_the_task(danced: Danced) -> None:
    assert all(0 <= row["verifier/step_f1"] <= 1 for row in danced.rows)
    asked = [each.problem for each in danced.rollouts(3) if each.author is Author.VERIFIER]
    assert {tuple(problem.payload) for problem in asked} == {("num_steps",)}


def stopped(danced: Danced, to: Path, at: int) -> Path:
    """A copy of the run as a kill would leave it after the checkpoint of a step."""
    folder = Path(shutil.copytree(danced.run, to))
    (folder / "summary.json").unlink()
    for path in (folder / "checkpoints").iterdir():
        if path.name.isdigit() and int(path.name) > at:
            shutil.rmtree(path)
    (folder / "checkpoints" / "best.json").unlink(missing_ok=True)
    return folder


def test_a_stopped_run_ends_with_the_same_bits_on_both_sides(
    danced: Danced, tmp_path: Path
) -> None:
    folder = stopped(danced, tmp_path / "run", 8)

    said = whet("tango", danced.file, "--out", folder, "--resume")

    assert said.code == 0, said.err
    assert "resuming from step 8" in said.err
    assert facts(folder.parent, ("run",)) == facts(danced.run.parent, ("run",))
    mine, theirs = (place / "checkpoints" / "000009" for place in (folder, danced.run))
    for name in (
        "others/verifier/model.safetensors",
        "others/verifier/optimizer/state.safetensors",
        "state.json",
    ):
        assert sha256(mine / name) == sha256(theirs / name), name


def test_a_run_from_an_earlier_stop_keeps_counts_and_schedules(
    danced: Danced, tmp_path: Path
) -> None:
    """Step by step checkpoints: going on after a verifier's step, a generator's, and the first of
    all."""
    flags = ("--save.every", 1, "--save.keep", 9)
    said = whet("tango", danced.file, "--out", tmp_path / "straight", *flags)
    assert said.code == 0, said.err
    straight = Danced(folder=danced.folder, file=danced.file, run=tmp_path / "straight", said=said)
    for at in (1, 4, 5):
        folder = stopped(straight, tmp_path / f"from-{at}" / "straight", at)
        again = whet("tango", danced.file, "--out", folder, "--resume", *flags)
        assert again.code == 0 and f"resuming from step {at}" in again.err, again.err
        assert facts(folder.parent, ("straight",)) == facts(straight.run.parent, ("straight",))
        state = json.loads((folder / "checkpoints" / "000009" / "state.json").read_text())
        assert set(state["counts"]) == {"correct", "wrong"}


@pytest.mark.parametrize("algo", ["tango_rloo", "tango_reinforce_pp", "grpo"])
def test_other_algorithms_take_the_same_turns(danced: Danced, tmp_path: Path, algo: str) -> None:
    said = whet("tango", danced.file, "--out", tmp_path / "run", "--steps", 5, "--algo.name", algo)

    assert said.code == 0, said.err
    assert len(RunStore.view(tmp_path / "run").rollout_steps("train")) == 5


def broken_verifier(danced: Danced, to: Path, word: str) -> Path:
    """Train a verifier that says the same whatever it reads."""
    forms = RunStore.view(danced.folder / "models" / "03-forms").rollouts("train", 0)
    other = {"CORRECT": "INCORRECT", "INCORRECT": "CORRECT"}[word]
    kept = [row for row in forms if row.problem.answer == word and f"{{{other}}}" not in row.text]
    file = write(
        to / "v.toml",
        f'kind = "sft"\ntask.name = "game24"\nseed = 1\ndata = "{to}/one.parquet"\nsteps = 60\nbatch_size = 32\n'
        f'model = {{ path = "{danced.folder}/models/04-verifier" }}\ntrain = {{ lr = 3e-3 }}\n'
        "sampling = { max_tokens = 2 }\nvalidation = { samples = 1 }\n",
    )
    from whet.store.rollouts import write_rollouts

    write_rollouts(to / "one.parquet", [(row,) for row in kept])
    said = whet("sft", file, "--out", to / "v")
    assert said.code == 0, said.err
    return to / "v"


def test_a_verifier_that_says_one_thing_always_is_named_and_its_steps_do_not_count(
    danced: Danced, tmp_path: Path
) -> None:
    verifier = broken_verifier(danced, tmp_path, "CORRECT")
    flags = ("--steps", 3, "--warmup", 0, "--generator_turns", 3, "--verifier.path", verifier)

    said = whet("tango", danced.file, "--out", tmp_path / "run", *flags)

    assert said.code == 0, said.err
    assert said.err.count("the verifier always says the same") == 1
    rows = [row for row in RunStore.view(tmp_path / "run").metrics() if "steps/alpha" in row]
    assert [(row["steps/guarded"], row["steps/alpha"]) for row in rows] == [(1.0, 0.0)] * 3
    assert all(row["verifier/says_correct"] > 0.95 for row in rows)
    plain = whet(
        "tango", danced.file, "--out", tmp_path / "plain", *flags, "--algo.step_credit.alpha", 0
    )
    assert plain.code == 0, plain.err
    last = "checkpoints/000003/model.safetensors"
    assert sha256(tmp_path / "run" / last) == sha256(tmp_path / "plain" / last), (
        "only the outcome was credited"
    )


def test_step_credit_changes_what_the_generator_learns(danced: Danced, tmp_path: Path) -> None:
    flags = ("--steps", 2, "--warmup", 1)
    for name, alpha in (("with", 0.5), ("without", 0.0)):
        said = whet(
            "tango",
            danced.file,
            "--out",
            tmp_path / name,
            *flags,
            "--algo.step_credit.alpha",
            alpha,
        )
        assert said.code == 0, said.err
    row = RunStore.view(tmp_path / "with").metrics()[2]
    assert row["steps/guarded"] == 0.0 and row["steps/judged"] > 0.5

    last = "checkpoints/000002/model.safetensors"
    assert sha256(tmp_path / "with" / last) != sha256(tmp_path / "without" / last)
    one, other = (load_file(tmp_path / name / last) for name in ("with", "without"))
    assert one.keys() == other.keys()


def test_the_share_of_steps_that_is_logged_is_the_one_that_trains(
    danced: Danced, tmp_path: Path
) -> None:
    """Before the generator's second update α has fallen, unless it does not decay."""
    flags = ("--steps", 3, "--warmup", 1, "--algo.step_credit.alpha", 0.5)
    for decay in ("none", "exponential"):
        said = whet(
            "tango",
            danced.file,
            "--out",
            tmp_path / decay,
            *flags,
            "--algo.step_credit.decay",
            decay,
        )
        assert said.code == 0, said.err
    first, second = ([row["steps/alpha"] for row in RunStore.view(tmp_path / decay).metrics() if "steps/alpha" in row]
                     for decay in ("none", "exponential"))  # fmt: skip

    assert first == [0.5, 0.5] and second == pytest.approx([0.5, 0.5 * 0.002**0.5])
    last = "checkpoints/000003/model.safetensors"
    assert sha256(tmp_path / "none" / last) != sha256(tmp_path / "exponential" / last)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--warmup", 9), "warmup = 9 leaves the generator no step"),
        (("--algo.name", "ppo"), "needs a critic"),
        (("--verifier_algo.name", "ppo"), "needs a critic"),
        (("--verifier_algo.name", "tango_grpo"), "is for the generator"),
        (("--verifier_sampling.max_tokens", 96), "leaves no room for a solution"),
        (
            ("--verifier_train.micro_batch_tokens", 30),
            "verifier_train.micro_batch_tokens = 30 is below",
        ),
        (("--verifier.path", "nowhere"), "'nowhere'"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_sentence(
    danced: Danced, tmp_path: Path, flags: tuple[object, ...], words: str
) -> None:
    said = whet("tango", danced.file, "--out", tmp_path / "run", *flags)

    assert said.code == 2 and words in said.err.replace("\n", " ")
    assert "Traceback" not in said.err


def test_solutions_that_fit_no_prompt_teach_nothing_and_end_the_run(
    danced: Danced, tmp_path: Path
) -> None:
    flags = ("--verifier_sampling.max_tokens", 90, "--steps", 30, "--warmup", 20)

    said = whet("tango", danced.file, "--out", tmp_path / "run", *flags)

    assert said.code == 2 and said.last.startswith("whet: 10 steps in a row had no group")
    rows = [row for row in RunStore.view(tmp_path / "run").metrics() if "step/empty" in row]
    assert [row["step/empty"] for row in rows] == [1.0] * 10


def test_a_generator_that_learns_nothing_ends_the_run_whatever_the_verifier_learns(
    danced: Danced, tmp_path: Path
) -> None:
    flags = (
        "--algo.kl_coef",
        0,
        "--algo.step_credit.alpha",
        0,
        "--reward.weights",
        "{ correct = 0.0 }",
        "--steps",
        40,
    )

    said = whet("tango", danced.file, "--out", tmp_path / "run", *flags)

    assert said.code == 2 and said.last.startswith("whet: 10 steps in a row had no group")
    rows = [row for row in RunStore.view(tmp_path / "run").metrics() if "step/empty" in row]
    assert sum(row["step/empty"] for row in rows if "steps/alpha" in row) == 10
    assert any(row["step/empty"] == 0 for row in rows[-5:]), "the verifier went on learning"


def test_a_verifier_that_is_right_has_nothing_to_learn_and_ends_no_run() -> None:
    empty = StepResult(learner_metrics={}, is_empty=True)
    right, silent = count_agreement([(True, True), (False, False)]), count_agreement([(True, None)])

    mostly_right = count_agreement([(True, True)] * 3 + [(True, False)] * 2)
    assert mostly_right.accuracy == 0.6
    outcomes = (right, mostly_right, silent)
    assert [is_stuck(empty, outcome) for outcome in outcomes] == [False, False, True]
    assert not is_stuck(StepResult(learner_metrics={"loss": 0.1}), silent)


def test_the_small_experiment_runs_from_nothing(tmp_path: Path) -> None:
    """The file of experiments/, shrunk to seconds."""
    file = ROOT / "experiments" / "tango_small.toml"
    stages = load_pipeline(file, []).config.stages
    assert [stage.kind for stage in stages.values()].count("tango") == 1
    small: dict[str, dict[str, object]] = {
        "traces": {"per_problem": 2, "workers": 1},
        "sft": {"steps": 10, "batch_size": 16, "model.new": "tiny"},
        "sft_eval": {"samples": 1, "split": "dev"},
        "forms": {"samples": 1},
        "verifier": {"steps": 30, "batch_size": 16, "model.new": "tiny"},
        "tango": {
            "steps": 4,
            "warmup": 1,
            "problems_per_step": 4,
            "group_size": 2,
            "verifier_group_size": 2,
        },
        "outcome": {"steps": 2, "problems_per_step": 4, "group_size": 2},
        "tango_eval": {"samples": 1, "split": "dev"},
        "outcome_eval": {"samples": 1, "split": "dev"},
    }
    flags = [
        word
        for name, settings in small.items()
        for key, value in settings.items()
        for word in (f"--stages.{name}.{key}", value)
    ]

    said = whet("run", file, "--out", tmp_path / "run", *flags)

    assert said.code == 0, said.err
    assert load_settings(TangoConfig, danced_config(tmp_path / "run"), []).config.steps == 4


def danced_config(folder: Path) -> Path:
    [found] = [path / "config.toml" for path in folder.iterdir() if path.name.endswith("-tango")]
    return found


def test_the_metrics_of_a_run_are_those_documented(danced: Danced) -> None:
    check_metrics(danced.run, "tango", also="rl")
