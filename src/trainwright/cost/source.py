"""Where operator times come from, chosen by name: roofline, calibrated, profiled or projected."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import Cluster, Device
from trainwright.cost.constants import OWN, Efficiency, Stack
from trainwright.cost.expected import render_expected
from trainwright.cost.fabric import PERFECT, alike
from trainwright.cost.fitted import Source, fitted_source
from trainwright.cost.kernels import build_kernels
from trainwright.cost.load import Constants, Interval
from trainwright.cost.profile import Profile, build_profile
from trainwright.cost.profile_seal import check_measurements, cluster_changed
from trainwright.cost.table import build_table
from trainwright.errors import BadInput, UnknownName

SOURCES = ("roofline", "calibrated", "profiled", "projected")
MEASURED = ("profiled", "projected")
# What a cluster file may state of a device's efficiency: shares of its datasheet.
SHARES = (
    "gemm", "gemm_fp8", "gemm_fp4", "memory", "attention_forward", "attention_backward", "inner_link",
    "outer_link", "host_link",
)  # fmt: skip
# Nothing is lost on the way to the datasheet's rates.
ROOFLINE = Efficiency(
    gemm=1.0, gemm_fp8=1.0, gemm_fp4=1.0, depth=0.0, tile_penalty=0.0, kernel_s=0.0, memory=1.0,
    attention_forward=1.0, attention_backward=1.0, host_link=1.0, fabrics=alike(PERFECT), basis="roofline",
    buffered=True,
)  # fmt: skip
# What to expect of times measured on the very machine: see docs/accuracy_here.md.
_HERE = {"profiled": Interval(low=0.75, high=1.35), "projected": Interval(low=0.65, high=1.5)}
_ELSEWHERE = Interval(low=0.5, high=2.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What stands beside a profile: fitted constants for what it has not measured, and software."""

    constants: Constants
    stack: Stack


def load_profile(path: Path) -> tuple[Profile, Cluster]:
    """The profile in a cluster file, and the cluster that was profiled."""
    found = _profile_of(path)
    if found is None:
        raise BadInput("profile", str(path), "has no [profile]", "write one with trainwright profile")
    return found, load_cluster(str(path))


def parse_cost(text: str) -> tuple[str, str]:
    """The name of a source and the file behind it, or nothing: `projected:profile.toml`."""
    name, colon, file = text.partition(":")
    if name not in SOURCES:
        raise UnknownName("--cost", name, SOURCES)
    if name not in MEASURED and colon:
        raise BadInput("--cost", text, f"{name} needs no file", f"write {name}")
    if colon and not file:
        raise BadInput("--cost", text, "names no file after the colon", f"write {name}:FILE")
    return name, file


def build_source(
    text: str | None, where: str, cluster: Cluster, constants: Constants, stack: Stack | None
) -> Source:
    """The source that `--cost` and the cluster `where` mean.

    A cluster file that holds a profile is its own source unless another one is asked for; any other cluster
    has fitted constants. `stack` is what `--stack` asks for.
    """
    name, file = parse_cost(text) if text is not None else ("", "")
    own = _profile_of(Path(where)) if where.endswith(".toml") else None
    if text is None:
        name = "profiled" if own is not None else "calibrated"
    if name == "calibrated":
        fitted = fitted_source(constants, cluster, stack)
        return with_own(fitted, own_efficiency(Path(where))) if where.endswith(".toml") else fitted
    if name == "roofline":
        return Source(
            efficiency=ROOFLINE, stack=stack or constants.stack("generic"), interval=_ELSEWHERE,
            notes=("Operator times: the datasheet's rates, nothing lost: a bound, no prediction.",),
        )  # fmt: skip
    if file:
        profile, measured = load_profile(Path(file))
    elif own is not None:
        profile, measured = own, cluster
    else:
        raise BadInput(
            "--cost", text or "", f"names no file, and {where} has no profile", f"write {name}:FILE"
        )
    software = stack or _software(own is not None, profile, constants)
    return _measured(name, profile, measured, cluster, _Asked(constants=constants, stack=software))


def with_own(source: Source, own: Mapping[str, float]) -> Source:
    """The source with a cluster file's own efficiencies."""
    if not own:
        return source
    listed = ", ".join(f"{name} {value:.3g}" for name, value in own.items())
    notes = (*source.notes, f"Of the cluster file: {listed}.")
    return replace(source, efficiency=replace(source.efficiency, **own), notes=notes)  # type: ignore[arg-type]


def own_efficiency(path: Path) -> dict[str, float]:
    """What [efficiency] of a cluster file says, such as `gemm = 0.7`: shares of the datasheet."""
    table = _read(path).get("efficiency", {})
    thing = f"cluster file {path} efficiency"
    if not isinstance(table, dict):
        raise BadInput(thing, str(table), "is no table", "write gemm = 0.7 under [efficiency]")
    for name, value in table.items():
        if name not in SHARES:
            raise UnknownName(thing, name, SHARES)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
            raise BadInput(f"{thing} {name}", value, "is no share of a datasheet's rate", "write it like 0.7")
    return {name: float(value) for name, value in table.items()}


def _software(here: bool, profile: Profile, constants: Constants) -> Stack:
    """What runs on a profiled machine unless asked otherwise: our runtime; elsewhere, unknown software."""
    if not here:
        return constants.stack("generic")
    host_s = profile.operator_s if _runs_ahead(profile) else 0.0
    return replace(OWN, interference=profile.interference, step_s=profile.step_s, op_s=host_s)


def _runs_ahead(profile: Profile) -> bool:
    """Whether the host gives out operators while earlier ones run: on accelerators, measured in 16 bit."""
    return profile.dtype != "fp32"


def _measured(name: str, profile: Profile, measured: Cluster, cluster: Cluster, asked: _Asked) -> Source:
    here = measured.device == cluster.device
    same_network = measured.network == cluster.network
    if not here or _runs_ahead(profile):  # the host's time is the stack's, beside the device's
        profile = replace(profile, operator_s=0.0)
    efficiency = replace(
        ROOFLINE if same_network else asked.constants.efficiency(cluster.device),
        kernels=build_kernels(name, profile, measured.device),
        table=build_table(profile.collectives) if same_network else None,
        kernel_s=profile.operator_s, host_link=0.7, basis=name,
    )  # fmt: skip
    return Source(
        efficiency=efficiency, stack=asked.stack, interval=_HERE[name] if here else _ELSEWHERE,
        notes=_told(name, profile, measured.device, cluster, same_network),
    )  # fmt: skip


def _told(
    name: str, profile: Profile, device: Device, cluster: Cluster, same_network: bool
) -> tuple[str, ...]:
    """What was measured, what is projected, and how far."""
    where = f"measured on {device.name} ({profile.software}, {profile.measured})"
    counts = f"{len(profile.kernels)} kernels and {len(profile.collectives)} collectives"
    block = profile.block
    layer = f"hidden {block.hidden}, ffn {block.ffn}, {block.batch} x {block.seq} tokens"
    region = sum(each.region for each in profile.kernels)
    notes = [f"Operator times: {where}, {counts}; each between measured shapes."]
    if name == "projected":
        notes = [
            f"Operator times: projected from {region} kernels of one layer ({layer}) {where}, in proportion "
            "to FLOPs and bytes."
        ]
    notes.append(render_expected(name, profile, device))
    if device != cluster.device:
        times = cluster.device.peak("bf16") / device.peak(profile.dtype)
        memory = cluster.device.memory[0].bytes_per_s / device.memory[0].bytes_per_s
        notes.append(
            f"They are carried over to {cluster.device.name}, {times:.3g}x as fast in bf16, {memory:.3g}x in "
            "memory: a projection far beyond what was measured, with a wide range."
        )
    if not same_network:
        notes.append("Collectives: by formula, with constants of the fabric; none were measured.")
    if profile.changed:
        notes.append("The profile's device or network was edited or damaged since it was written.")
    if profile.missing:
        notes.append(f"The profile lacks {', '.join(profile.missing)}: timed as what is most alike.")
    return tuple(notes)


def _profile_of(path: Path) -> Profile | None:
    table = _read(path)
    found, thing = table.get("profile"), f"profile {path}"
    if isinstance(found, dict):
        check_measurements(table, thing)
        return replace(build_profile(found, thing), changed=cluster_changed(table))
    return None if found is None else build_profile(found, thing)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise BadInput("profile", str(path), "does not exist", "check the path") from None
    except (OSError, ValueError) as error:
        raise BadInput("profile", str(path), f"cannot be read ({error})", "check the file") from None


__all__ = ["MEASURED", "SOURCES", "Source", "build_source", "load_profile", "parse_cost"]
