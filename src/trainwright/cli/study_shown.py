"""What studies found, on a terminal: lines, tables, more lines, and claim by claim what holds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainwright.report import tables as printed

Parts = tuple[Iterable[str], Iterable[Any], Iterable[str]]  # lines, tables, lines


def _scaling(study: Any) -> Parts:
    from trainwright.study import scaling_tables as tables

    parts = (
        tables.weak_table, tables.marginal_table, tables.degree_table, tables.strong_table,
        tables.cases_table,
    )  # fmt: skip
    return tables.head_lines(study), [part(study) for part in parts], tables.tail_lines(study)


def _communication(study: Any) -> Parts:
    from trainwright.study import comp_vs_comm_tables as tables

    parts = (tables.models_table, tables.shares_table, tables.bands_table, tables.memory_table)
    return tables.head_lines(study), [part(study) for part in parts], tables.tail_lines(study)


def _design(study: Any) -> Parts:
    from trainwright.study import cluster_design_tables as tables
    from trainwright.study.design_clusters import FREE, METHOD, TABLES

    parts = [
        tables.footprint_table(study), *(tables.sweep_table(study, memory) for memory in study.sweeps),
        *(tables.clusters_table(study, space) for space in (METHOD, FREE, TABLES)),
        tables.front_table(study), tables.instances_table(study),
        *(tables.value_table(study, name) for name in study.values),
    ]  # fmt: skip
    return tables.head_lines(study), parts, ()


def _subnetworks(study: Any) -> Parts:
    from trainwright.study import subnetworks_tables as tables
    from trainwright.study.subnetworks_coupling import coupling_table

    parts = [tables.result_table(study, each.network, each.workers) for each in study.settings]
    parts += [coupling_table(study)] if study.estimates else []
    parts += [tables.map_table(study)] if study.places else []
    return (), parts, tables.study_lines(study)


def _flexible(outcomes: Any) -> Parts:
    from trainwright.study.flexible_table import case_table, reasons

    return (), [case_table(outcomes)], reasons(outcomes)


_PARTS: Mapping[str, Callable[[Any], Parts]] = {
    "flexible-plans": _flexible,
    "comp-vs-comm": _communication,
    "cluster-design": _design,
    "scaling": _scaling,
    "subnetworks": _subnetworks,
}
_CLAIMS = {"comp-vs-comm": "", "cluster-design": " {0.finding}", "scaling": " {0.finding}"}  # after a claim


def show_study(name: str, study: Any, figures: Sequence[Any]) -> None:
    """Print what a study found."""
    console = printed.open_console()
    before, parts, after = _PARTS[name](study)
    claims = [
        f"[{{0.verdict}}] {{0.claim}}{_CLAIMS[name]}".format(each) for each in figures if name in _CLAIMS
    ]
    printed.show(console, *(printed.indented(console, line) for line in before), *parts)
    printed.show(console, *(printed.indented(console, line) for line in (*after, *claims)))
