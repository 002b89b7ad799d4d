"""Mathematics with a reference answer.

`task` grades, `find` finds the answer of a response, `parser` reads it, `compare` decides equality.
"""

from whet.tasks.math.numeric import MathConfig
from whet.tasks.math.task import Math

__all__ = ["Math", "MathConfig"]
