"""Measured collectives as questions to the model: on which network, among whom, how many bytes, how long."""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.cluster.load import load_device, load_network
from trainwright.cluster.types import Cluster, Network
from trainwright.errors import BadInput

LEAST_BYTES = 4e6  # what training sends; below, NCCL has protocols of less latency and less bandwidth
_MANY_BYTES = 2.0**33  # what a "large message" of no stated size is taken for
_CLUES = ("verified", "recalled", "estimated")  # what the column of confidence says


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One collective that was timed alone; members are `stride` devices apart."""

    source: str
    network: Network
    kind: str
    members: int
    size_bytes: float
    time_s: float
    stride: int = 1

    @property
    def fabric(self) -> str:
        """The fabric that it tells most about: of the outermost level that it crosses."""
        cluster = Cluster(
            name="measured", device=load_device("h100"), network=self.network, count=self.devices
        )
        return cluster.levels[-1].fabric

    @property
    def devices(self) -> int:
        """From its first member to its last."""
        return (self.members - 1) * self.stride + 1


# All-reduce bus bandwidth, GB/s, on nodes of 8 H100 with 400 Gb/s each, read off a plot of arXiv 2411.13055
# (± 5): from 1 MiB, four times as many bytes in each column. By nodes.
PLOT = "arXiv 2411.13055, plot of all-reduces"
BUS_GB_PER_S: Mapping[int, tuple[float, ...]] = {
    4: (17, 46, 114, 217, 273, 337, 351, 358),
    16: (9, 26, 72, 162, 265, 325, 343, 357),
    64: (6, 18, 45, 137, 246, 304, 331, 348),
    256: (5, 15, 42, 117, 222, 302, 322, 341),
    512: (5, 13, 40, 112, 220, 286, 329, 345),
}


def load_collectives(path: Path) -> tuple[Measured, ...]:
    """The collectives of a table whose network is known, and those of the plot, of 4 MB and more."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [_mended(row) for row in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput("table", str(path), f"cannot be read as CSV ({error})", "check the file") from None
    heads = rows[0] if rows else []
    found = [*_from_plot()]
    for row in rows[1:]:
        found += _read(dict(zip(heads, row, strict=False)))
    return tuple(each for each in found if each.size_bytes >= LEAST_BYTES and each.time_s > 0)


def _mended(row: list[str]) -> list[str]:
    """The row with the cell put back that some rows lack: where their source was found."""
    return [*row[:2], "", *row[2:]] if len(row) > 2 and row[2] in _CLUES else row


def _from_plot() -> Iterator[Measured]:
    network = load_network("dgx-h100")
    for nodes, rates in BUS_GB_PER_S.items():
        members = 8 * nodes
        for power, rate in enumerate(rates):
            size = 2.0**20 * 4.0**power
            time_s = _trips("all_reduce", members) * size / (rate * 1e9)
            yield Measured(
                source=PLOT, network=network, kind="all_reduce", members=members, size_bytes=size,
                time_s=time_s,
            )  # fmt: skip


def _trips(kind: str, members: int) -> float:
    """Times its bytes that bus bandwidth counts."""
    return (2.0 if kind == "all_reduce" else 1.0) * (members - 1) / members


def _read(row: Mapping[str, str]) -> Iterator[Measured]:
    """What a row measured; nothing if its network, algorithm or convention of size is not known."""
    read = _READERS.get(row["source"])
    if read is not None and (found := read(row)) is not None:
        yield found


def _number(row: Mapping[str, str], name: str, otherwise: float = 0.0) -> float:
    return float(row[name]) if row.get(name) else otherwise


def _measured(row: Mapping[str, str], network: Network, members: int = 0, stride: int = 1) -> Measured:
    members = members or int(_number(row, "n_gpus"))
    kind = "send" if row["collective"] == "send_recv" else row["collective"]
    size = _number(row, "size_bytes", _MANY_BYTES)
    rate = _number(row, "busbw_GBps") * 1e9
    time_s = _number(row, "time_us") * 1e-6 or (_trips(kind, members) * size / rate if rate else 0.0)
    if "Ring" in row["algo"]:
        network = replace(
            network, levels=tuple(replace(each, in_network_reduction=False) for each in network.levels)
        )
    return Measured(
        source=row["source"], network=network, kind=kind, members=members, size_bytes=size, time_s=time_s,
        stride=stride,
    )  # fmt: skip


def _nodes_of(name: str, size: int) -> Network:
    """The catalog's network with so many devices in its innermost level."""
    network = load_network(name)
    return replace(network, levels=(replace(network.levels[0], size=size), *network.levels[1:]))


def _ml_engineering(row: Mapping[str, str]) -> Measured | None:
    known = {"A100-SXM": "dgx-a100", "H200-SXM": "dgx-h200", "MI300X": "mi300x-xgmi"}
    known["B200-SXM (AWS p6-b200)"] = "aws-p6-b200"
    name = known.get(row["hardware"])
    return _measured(row, load_network(name)) if name else None


def _slide(row: Mapping[str, str]) -> Measured | None:
    """One device a node where no NVLink is named, else full nodes; four nodes where several are."""
    network, gigabytes, members, stride = _SLIDES.get(row["fabric"], ("", 0.0, 0, 1))
    if not network:
        return None
    levels = list(load_network(network).levels)
    at = 0 if members <= 8 and stride == 1 else 1
    levels[at] = replace(
        levels[at], bytes_per_s=gigabytes * 1e9, in_network_reduction="SHARP" in row["fabric"]
    )
    return _measured(row, replace(load_network(network), levels=tuple(levels)), members, stride)


_SLIDES = {
    "PCIe4 intra-node": ("l40s-pcie", 32.0, 8, 1),
    "PCIe5 intra-node": ("l40s-pcie", 64.0, 8, 1),
    "NVLink2 intra-node": ("dgx2-v100", 150.0, 8, 1),
    "NVLink3 intra-node": ("dgx-a100", 300.0, 8, 1),
    "NVLink4 intra-node": ("dgx-h100", 450.0, 8, 1),
    "NVLink4 SHARP intra-node": ("dgx-h100", 450.0, 8, 1),
    "100GbE TCP/IP multi-node": ("gcp-a2", 12.5, 4, 8),
    "200Gb RDMA multi-node": ("dgx-a100", 25.0, 4, 8),
    "400Gb RDMA multi-node": ("dgx-h100", 50.0, 4, 8),
    "NVL3 + 8x200Gb RDMA": ("dgx-a100", 25.0, 32, 1),
    "NVL4 + 8x400Gb RDMA": ("dgx-h100", 50.0, 32, 1),
}


def _vidur(row: Mapping[str, str]) -> Measured | None:
    """Inside a node only: what joins the nodes is not stated."""
    known = {"A100-SXM-80GB (DGX)": "dgx-a100", "H100-SXM-80GB (DGX)": "dgx-h100"}
    known |= {"A100-PCIe pairwise NVLink": "a100-pcie", "H100-PCIe/NVL pairwise NVLink": "h100-nvl"}
    name = known.get(row["hardware"])
    return _measured(row, load_network(name)) if name and row["nodes"] == "1" else None


def _racks(row: Mapping[str, str]) -> Measured:
    return _measured(row, _nodes_of("gb300-nvl72", 64))


def _galvatron(row: Mapping[str, str]) -> Measured | None:
    """Of an NVLink node like DGX A100 (which it is not said to be); only series whose sizes are kept."""
    return _measured(row, load_network("dgx-a100")) if row["size_bytes"] else None


def _nnscaler(row: Mapping[str, str]) -> Measured | None:
    """All-reduces: of the others it is not said whether bytes are counted before or after."""
    if row["collective"] != "all_reduce":
        return None
    network = load_network("mi250x-slingshot")
    package, node, *outer = network.levels
    return _measured(row, replace(network, levels=(package, replace(node, size=8), *outer)))


def _simai(row: Mapping[str, str]) -> Measured | None:
    """Rings over nodes of 8 at 400 Gb/s for each (Alibaba's, assumed): the share of that bandwidth."""
    members = int(_number(row, "n_gpus"))
    if row["collective"] != "ring collective over NIC" or members < 16:
        return None
    network, size = load_network("dgx-h100"), _number(row, "size_bytes")
    rate = _number(row, "efficiency_ratio") * 8 * network.levels[1].bytes_per_s
    return Measured(
        source=row["source"], network=network, kind="all_gather", members=members, size_bytes=size,
        time_s=(members - 1) / members * size / rate,
    )  # fmt: skip


_READERS: Mapping[str, Callable[[Mapping[str, str]], Measured | None]] = {
    "ml-engineering network": _ml_engineering,
    "ml-engineering network (SHARP table)": _ml_engineering,
    "NVIDIA GTC24 S62129 slide": _slide,
    "GCP A3 Mega nccl-tests log": lambda row: _measured(row, load_network("gcp-a3-mega")),
    "DGX H100 2-node nccl-tests log": lambda row: _measured(row, _nodes_of("dgx-h100", 2)),
    "SkyPilot Nebius InfiniBand example": lambda row: _measured(row, load_network("dgx-h100")),
    "OCI GB300 bring-up guide": _racks,
    "vidur network profiling": _vidur,
    "Hetu-Galvatron default hardware profile": _galvatron,
    "nnScaler MI200 comm profile": _nnscaler,
    "SimAI bandwidth-ratio tables": _simai,
}
