"""Tasks by name, built from their settings."""

from whet.tasks.base import Task
from whet.tasks.game24.task import Game24, Game24Config

TaskConfig = Game24Config


def build(cfg: TaskConfig) -> Task:
    """Make the task that the settings name."""
    return Game24(cfg)
