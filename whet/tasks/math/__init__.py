"""Mathematics with a gold answer.

`task` grades, `find` finds the answer of a response, `respelling` normalizes its spelling, `parser`
parses it, `compare` decides equality.
"""

from whet.tasks.math.numeric import MathConfig
from whet.tasks.math.task import Math

__all__ = ["Math", "MathConfig"]
