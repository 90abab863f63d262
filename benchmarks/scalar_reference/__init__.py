"""An independent scalar form of the closed form: plain floats, one strategy at a time."""
