"""One form for strategies that mean the same."""

from dataclasses import replace

from trainwright.plan.strategy import Strategy


def canonical(strategy: Strategy) -> Strategy:
    """The strategy without what its other knobs leave without a meaning.

    Sequence parallelism needs tensor parallelism; interleaving needs chunks; sharding needs ranks to shard
    over, and over all of them it is not hybrid.
    """
    ranks = strategy.dp * strategy.cp
    alone = ranks == 1 or strategy.shard == 1
    zero = 0 if alone else strategy.zero
    return replace(
        strategy,
        sp=strategy.sp and strategy.tp > 1,
        schedule="1f1b" if strategy.vpp == 1 and strategy.schedule == "interleaved" else strategy.schedule,
        zero=zero,
        shard=0 if zero == 0 or strategy.shard >= ranks else strategy.shard,
    )
