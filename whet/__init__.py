"""whet sharpens the reasoning of language models on problems whose answers can be checked."""

from whet.environment import share_cores

share_cores()
