"""pass@k: the chance that at least one of k answers is right, estimated without bias from n
answers."""

from math import prod


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Estimate pass@k from `correct` right answers among n: 1 - C(n - c, k) / C(n, k) (Chen et al.
    2021, eq. 1).

    The ratio of binomials is taken as a product of factors in [0, 1], so nothing overflows for
    large n.

    >>> round(pass_at_k(5, 2, 2), 12)
    0.7
    """
    if not 0 <= correct <= n:
        raise ValueError(f"correct is {correct}; it must lie between 0 and n, which is {n}")
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}; it must lie between 1 and n, which is {n}")
    if n - correct < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(n - correct + 1, n + 1))
