"""Search: every legal strategy, ranked."""
