"""What coupling foretells of subnetworks in the study, beside what they lost."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from trainwright.report.tables import table
from trainwright.study.subnetworks import EXACT, ROUNDS, Result, Study

Row = Mapping[str, object]
HURTS = 0.10  # of what a network has learned: subnetworks that lose more are said to hurt


def coupling_rows(study: Study) -> list[Row]:
    """What was foretold from an exactly trained network, beside what subnetworks then lost.

    Shares are of what that network has learned; there are none if it has learned nothing. The coupling
    foretells what the cut costs. What meeting rarely costs is what local SGD lost; if that was not run, there
    is nothing to set beside the loss against exact training.
    """
    found: list[Row] = []
    for each in study.estimates:
        network, workers = each.experiment.network, each.experiment.workers
        result = next(
            r
            for r in study.of(network, workers)
            if r.method.kind == "whole" and r.method.setting(r.setting.steps) == each.algorithm
        )
        lost = {r.method.name: _above_exact(study, r) for r in study.of(network, workers)}
        by_rounds, measured = lost.get(ROUNDS), lost[result.method.name]
        predicted = None if by_rounds is None else each.share * each.learned + by_rounds
        by_cut = None if by_rounds is None else measured - by_rounds
        found.append(
            {
                "network": network, "workers": workers, "setting": each.algorithm,
                "off_diagonal": each.off_diagonal, "learned": each.learned,
                "predicted_share": _share(predicted, each.learned),
                "measured_share": _share(measured, each.learned),
                "predicted_share_by_cut": each.share, "measured_share_by_cut": _share(by_cut, each.learned),
                "predicted_excess_loss": predicted, "measured_excess_loss": measured,
                "local_sgd_excess_loss": by_rounds,
            }
        )  # fmt: skip
    return found


def _above_exact(study: Study, result: Result) -> float:
    exact = study.result(result.setting.network, result.setting.workers, EXACT)
    return result.loss.mean - exact.loss.mean


def _share(loss: float | None, learned: float) -> float | None:
    return None if loss is None or learned <= 0 else loss / learned


def share_pairs(rows: Sequence[Row], by: str = "") -> list[tuple[float, float]]:
    """Foretold and measured shares, in all or by the cut, where there are any."""
    shares = [(row[f"predicted_share{by}"], row[f"measured_share{by}"]) for row in rows]
    return [(a, b) for a, b in shares if isinstance(a, float) and isinstance(b, float)]


def coupling_lines(study: Study) -> list[str]:
    """For each cut whether it was foretold to hurt; and how often that, and the order, was right."""
    rows = coupling_rows(study)
    pairs = share_pairs(rows)
    if not pairs:
        return []
    right, total = ordered_pairs(pairs)
    alone, _ = ordered_pairs(share_pairs(rows, "_by_cut"))
    agreeing = sum((a > HURTS) == (b > HURTS) for a, b in pairs)
    return [
        *(_verdict(row) for row in rows if share_pairs([row])),
        f"Coupling, asked of exactly trained networks, with what local SGD loses, foretells which of two "
        f"cuts loses more of what was learned in {right} of {total} pairs of them ({alone} by the cut alone, "
        f"beside local SGD), and whether it hurts in {agreeing} of {len(pairs)} cuts.",
    ]


def _verdict(row: Row) -> str:
    """Whether a cut was foretold to hurt, and whether it does."""
    ((foretold, measured),) = share_pairs([row])
    said, seen = ("hurts" if each > HURTS else "does not hurt" for each in (foretold, measured))
    return (
        f"{row['network']}, {row['workers']} workers, {row['setting']}: foretold to lose {foretold:.0%} of "
        f"what was learned ({row['predicted_share_by_cut']:.0%} by the cut, the rest as local SGD): {said}; "
        f"measured {measured:.0%}: {seen}."
    )


def ordered_pairs(pairs: list[tuple[float, float]]) -> tuple[int, int]:
    """Of how many pairs both numbers say the same order, and how many there are."""
    both = [(a, b) for i, a in enumerate(pairs) for b in pairs[:i]]
    return sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in both), len(both)


def coupling_table(study: Study) -> Table:
    """Foretold and measured."""
    rows = [
        [
            f"{row['network']}, {row['workers']} workers", str(row["setting"]), f"{row['off_diagonal']:.0%}",
            *(_percent(row[f"{by}_share{of}"]) for of in ("_by_cut", "") for by in ("predicted", "measured")),
        ]
        for row in coupling_rows(study)
    ]  # fmt: skip
    heads = ["network", "cut", "off diagonal", "by cut", "measured", "in all", "measured"]
    return table("Coupling: foretold to be lost of what was learned, and measured", heads, rows, left=2)


def _percent(share: object) -> str:
    return f"{share:.1%}" if isinstance(share, float) else "-"
