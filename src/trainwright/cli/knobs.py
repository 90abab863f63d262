"""Knobs that a user can bound, as they are said on the command line."""

LIMITED = ("tp", "pp", "vpp", "cp", "ep", "dp", "mb")
