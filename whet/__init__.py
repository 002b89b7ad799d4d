"""whet sharpens the reasoning of language models on problems whose answers can be checked."""

from whet.environment import avoid_broken_amx, keep_sums_in_order, share_cores

share_cores()
keep_sums_in_order()
avoid_broken_amx()
