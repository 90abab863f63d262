"""Laws that hold for every model, cluster, stack and strategy."""
