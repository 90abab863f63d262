"""Knobs that a user can bound: as they are said on the command line, and as strategies name them."""

LIMITED = {
    "tp": "tp",
    "pp": "pp",
    "vpp": "vpp",
    "cp": "cp",
    "ep": "ep",
    "dp": "dp",
    "mb": "micro_batch",
}
