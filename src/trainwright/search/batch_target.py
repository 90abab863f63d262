"""A batch target: tokens per step with a tolerance, as a range of whole sequences."""

from dataclasses import dataclass
from math import ceil, floor, gcd

from trainwright.errors import BadInput
from trainwright.search.usual import MOST_BATCH
from trainwright.units import parse_amount, render_si

TOLERANCE = 0.03  # to both sides
_MOST_TOLERANCE = 0.5
_BINARY = {"k": 10, "K": 10, "M": 20}  # powers of two of the prefixes
_ROUNDING = 1e-9  # so that 3 % of a multiple is within 3 %


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """Sequences per step from `low` to `high`, around `tokens` tokens; `asked` is how the user put it."""

    asked: str
    tokens: float
    seq: int
    low: int
    high: int

    def __contains__(self, batch: int) -> bool:
        return self.low <= batch <= self.high

    @property
    def sequences(self) -> float:
        """The tokens in sequences, whole or not."""
        return self.tokens / self.seq

    def nearest_multiple(self, unit: int) -> int | None:
        """The batch within the target that is a multiple of `unit`, nearest to it; None if there is none."""
        times = min(max(round(self.sequences / unit), ceil(self.low / unit)), self.high // unit)
        return unit * times if unit * times in self else None

    def roundest(self, devices: int, count: int) -> list[int]:
        """The `count` batches that divide best over devices, in order of `roundness`."""
        step = max((self.high - self.low) // 4096, 1)  # of very many batches, some
        first = ceil(self.low / step) * step if step > 1 else self.low
        batches = range(first, self.high + 1, step)
        return sorted(batches, key=lambda batch: roundness(batch, devices, self.sequences))[:count]


def roundness(batch: int, devices: int, sequences: float) -> tuple[bool, int, int, float]:
    """A sort key, the roundest batch first.

    First the one that was asked for, then that which shares the largest divisor with the devices, then the
    largest power of two, then the nearest to what was asked for.
    """
    return (batch != sequences, -gcd(batch, devices), -(batch & -batch), abs(batch - sequences))


def build_target(tokens: float, seq: int, tolerance: float, asked: str, thing: str) -> BatchTarget:
    """The whole sequences within the tolerance; the nearest number of them where there is none."""
    whole = round(tokens / seq)
    if whole < 1:
        raise BadInput(thing, asked, f"is less than a sequence of {seq}", "ask for more")
    if whole > MOST_BATCH:
        raise BadInput(thing, asked, f"is more than {MOST_BATCH:,} sequences of {seq}", "ask for less")
    low = ceil(tokens * (1.0 - tolerance) / seq * (1.0 - _ROUNDING))
    high = min(floor(tokens * (1.0 + tolerance) / seq * (1.0 + _ROUNDING)), MOST_BATCH)
    if low > high:
        low = high = whole
    return BatchTarget(asked=asked, tokens=tokens, seq=seq, low=low, high=high)


def parse_batch_tokens(value: object, thing: str) -> float:
    """Tokens per step: `4M` is 4 x 2^20, as a power of two before k or M stands for a product of such.

    PaLM's 1M, 2M and 4M tokens are 512, 1,024 and 2,048 sequences of 2,048 (arXiv 2204.02311, section 5),
    Llama 3's 16M are 2,048 of 8,192 (arXiv 2407.21783, table 4). Other numbers are decimal.
    """
    tokens = parse_amount(value, "tokens", thing)
    digits = str(value).strip().removesuffix("tokens").rstrip()
    power = _BINARY.get(digits[-1:])
    if power is None:
        return tokens
    number = tokens / 10 ** (power * 3 // 10)
    is_power = number >= 1 and number.is_integer() and int(number) & (int(number) - 1) == 0
    return number * 2**power if is_power else tokens


def parse_tolerance(value: object, thing: str) -> float:
    """A tolerance like `3%`, as a share."""
    share = parse_amount(value, "%", thing)
    if share > _MOST_TOLERANCE:
        raise BadInput(thing, value, f"is more than {_MOST_TOLERANCE:.0%}", 'write it like "3%"')
    return share


def asked_words(value: object, tokens: float, tolerance: float) -> str:
    """A target as people read it, with what its number means."""
    exact = "" if parse_amount(value, "tokens", "batch") == tokens else f" = {tokens:,.0f}"
    return f"{value}{exact} tokens ± {100 * tolerance:g} %"


def batch_words(batch: int, seq: int) -> str:
    """A batch as people read it."""
    if seq == 1:
        return f"{batch} samples"
    return f"{batch} sequences of {seq} tokens, {render_si(batch * seq, 'tokens')}"
