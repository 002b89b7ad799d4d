"""Rewards: weighted sums of what the grader states, shaping terms, and the specs that come with
whet."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from whet import config
from whet.config import Config
from whet.errors import ConfigError
from whet.rewards.spec import SPECS_FOLDER, RewardSpec, list_specs, load_spec
from whet.tasks.game24.task import Game24
from whet.testing.fakes import rollout, sum_problem
from whet.types import JudgedStep, Rollout, Score, Verdict

PARTS = {"correct": 1.0, "process": 0.5, "length": 0.2, "extra": 9.0}


def _rewarded(spec: RewardSpec, score: Score) -> Rollout:
    [[found]] = spec.apply([(rollout(score=score, reward=7.0),)])
    return found


def test_the_reward_is_the_weighted_sum_of_the_named_parts() -> None:
    spec = RewardSpec(weights={"correct": 0.55, "process": 0.30, "length": 0.15})

    found = _rewarded(spec, Score(verdict=Verdict.CORRECT, parts=PARTS))

    # .55 × 1 + .30 × .5 + .15 × .2
    assert found.reward == pytest.approx(0.73)


def test_correctness_alone_is_the_default() -> None:
    assert _rewarded(RewardSpec(), Score(verdict=Verdict.CORRECT, parts=PARTS)).reward == 1.0


def test_what_the_grader_could_not_score_gets_no_reward() -> None:
    assert _rewarded(RewardSpec(), Score(verdict=Verdict.UNSCORED, parts={})).reward is None


def test_a_part_the_task_does_not_state_is_named_with_those_it_does() -> None:
    with pytest.raises(
        ConfigError, match="'style', which sums does not score: correct, extra, length, process"
    ):
        _rewarded(RewardSpec(weights={"style": 1.0}), Score(verdict=Verdict.WRONG, parts=PARTS))


def test_groups_keep_their_shape_and_order() -> None:
    scores = [Score(verdict=Verdict.CORRECT, parts={"correct": value}) for value in (0.1, 0.2, 0.3)]
    groups = [(rollout(score=scores[0]), rollout(score=scores[1])), (rollout(score=scores[2]),)]

    assert [[found.reward for found in group] for group in RewardSpec().apply(groups)] == [
        [0.1, 0.2],
        [0.3],
    ]


THINKS, LOOP = "<think>\nso\n</think>\n", "and we look once again " * 6


def _reward(
    name: str, verdict: Verdict, text: str = "[A]", task: str = "mis", **parts: float
) -> float:
    score = Score(verdict=verdict, parts={"correct": float(verdict is Verdict.CORRECT), **parts})
    problem = replace(sum_problem(1, 2), task=task)
    [[found]] = load_spec(name).apply([(rollout(score=score, text=text, problem=problem),)])
    assert found.reward is not None
    return found.reward


@pytest.mark.parametrize(
    ("name", "optimal", "half", "infeasible", "missing", "formed", "looping"),
    [
        ("binary", 1.0, 0.0, 0.0, 0.0, 1.0, 0.0),
        ("binary_format", 1.0, 0.0, 0.0, 0.0, 1.5, 0.0),
        ("binary_format_repeat", 1.0, 0.0, 0.0, 0.0, 1.5, -0.5),
        ("ratio_quality_format_repeat", 1.0, 0.25, 0.0, 0.0, 1.5, -0.5),
        ("complicated", 2.0, 0.25, -1.0, -1.0, 3.0, -2.0),
    ],
)
def test_the_graph_rewards_have_the_numbers_of_npg_muse(
    name: str,
    optimal: float,
    half: float,
    infeasible: float,
    missing: float,
    formed: float,
    looping: float,
) -> None:
    best = {"feasible": 1.0, "value": 4.0, "optimum": 4.0}
    poor = {"feasible": 1.0, "value": 2.0, "optimum": 4.0}
    bad = {"feasible": 0.0, "value": 0.0, "optimum": 4.0}

    assert _reward(name, Verdict.CORRECT, **best) == optimal
    assert _reward(name, Verdict.WRONG, **poor) == half
    assert _reward(name, Verdict.WRONG, **bad) == infeasible
    assert _reward(name, Verdict.NO_ANSWER) == missing
    assert _reward(name, Verdict.CORRECT, THINKS + "[A]", **best) == formed
    assert _reward(name, Verdict.WRONG, LOOP, **bad) == looping


def test_only_tours_are_squared_in_the_complicated_reward() -> None:
    parts = {"feasible": 1.0, "value": 8.0, "optimum": 4.0}

    assert _reward("complicated", Verdict.WRONG, task="tsp", **parts) == pytest.approx(0.125)
    assert _reward("complicated", Verdict.WRONG, task="ged", **parts) == pytest.approx(0.25)


def test_rlinf_gives_five_and_takes_five() -> None:
    assert [_reward("rlinf", v) for v in (Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER)] == [
        5.0,
        -5.0,
        -5.0,
    ]


def test_the_24_game_weighs_outcome_process_and_length() -> None:
    # .55 × 0 + .30 × .5 + .15 × 1
    assert _reward("game24", Verdict.WRONG, process=0.5, length=1.0) == pytest.approx(0.3)


HAND = Game24().parse_question("13 8 6 1")
IDLE = "13 + 8 = 21\n21 + 6 = 27\n27 + 1 = 28"


def _reward_24(spec: str, text: str) -> float:
    assert HAND is not None
    score = Game24().score(HAND, text)
    return _reward(spec, score.verdict, text, **score.parts)


def test_operations_that_lead_nowhere_earn_what_the_spec_of_the_24_game_says() -> None:
    assert _reward_24("game24", IDLE) == pytest.approx(0.45)
    assert _reward_24("game24", "no solution") == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (IDLE, 0.0),
        ("no solution", 0.0),
        ("13 - 1 = 12", 0.1),
        ("13 - 1 = 12\n13 - 1 = 12\n13 - 1 = 12", 0.1),
        ("13 - 1 = 12\n12 - 8 = 4", 0.2),
        ("13 - 1 = 12\n12 + 8 = 20\n20 + 6 = 26", 0.1),
        ("13 - 1 = 12\n12 - 8 = 4\n6 * 4 = 24", 1.0),
        ("6 * (13 - 1 - 8)", 1.0),
    ],
)
def test_the_spec_of_progress_pays_only_steps_that_leave_24_within_reach(
    text: str, reward: float
) -> None:
    assert _reward_24("game24_progress", text) == pytest.approx(reward)


def test_the_verifier_of_tango_earns_nothing_for_form_alone_without_a_verdict() -> None:
    text = (
        r"<step_verification><step>\boxed{CORRECT}</step></step_verification>"
        r"<final_verification>\boxed{CORRECT}</final_verification>"
    )

    assert _reward("tango_verifier", Verdict.CORRECT, text) == pytest.approx(1.8)
    assert _reward("tango_verifier", Verdict.WRONG, text) == pytest.approx(0.8)
    assert _reward("tango_verifier", Verdict.NO_ANSWER, text) == 0.0


def test_the_solver_of_tango_shares_one_among_its_steps_and_twice_changes_nothing() -> None:
    steps = tuple(
        JudgedStep(start=n, end=n + 1, reward=mark) for n, mark in enumerate((1.0, -1.0, 1.0, 0.0))
    )
    score = Score(verdict=Verdict.CORRECT, parts={"correct": 1.0})
    once = load_spec("tango_solver").apply_to(replace(rollout(score=score), judged_steps=steps))
    twice = load_spec("tango_solver").apply_to(once)

    assert once.reward == 1.0
    assert [step.reward for step in once.judged_steps] == [0.25, -0.25, 0.25, 0.0]
    assert twice.judged_steps == once.judged_steps


def test_dapo_takes_up_to_one_off_in_its_buffer() -> None:
    score = Score(verdict=Verdict.WRONG, parts={"correct": 0.0})
    lengths = (16384, 18432, 20480)

    rewards = [
        load_spec("dapo").apply_to(rollout(score=score, tokens=[1] * size)).reward
        for size in lengths
    ]

    assert rewards == [-1.0, -1.5, -2.0]


def test_the_same_rollout_can_be_rewarded_again_under_another_spec() -> None:
    score = Score(verdict=Verdict.CORRECT, parts={"correct": 1.0})
    first = load_spec("rlinf").apply_to(rollout(score=score, text=THINKS + "3"))
    second = load_spec("binary_format").apply_to(first)

    assert (first.reward, second.reward) == (5.0, 1.5)
    assert second.score == score and second.text == first.text


@pytest.mark.parametrize("name", list_specs())
def test_a_shipped_spec_loads_says_what_it_is_and_survives_writing(
    name: str, tmp_path: Path
) -> None:
    text = (SPECS_FOLDER / f"{name}.toml").read_text()
    copy = tmp_path / "copy.toml"
    copy.write_text(config.to_toml(load_spec(name)))

    assert text.startswith('kind = "reward"\n# ')
    assert load_spec(str(copy)) == load_spec(name)


def test_every_shipped_spec_is_in_the_document_with_a_row() -> None:
    document = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text()

    assert re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE) == list_specs()


class Recipe(Config):
    reward: RewardSpec = RewardSpec()


def test_settings_may_name_a_spec_instead_of_writing_one() -> None:
    assert config.load_settings(Recipe, None, ["--reward", "dapo"]).config.reward == load_spec(
        "dapo"
    )
    assert load_spec("dapo").needs_tokens and not load_spec("complicated").needs_tokens


def test_a_class_of_a_users_own_says_whether_it_needs_tokens(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from whet.rewards.shaping import Shaping\n\n"
        "class Short(Shaping):\n"
        "    needs_tokens = property(lambda self: True)\n"
        "    def value(self, rollout, score): return -len(rollout.completion.tokens)\n\n"
        "def plain(rollout, score): return len(rollout.text)\n"
    )
    assert load_spec(f"{file}:Short").needs_tokens
    assert not load_spec(f"{file}:plain").needs_tokens


def test_an_unknown_spec_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no reward spec 'dapoo'; did you mean 'dapo'"):
        load_spec("dapoo")
    with pytest.raises(ConfigError, match="no reward spec 'zzzz'; known: binary, "):
        load_spec("zzzz")
    with pytest.raises(ConfigError, match=r"there is no file .*none\.toml"):
        load_spec("none.toml")


def test_an_unknown_term_is_named_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[[terms]]\nkind = "cosin"\nmax_tokens = 5\n')

    with pytest.raises(ConfigError, match=r'terms.0.kind = "cosin".*; did you mean "cosine"'):
        load_spec(str(file))


def test_an_unknown_parameter_of_a_term_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[[terms]]\nkind = "repeat"\nmin_units = 5\n')

    with pytest.raises(
        ConfigError, match=r'unknown key "terms\.0\.min_units".*did you mean "terms\.0\.min_unit"'
    ):
        load_spec(str(file))


REWARDS = """
from whet.rewards.shaping import Shaping


def digits(rollout, score):
    return sum(sign.isdigit() for sign in rollout.text) + 10 * score.parts["correct"]


def words(rollout, score):
    return rollout.text


class Shorter(Shaping):
    limit: int = 4

    def value(self, rollout, score):
        return float(len(rollout.text) <= self.limit)


class Missing(Shaping):
    def value(self, rollout, score):
        return score.parts["nothing"]


def needs_three(rollout, score, problem):
    return 1.0


LIMIT = 3
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "my_reward.py"
    file.write_text(REWARDS)
    return file


class _Settings(Config):
    reward: RewardSpec


def _load(folder: Path, text: str) -> RewardSpec:
    file = folder / "run.toml"
    file.write_text(text)
    return config.load_settings(_Settings, file, []).config.reward


def test_a_function_of_the_user_is_the_whole_reward(code: Path, tmp_path: Path) -> None:
    spec = _load(tmp_path, f'reward = "{code}:digits"')
    right = Score(verdict=Verdict.CORRECT, parts={"correct": 1.0})

    assert spec.apply_to(rollout(score=right, text="a 42")).reward == 12.0
    assert load_spec(f"{code}:digits") == spec


def test_terms_of_the_user_are_weighed_like_others(code: Path, tmp_path: Path) -> None:
    terms = (
        f'{{ kind = "{code}:Shorter", weight = 0.5, limit = 2 }}, '
        f'{{ kind = "{code}:digits", weight = 2.0, when = "wrong" }}'
    )
    spec = _load(tmp_path, f"[reward]\nterms = [{terms}]\n")
    right = Score(verdict=Verdict.CORRECT, parts={"correct": 1.0})
    wrong = Score(verdict=Verdict.WRONG, parts={"correct": 0.0})

    assert spec.apply_to(rollout(score=right, text="42")).reward == 1.5
    assert spec.apply_to(rollout(score=wrong, text="427")).reward == 6.0


def test_a_spec_with_terms_of_the_user_is_written_and_read_again(
    code: Path, tmp_path: Path
) -> None:
    spec = _load(tmp_path, f'reward = {{ terms = [{{ kind = "{code}:Shorter", limit = 2 }}] }}')

    assert _load(tmp_path, config.to_toml(_Settings(reward=spec))) == spec


@pytest.mark.parametrize(
    ("reward", "sentence"),
    [
        ('"{code}:letters"', "has no letters; it has digits, words, Shorter, Missing, needs_three"),
        ('"{code}:LIMIT"', "LIMIT is neither a function of a rollout and its score nor a class"),
        ('"{code}:needs_three"', "should take (rollout, score), not (rollout, score, problem)"),
        ('"nowhere.py:digits"', "there is no file nowhere.py"),
        ('{{ terms = [{{ kind = "{code}:Shorter", limits = 2 }}] }}', 'did you mean "limit"?'),
        (
            '{{ terms = [{{ kind = "{code}:digits", limit = 2 }}] }}',
            "takes no settings, but is given",
        ),
    ],
)
def test_mistakes_in_the_users_reward_are_named_at_once(
    code: Path, tmp_path: Path, reward: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        _load(tmp_path, f"reward = {reward.format(code=code)}")


def test_a_reward_that_is_no_number_is_named(code: Path) -> None:
    score = Score(verdict=Verdict.CORRECT, parts={"correct": 1.0})

    with pytest.raises(ConfigError, match="words gave 'a 42'"):
        load_spec(f"{code}:words").apply_to(rollout(score=score, text="a 42"))


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e308"])
@pytest.mark.parametrize(
    "table", ["weights = {{ correct = {} }}", '[[terms]]\nkind = "outcome"\nwrong = {}']
)
def test_a_weight_that_no_mean_survives_is_refused(tmp_path: Path, number: str, table: str) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(table.format(number))

    with pytest.raises(ConfigError, match=r"finite|1e\+?09|1000000000"):
        load_spec(str(file))


def test_a_reward_that_raises_is_one_sentence_with_its_line(code: Path) -> None:
    score = Score(verdict=Verdict.CORRECT, parts={})

    for name, sentence in (
        ("digits", "raised KeyError in line 6: 'correct'"),
        ("Missing", "raised KeyError in line 22: 'nothing'"),
    ):
        with pytest.raises(ConfigError, match=re.escape(f"reward = '{code}:{name}' {sentence}")):
            load_spec(f"{code}:{name}").apply_to(rollout(score=score, text="a 42"))
