"""GRPO on a CPU in seconds, with every part in view: sample, grade, compare, step.

    python examples/grpo_loop.py

The model is new: two layers of random weights, whose responses are all wrong, and groups without a
difference teach nothing. So it first imitates the task's own solutions for a few steps (SFT), on
problems of another split. From there GRPO doubles the share of right answers, to about 0.2, by
reward alone. It shows the parts at work, not what a good model reaches.
"""

from dataclasses import replace
from statistics import fmean

import whet
from whet.algos.advantages import zscore
from whet.algos.losses import sequence_mean, token_mean
from whet.algos.objectives import policy_objective, sft_objective
from whet.algos.settings import AlgoConfig
from whet.batching.rollout_datasets import make_sft_examples
from whet.rng import make_rng
from whet.train.learner import set_loss_weights
from whet.train.rl_step import to_example


def main(sft_steps: int = 200, rl_steps: int = 40) -> list[dict[str, float]]:
    """Train a new model on the easiest Countdown; return the metrics of each GRPO step."""
    task = whet.task("countdown", level=[0.0, 0.1])
    policy = whet.load_policy("tiny", task=task)
    rng = make_rng(0, "batches")

    solutions = whet.solve(task, task.problems("sft"))
    data = make_sft_examples(solutions, policy.chat, policy.engine.max_model_len).examples
    learner = policy.build_learner(whet.TrainConfig(lr=5e-3), steps=sft_steps)
    for _ in range(sft_steps):
        learner.update(set_loss_weights(rng.sample(data, 32), token_mean), sft_objective())

    problems = list(task.problems("rl"))
    learner = policy.build_learner(whet.TrainConfig(lr=2e-3), steps=rl_steps)
    grpo = policy_objective(AlgoConfig(name="grpo"))
    history = []
    for step in range(rl_steps):
        policy.publish(step)  # hand the engine the weights that the learner has moved
        batch = rng.sample(problems, 16)
        groups = whet.sample(policy, task, batch, samples=16, max_tokens=24, seed=step)
        rewards = [[rollout.score.parts["correct"] for rollout in group] for group in groups]
        examples = []
        for group, group_rewards in zip(groups, rewards, strict=True):
            for rollout, advantage in zip(group, zscore(group_rewards), strict=True):
                examples.append(replace(to_example(rollout, temperature=1.0), advantage=advantage))
        learner.accumulate(set_loss_weights(examples, sequence_mean), grpo)  # forward and backward
        metrics = {"reward/mean": fmean(map(fmean, rewards)), **learner.optim_step()}
        print(f"step {step + 1:2}  reward {metrics['reward/mean']:.3f}")
        history.append(metrics)
    return history


if __name__ == "__main__":
    main()
