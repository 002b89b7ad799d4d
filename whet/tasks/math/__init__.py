"""Mathematics with a reference answer. See `task` for the task, `find` for where answers stand,
`grade` for rules."""

from whet.tasks.math.task import Math, MathConfig

__all__ = ["Math", "MathConfig"]
