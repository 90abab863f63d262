"""The compressors by name; an extension is one file and one line here."""

from collections.abc import Callable

from trainwright.algorithm.checks import check_share, check_whole
from trainwright.algorithm.compressor.natural import Natural
from trainwright.algorithm.compressor.perm_k import PermK
from trainwright.algorithm.compressor.protocol import Compressor
from trainwright.algorithm.compressor.qsgd import Qsgd
from trainwright.algorithm.compressor.rand_k import RandK
from trainwright.algorithm.compressor.top_k import TopK
from trainwright.errors import BadInput, UnknownName

_MOST_LEVELS = 127  # a code is a byte

COMPRESSORS: dict[str, Callable[[float, int], Compressor]] = {
    "rand-k": lambda share, levels: RandK(share=share),
    "perm-k": lambda share, levels: PermK(),
    "top-k": lambda share, levels: TopK(share=share),
    "natural": lambda share, levels: Natural(),
    "qsgd": lambda share, levels: Qsgd(levels=levels),
}


def build_compressor(name: str, share: float, levels: int = 7) -> Compressor:
    """The compressor of a name; `share` is of the numbers that are kept, `levels` those of QSGD."""
    if name not in COMPRESSORS:
        raise UnknownName("compressor", name, COMPRESSORS)
    check_share("share", share)
    check_whole("levels", levels, 1)
    if levels > _MOST_LEVELS:
        raise BadInput("algorithm's levels", levels, f"are above {_MOST_LEVELS}", "use fewer")
    return COMPRESSORS[name](share, levels)
