"""How a recommender's tables lie on devices: the degrees of a table-parallel plan, one or many at once."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Tables dealt to `tables` groups of devices, each cut by rows and columns; as text, a plan."""

    tables: int = 1
    rows: int = 1
    columns: int = 1
    precision: str = "bf16"

    @property
    def devices(self) -> int:
        """Devices of one instance."""
        return self.tables * self.rows * self.columns

    def __str__(self) -> str:
        degrees = " ".join(f"{name}={getattr(self, name)}" for name in ("tables", "rows", "columns"))
        return f"table-parallel {degrees} precision={self.precision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shardings:
    """Many shardings of one precision, a column for each degree."""

    tables: Ints
    rows: Ints
    columns: Ints
    precision: str = "bf16"

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, index: int) -> Sharding:
        degrees = {name: int(getattr(self, name)[index]) for name in ("tables", "rows", "columns")}
        return Sharding(**degrees, precision=self.precision)

    @property
    def devices(self) -> Ints:
        """Devices of one instance of each."""
        return self.tables * self.rows * self.columns


def stack_shardings(listed: list[Sharding]) -> Shardings:
    """Shardings of one precision as one value."""
    columns = {
        each.name: np.array([getattr(one, each.name) for one in listed], dtype=np.int64)
        for each in fields(Sharding)
        if each.name != "precision"
    }
    (precision,) = {each.precision for each in listed}
    return Shardings(**columns, precision=precision)
