"""Training algorithms that change the mathematics: what workers learn apart, and what they tell each other.

Whatever a planner needs (hyperparameters, messages, memory, compute) is imported without torch; the parts
that train import it when they are called.
"""
