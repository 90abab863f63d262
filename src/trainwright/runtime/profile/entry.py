"""A profile as a cluster file: the device and network that were measured, and all measurements."""

import os
from collections.abc import Iterable, Sequence
from math import inf

from trainwright.cost.profile import PRODUCTS, Collective, Profile
from trainwright.cost.profile_seal import seal_profile

_HOST_BYTES_PER_S = 25e9  # pinned copies over PCIe 4.0, assumed: it is not measured
_UNKNOWN = "power and price are not measured: set them if you ask for energy or money"


def render_entry(profile: Profile, name: str, at_once: int, memory_bytes: float) -> str:
    """The file; at most `at_once` processes can compute at the same time (0: all)."""
    cpu = profile.dtype == "fp32"
    rate = max((each.amount / each.seconds for each in profile.kernels if each.work in PRODUCTS), default=1e9)
    moved = [each for each in profile.kernels if each.work in ("copy", "add.forward")]
    largest = max(moved, key=lambda each: each.amount, default=None)  # smaller ones may be in a cache
    stream = largest.amount / largest.seconds if largest else 1e9
    host = stream if cpu else _HOST_BYTES_PER_S
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / max(profile.processes, 1)
    found = _link(profile.collectives)
    latency_s, link = found or (1e-4, 1e9)
    lines = [
        "# Written by trainwright profile. Usable wherever a CLUSTER is asked for. You may change count,",
        "# power and price. Remove the checksums of [profile] if you change what was measured.",
        f"name = {repr_text(name)}", f"count = {profile.processes}",
    ]  # fmt: skip
    if at_once:
        lines.append(f"at_once = {at_once}  # processes that have a core of their own")
    rates = [f'{dtype} = "{rate / 1e9:.6g} GFLOP/s"' for dtype in ("fp32", "bf16", "fp16")]
    noted = f"highest rate of products measured in {profile.dtype}, other formats are taken to be alike"
    lines += [
        "", "[device]", f"name = {repr_text(name)}", f'family = "{"cpu" if cpu else "profiled"}"',
        "compute_units = 1", 'buffer = "1 MiB"', 'idle_power = "5 W"', 'peak_power = "15 W"',
        'price_per_hour = "0 $/h"', 'network = "here"', f'source = "{noted}; {_UNKNOWN}"', "",
        "[device.peak]", *rates,
    ]  # fmt: skip
    for tier, size, speed in (("memory", memory_bytes, stream), ("host", ram, host)):
        lines += [
            "", "[[device.memory]]", f'name = "{tier}"', f'capacity = "{size / 2**30:.6g} GiB"',
            *([f'usable_memory = "{size / 2**30:.6g} GiB"'] if tier == "memory" else []),
            f'bandwidth = "{speed / 1e9:.6g} GB/s"',
        ]  # fmt: skip
    lines += [
        "", "[network]", 'name = "here"', 'host_power = "0 W"', f'host_bandwidth = "{host / 1e9:.6g} GB/s"',
        f'source = "{"measured all-reduces" if found else "assumed: no all-reduce was measured"}"', "",
        "[[network.level]]", 'name = "node"', f'bandwidth = "{link / 1e9:.6g} GB/s"',
        f'latency = "{latency_s * 1e6:.6g} us"', "",
    ]  # fmt: skip
    return seal_profile("\n".join([*lines, *_profile_lines(profile)]) + "\n")


def _profile_lines(profile: Profile) -> Iterable[str]:
    yield from (
        "[profile]", f'dtype = "{profile.dtype}"', f'software = "{profile.software}"',
        f'measured = "{profile.measured}"', f'source = "{profile.source}"', f"threads = {profile.threads}",
        f"processes = {profile.processes}", f'operator = "{profile.operator_s * 1e6:.6g} us"',
        f'step = "{profile.step_s * 1e6:.6g} us"',
        f"interference = {profile.interference:.4g}",
        f"missing = [{', '.join(repr_text(each) for each in profile.missing)}]", "",
    )  # fmt: skip
    block = profile.block
    sizes = {name: getattr(block, name) for name in ("batch", "seq", "hidden", "ffn", "heads", "vocab")}
    yield f"block = {{ {', '.join(f'{key} = {value}' for key, value in sizes.items())} }}"
    yield "kernel = ["
    for each in profile.kernels:
        region = ", region = true" if each.region else ""
        listed = ", ".join(f"{size:.10g}" for size in each.sizes)
        yield (
            f'  {{ work = "{each.work}", sizes = [{listed}], time = "{each.seconds * 1e6:.6g} us", '
            f"spread = {each.spread:.3g}{region} }},"
        )
    yield from ("]", "collective = [")
    for one in profile.collectives:
        yield (
            f'  {{ kind = "{one.kind}", members = {one.members}, bytes = {one.size_bytes:.0f}, '
            f'time = "{one.seconds * 1e6:.6g} us", spread = {one.spread:.3g} }},'
        )
    yield "]"


def repr_text(text: str) -> str:
    """Text in quotes, as TOML has it."""
    return '"' + text.replace("\\", "").replace('"', "'") + '"'


def _link(collectives: Sequence[Collective]) -> tuple[float, float] | None:
    """Latency of a hop and bytes a second of a link, as a ring's all-reduce of the largest size has them."""
    found = [each for each in collectives if each.kind == "all_reduce"]
    if not found:
        return None
    members = min(each.members for each in found)
    found = sorted((each for each in found if each.members == members), key=lambda each: each.size_bytes)
    share = 2.0 * (members - 1.0) / members
    rate = found[-1].size_bytes * share / found[-1].seconds
    return max(found[0].seconds / (2.0 * (members - 1)), 1e-9), min(rate, inf)
