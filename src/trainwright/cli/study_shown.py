"""What studies found, on a terminal."""

from collections.abc import Callable, Mapping
from typing import Any

from trainwright.report import tables as printed


def _show_scaling(study: Any) -> None:
    from trainwright.study import scaling_tables as tables
    from trainwright.study.scaling_figures import study_figures

    console = printed.open_console()
    parts = (
        tables.weak_table, tables.marginal_table, tables.degree_table, tables.strong_table,
        tables.cases_table,
    )  # fmt: skip
    for line in tables.head_lines(study):
        printed.show(console, printed.indented(console, line))
    for part in parts:
        printed.show(console, part(study))
    for line in tables.tail_lines(study):
        printed.show(console, printed.indented(console, line))
    for figure in study_figures(study):
        told = f"[{figure.verdict}] {figure.claim} {figure.finding}"
        printed.show(console, printed.indented(console, told))


def _show_communication(study: Any) -> None:
    from trainwright.study import comp_vs_comm_tables as tables
    from trainwright.study.comp_vs_comm_figures import study_figures

    console = printed.open_console()
    for line in tables.head_lines(study):
        printed.show(console, printed.indented(console, line))
    for part in (tables.models_table, tables.shares_table, tables.bands_table, tables.memory_table):
        printed.show(console, part(study))
    for line in tables.tail_lines(study):
        printed.show(console, printed.indented(console, line))
    for figure in study_figures(study):
        printed.show(console, printed.indented(console, f"[{figure.verdict}] {figure.claim}"))


def _show_design(study: Any) -> None:
    """Tables for people, then claim by claim what was found."""
    from trainwright.study import cluster_design_tables as tables
    from trainwright.study.cluster_design_figures import study_figures
    from trainwright.study.design_clusters import FREE, METHOD, TABLES

    console = printed.open_console()
    for line in tables.head_lines(study):
        printed.show(console, printed.indented(console, line))
    printed.show(console, tables.footprint_table(study))
    for memory in study.sweeps:
        printed.show(console, tables.sweep_table(study, memory))
    for space in (METHOD, FREE, TABLES):
        printed.show(console, tables.clusters_table(study, space))
    printed.show(console, tables.front_table(study), tables.instances_table(study))
    for name in study.values:
        printed.show(console, tables.value_table(study, name))
    for figure in study_figures(study):
        told = f"[{figure.verdict}] {figure.claim} {figure.finding}"
        printed.show(console, printed.indented(console, told))


def _show_subnetworks(study: Any) -> None:
    from trainwright.study import subnetworks_tables as tables
    from trainwright.study.subnetworks_coupling import coupling_table

    console = printed.open_console()
    for setting in study.settings:
        printed.show(console, tables.result_table(study, setting.network, setting.workers))
    if study.estimates:
        printed.show(console, coupling_table(study))
    if study.places:
        printed.show(console, tables.map_table(study))
    for line in tables.study_lines(study):
        printed.show(console, printed.indented(console, line))


def _show_flexible(outcomes: Any) -> None:
    from trainwright.study.flexible_table import case_table, reasons

    console = printed.open_console()
    printed.show(console, case_table(outcomes))
    for line in reasons(outcomes):
        printed.show(console, printed.indented(console, line))


SHOW: Mapping[str, Callable[[Any], None]] = {
    "flexible-plans": _show_flexible,
    "comp-vs-comm": _show_communication,
    "cluster-design": _show_design,
    "scaling": _show_scaling,
    "subnetworks": _show_subnetworks,
}
