"""Figures of the study of scaling: each with its claim, judged by the numbers in it."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from trainwright.report.figures import Axis, Band, Figure, Series
from trainwright.study.scaling import ALL, BEST, Study
from trainwright.study.scaling_points import ANY, FSDP, HSDP, PIPELINE, TENSOR, Point
from trainwright.study.scaling_returns import HALF, Curve, Marginal, marginals

Measure = Callable[[Point], float]
_DEVICES = Axis(title="devices", log=True)
_MFU = Axis(title="MFU", percent=True)
_OLDER, _NEWER = "a100", "h100"  # the two generations that publications compare
_QUICKLY = 2 / 3  # of its share: an added device that adds less, where returns diminish quickly
_FEW, _MANY = 128, 2048  # devices up to which FSDP alone is best, and on which it is not, as published


def study_figures(study: Study) -> Sequence[Figure]:
    """All that there are points for, in the order of the study."""
    main = study.curve("weak", study.asked.model, FSDP.name)
    figures: list[Figure] = []
    if main and len(main.points) > 1:
        figures += [_throughput(study, main), _power(study, main), _communication(main)]
        figures += [_marginal(study, main), _degree(study, main)]
    if study.cases("strong", ANY.name):
        figures.append(_strong(study))
    for draw, which in ((_size, "size"), (_context, "context"), (_generation, "generation")):
        if len(study.cases(which, FSDP.name)) > 1:  # one case compares with nothing
            figures.append(draw(study))
    return figures


def ends(study: Study, curve: Curve) -> tuple[Point, Point]:
    """The points between which losses are told, or the first and the last of what fits."""
    low, high = (curve.at(count) for count in study.asked.compared)
    return low or curve.points[0], high or curve.points[-1]


def change(study: Study, curve: Curve, measure: Measure) -> float:
    """The relative change of a measure between the two scales compared."""
    low, high = ends(study, curve)
    return measure(high) / measure(low) - 1.0


def _throughput(study: Study, main: Curve) -> Figure:
    low, high = ends(study, main)
    lost = change(study, main, _speed)
    plans = (main, study.curve("weak", main.case, BEST), study.curve("weak", main.case, HSDP.name))
    return Figure(
        name="weak_scaling", title=f"Weak scaling of {main.case} on {study.asked.device}",
        claim="As published for Llama-2 7B with FSDP on 128 and 2,048 H100, throughput per device falls by "
        "37 % (± 7 points): 16 times the devices give 10 times the throughput.",
        holds=-0.44 <= lost <= -0.30,
        finding=f"From {low.devices:,} to {high.devices:,} devices {lost:+.1%} per device: "
        f"{high.devices / low.devices:.3g} times the devices give {high.tokens_per_s / low.tokens_per_s:.1f} "
        "times the throughput.",
        x=_DEVICES, y=Axis(title="tokens/s per device"),
        series=tuple(_series(each.plan, each, _speed) for each in plans if each),
    )  # fmt: skip


def _power(study: Study, main: Curve) -> Figure:
    first = main.points[0]
    measures = (("throughput", _speed), ("power", _watts), ("tokens per joule", _frugal))
    watts, frugal = change(study, main, _watts), change(study, main, _frugal)
    return Figure(
        name="power", title="FSDP per device, relative to the smallest scale",
        claim="Devices that wait draw nearly as much: power per device falls by 3 to 9 % (published: 5.87 %) "
        "and tokens per joule by about a third (25 to 40 %; published: 33 %).",
        holds=-0.09 <= watts <= -0.03 and -0.40 <= frugal <= -0.25,
        finding=f"Power {watts:+.1%}, tokens per joule {frugal:+.1%}, between the same scales.",
        x=_DEVICES, y=Axis(title="relative", percent=True),
        series=tuple(
            Series(name=name, x=_scales(main), y=tuple(of(each) / of(first) for each in main.points))
            for name, of in measures
        ),
    )  # fmt: skip


def _communication(main: Curve) -> Figure:
    exposed = [each.exposed_share for each in main.points]
    return Figure(
        name="communication", title="Communication of FSDP over the step",
        claim="All-gathers and reduce-scatters grow with devices until compute cannot hide them: the exposed "
        "share rises at every scale.",
        holds=all(low < high for low, high in pairwise(exposed)),
        finding=f"Exposed {exposed[0]:.0%} to {exposed[-1]:.0%} of the step; in all "
        f"{main.points[0].communication_share:.0%} to {main.points[-1].communication_share:.0%}.",
        x=_DEVICES, y=Axis(title="of the step", percent=True),
        series=(
            _series("all communication", main, lambda each: each.communication_share),
            _series("exposed", main, lambda each: each.exposed_share),
        ),
    )  # fmt: skip


def _marginal(study: Study, main: Curve) -> Figure:
    curves = [study.curve("weak", main.case, plan) for plan in (FSDP.name, BEST, ALL)]
    steps = {each.plan: marginals(each) for each in curves if each and len(each.points) > 1}
    told = "; ".join(f"{plan} {_last(each)}" for plan, each in steps.items())
    return Figure(
        name="marginal", title="What an added device adds, of what each gave at the smallest scale",
        claim="Returns diminish quickly, even with the best of FSDP, TP and PP: in the last step an added "
        "device adds less than two thirds of its share (published: 60 % from 128 to 2,048, FSDP).",
        holds=all(steps[plan][-1].share < _QUICKLY for plan in (FSDP.name, BEST)),
        finding=f"In the last step: {told}.",
        x=Axis(title="devices after the step", log=True), y=Axis(title="of its share", percent=True),
        series=tuple(
            Series(name=plan, x=tuple(float(s.more) for s in each), y=tuple(s.share for s in each))
            for plan, each in steps.items()
        ),
        bands=(Band(name="beyond the knee", low=0.0, high=HALF),),
    )  # fmt: skip


def _last(steps: Sequence[Marginal]) -> str:
    first, last = steps[0], steps[-1]
    watt = last.tokens_per_joule / first.tokens_per_joule
    return f"{last.share:.0%} ({watt:.0%} of the first step's tokens for a watt)"


def _degree(study: Study, main: Curve) -> Figure:
    rivals = [study.curve("degree", main.case, each.name) for each in (*TENSOR, *PIPELINE)]
    small = [each.devices for each in main.points if each.devices <= _FEW]
    alone = [count for count in small if study.best_degree(count) == 1]
    last = main.points[-1].devices
    first = [each.first for each in study.crossings if each.first is not None and each.plan[-1:].isdigit()]
    return Figure(
        name="degree", title="Tensor or pipeline parallelism over FSDP alone, at each scale",
        claim="Where FSDP alone fits, the best degree of model parallelism is 1 on 128 devices or fewer, and "
        "2 to 4 on 2,048.",
        holds=alone == small and (last < _MANY or study.best_degree(last) in (2, 4)),
        finding=f"FSDP alone is best at {len(alone)} of {len(small)} scales up to {_FEW}; degree "
        f"{study.best_degree(last)} at {last:,}; overtaken "
        + (f"first at {min(first):,}." if first else "nowhere."),
        x=_DEVICES, y=Axis(title="throughput over FSDP's", percent=True),
        series=tuple(_over(each, main) for each in rivals if each),
    )  # fmt: skip


def _over(curve: Curve, main: Curve) -> Series:
    pairs = [(each, other) for each in curve.points if (other := main.at(each.devices))]
    return Series(
        name=curve.plan, x=tuple(float(each.devices) for each, _ in pairs),
        y=tuple(each.tokens_per_s / other.tokens_per_s for each, other in pairs),
    )  # fmt: skip


def _strong(study: Study) -> Figure:
    curves = study.cases("strong", ANY.name)
    falls = [all(high.mfu < low.mfu for low, high in pairwise(each.points)) for each in curves]
    told = "; ".join(
        f"{each.case}: {each.points[0].mfu:.1%} on {each.points[0].devices:,} to "
        f"{each.points[-1].mfu:.1%} on {each.points[-1].devices:,}"
        for each in curves
    )
    return Figure(
        name="strong_scaling", title="MFU at a fixed batch, with the best degrees at each scale",
        claim="At a fixed global batch MFU falls with every scale.", holds=all(falls), finding=f"{told}.",
        x=_DEVICES, y=_MFU, series=tuple(_series(each.case, each, _mfu) for each in curves),
    )  # fmt: skip


def _size(study: Study) -> Figure:
    curves = study.cases("size", FSDP.name)
    kept = [1.0 + change(study, each, _speed) for each in curves]
    told = ", ".join(f"{each.case} {share:.0%}" for each, share in zip(curves, kept, strict=True))
    return Figure(
        name="model_size", title="FSDP by model: throughput per device over that at its smallest scale",
        claim="The smaller the model, the more of its throughput is lost at scale: hops of a ring take as "
        "long whatever the bytes.",
        holds=all(low < high for low, high in pairwise(kept)), finding=f"Kept at scale: {told}.",
        x=_DEVICES, y=Axis(title="relative", percent=True),
        series=tuple(_relative(each) for each in curves),
    )  # fmt: skip


def _relative(curve: Curve) -> Series:
    first = curve.points[0].tokens_per_s_per_device
    return _series(curve.case, curve, lambda each: each.tokens_per_s_per_device / first)


def _context(study: Study) -> Figure:
    curves = study.cases("context", FSDP.name)
    exposed = [ends(study, each)[1].exposed_share for each in curves]
    told = ", ".join(f"{each.case} {share:.0%}" for each, share in zip(curves, exposed, strict=True))
    return Figure(
        name="context", title="Exposed communication of FSDP by length of sequences, at one local batch",
        claim="Longer sequences hide more: each has less exposed communication at scale than a shorter one.",
        holds=all(low > high for low, high in pairwise(exposed)), finding=f"Exposed at scale: {told}.",
        x=_DEVICES, y=Axis(title="exposed, of the step", percent=True),
        series=tuple(_series(each.case, each, lambda point: point.exposed_share) for each in curves),
    )  # fmt: skip


def _generation(study: Study) -> Figure:
    curves = study.cases("generation", FSDP.name)
    named = {each.case: each for each in curves}
    older, newer = (
        (named[_OLDER], named[_NEWER]) if {_OLDER, _NEWER} <= set(named) else (curves[0], curves[-1])
    )
    pairs = [(each, other) for each in newer.points if (other := older.at(each.devices))]
    told = ", ".join(f"{each.case} {ends(study, each)[0].mfu:.1%}" for each in curves)
    return Figure(
        name="generation", title="MFU of the same job by generation of devices, FSDP",
        claim="The faster device is the more bound by communication: MFU on "
        f"{older.case} is above MFU on {newer.case} at every scale (published: A100 59.67, H100 40.77 %).",
        holds=bool(pairs) and all(each.mfu < other.mfu for each, other in pairs),
        finding=f"On {study.asked.compared[0]:,} devices {told}.",
        x=_DEVICES, y=_MFU, series=tuple(_series(each.case, each, _mfu) for each in curves),
    )  # fmt: skip


def _series(name: str, curve: Curve, measure: Measure) -> Series:
    return Series(
        name=name, x=_scales(curve), y=tuple(measure(each) for each in curve.points),
    )  # fmt: skip


def _scales(curve: Curve) -> tuple[float, ...]:
    return tuple(float(each.devices) for each in curve.points)


def _speed(point: Point) -> float:
    return point.tokens_per_s_per_device


def _watts(point: Point) -> float:
    return point.device_w


def _frugal(point: Point) -> float:
    return point.tokens_per_joule


def _mfu(point: Point) -> float:
    return point.mfu
