"""`trainwright study cluster-design`: parallelization and cluster chosen together."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli import pages

if TYPE_CHECKING:
    from trainwright.api.findings import Findings, Tell
    from trainwright.study.cluster_design import Asked, Study

_TITLE = "Parallelization and cluster chosen together"
_MOST = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the study; defaults are those of `Asked`."""
    add = parser.add_argument
    add("--model", metavar="MODEL", help="a transformer (default: transformer-1t)")
    add("--recommender", metavar="MODEL", help="a DLRM (default: dlrm-1.2t)")
    add("--devices", metavar="N", help="of every cluster, a power of two (default: 1024)")
    add("--batch", metavar="N", help="sequences a step, a power of two (default: 256)")
    add("--clusters", metavar="C,D", help="to compare: devices like h100@dgx-h100, or TOML files of clusters")
    add("--out", metavar="DIR", help="tables (CSV, JSON), figures and heat maps (HTML, PNG) and an index")
    pages.add_reports(parser)
    add("--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output")


def run(options: argparse.Namespace) -> int:
    """Predict, tell, and write what was asked for."""
    from trainwright.cli.study_folder import save_findings
    from trainwright.output_file import save_text
    from trainwright.report.files import render_json
    from trainwright.study.cluster_design import run_study
    from trainwright.study.cluster_design_tables import study_tree

    study = run_study(_asked(options))
    notes = save_findings(options, lambda: findings_of(study))
    if options.json == "-":
        print(render_json(study_tree(study)), end="")
        return 0
    if options.json:
        save_text(Path(options.json), render_json(study_tree(study)))
    tell(study, notes)
    return 0


def _asked(options: argparse.Namespace) -> "Asked":
    """What the options say, over the defaults."""
    from trainwright.study.cluster_design import Asked
    from trainwright.units import parse_whole

    stated: dict[str, object] = {
        name: getattr(options, name) for name in ("model", "recommender") if getattr(options, name)
    }
    for name in ("devices", "batch"):
        if text := getattr(options, name):
            stated[name] = parse_whole(text, f"--{name}", most=_MOST)
    if options.clusters:
        stated["clusters"] = tuple(dict.fromkeys(each.strip() for each in options.clusters.split(",")))
    return Asked(**stated)  # type: ignore[arg-type]


def found(options: argparse.Namespace, tell: "Tell") -> "Findings":
    """What the study finds, for whoever shows it in another way."""
    from trainwright.study.cluster_design import run_study

    return findings_of(run_study(_asked(options)))


def findings_of(study: "Study") -> "Findings":
    """Tables, figures and lines."""
    from trainwright.api.findings import Findings
    from trainwright.study import cluster_design_tables as tables
    from trainwright.study.cluster_design_figures import study_figures

    return Findings(
        title=_TITLE, tables=tables.study_tables(study), tree=tables.study_tree(study),
        figures=study_figures(study), lines=tables.head_lines(study),
    )  # fmt: skip


def tell(study: "Study", notes: list[str]) -> None:
    """Tables for people, then claim by claim what was found."""
    from trainwright.report import tables as printed
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
    for line in notes:
        printed.show(console, line)
