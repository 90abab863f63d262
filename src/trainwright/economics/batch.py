"""What a large batch costs in tokens.

Steps S and tokens D that reach a loss obey (S / S_min - 1) (D / D_min - 1) = 1 (McCandlish et al. 2018, arXiv
1812.06162), so that a batch of B tokens needs

    D = D_min (1 + B / B_crit)        S = S_min (1 + B_crit / B)

with B_crit = D_min / S_min, the critical batch: twice the tokens, twice the steps. Kaplan et al. 2020 (arXiv
2001.08361) found that it depends on the loss alone, B_crit = 2e8 / L^(1 / 0.21) tokens with L in nats, on
models of up to 1.5 B parameters, whose losses were above 2.4; below that it is extrapolated.
"""

_CRITICAL_TOKENS = 2e8
_EXPONENT = 1.0 / 0.21


def critical_batch_tokens(loss: float) -> float:
    """The critical batch at a loss, in tokens."""
    return float(_CRITICAL_TOKENS / loss**_EXPONENT)


def batch_charge(batch_tokens: float, critical_tokens: float) -> float:
    """How many times the tokens of a small batch a batch needs for the same loss."""
    return 1.0 + batch_tokens / critical_tokens
