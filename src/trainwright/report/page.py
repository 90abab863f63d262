"""One file that people pass around: question, answer, figures, assumptions, the command; it opens offline."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from trainwright.report.blocks import Blocks
from trainwright.report.figures import Figure
from trainwright.report.files import plain

ASSETS = Path(__file__).parent / "assets"
_THEME = (
    'document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches'
    ' ? "dark" : "light";'
)
_DRAW = """
const data = JSON.parse(document.getElementById("data").textContent);
for (const figure of data.figures) Charts.draw(document.getElementById("figure-" + figure.name), figure);
if (data.blocks) {
  Charts.drawTimeline(document.getElementById("timeline"), data.blocks);
  const choice = document.getElementById("place");
  const held = document.getElementById("held");
  const memory = () => Charts.drawMemory(
    held, data.blocks, Number(choice.value), data.capacity_bytes, document.getElementById("timeline"));
  choice.addEventListener("change", memory);
  memory();
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A table of a page: every row has the first row's columns."""

    title: str
    rows: Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a report says, in the order in which it is read."""

    title: str
    question: Sequence[str]
    answer: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[Rows]
    assumptions: Sequence[str]
    command: str
    blocks: Blocks | None = None
    capacity_bytes: float = 0.0


def render_page(page: Page) -> str:
    """The whole report as HTML: scripts, styles and data are in it."""
    parts = [
        f"<h1>{escape(page.title)}</h1>",
        "<h2>Question</h2>", *_paragraphs(page.question),
        "<h2>Answer</h2>", *_paragraphs(page.answer),
        *(_figure(each) for each in page.figures),
        *_timeline(page.blocks),
        *(_table(each) for each in page.tables if each.rows),
        "<h2>Assumptions and their sources</h2>", *_paragraphs(page.assumptions),
        "<h2>The command that made this</h2>", f"<pre>{escape(page.command)}</pre>",
    ]  # fmt: skip
    data = {"figures": page.figures, "blocks": page.blocks, "capacity_bytes": page.capacity_bytes}
    scripts = (
        f"<script>{_asset('echarts.min.js')}</script>\n<script>{_asset('charts.js')}</script>\n"
        f'<script type="application/json" id="data">{_embedded(data)}</script>\n<script>{_DRAW}</script>'
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{_asset('page.css')}</style><script>{_THEME}</script></head>\n"
        f"<body><main>\n{chr(10).join(parts)}\n</main>\n{scripts}</body></html>\n"
    )


def compact_json(value: object) -> str:
    """JSON of dataclasses, mappings and sequences without a space too many."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _embedded(value: object) -> str:
    """JSON that no HTML parser takes for the end of its script."""
    return compact_json(value).replace("<", "\\u003c")


def _paragraphs(lines: Sequence[str]) -> list[str]:
    return [f"<p>{escape(line)}</p>" for line in lines]


def _figure(figure: Figure) -> str:
    claim = ""
    if figure.claim:
        mark = "holds" if figure.holds else "fails"
        claim = (
            f'<p><b>Claim:</b> {escape(figure.claim)} <span class="{mark}">It {figure.verdict}.</span><br>'
            f"<b>Found:</b> {escape(figure.finding)}</p>"
        )
    title = escape(figure.title)
    return (
        f'<h2>{title}</h2>{claim}<div class="chart" id="figure-{escape(figure.name)}" '
        f'aria-label="{title}"></div>'
    )


def _timeline(blocks: Blocks | None) -> list[str]:
    if blocks is None:
        return []
    options = "".join(
        f'<option value="{number}">{escape(name)}</option>' for number, name in enumerate(blocks.places)
    )
    more = f" Not shown: {blocks.hidden} places more." if blocks.hidden else ""
    return [
        "<h2>The step</h2>",
        f'<p class="note">The height of a block is the share of it that is worked on; '
        f"{blocks.merged:,} tasks.{more} Scroll to zoom and drag to move, or by keyboard: + and -, arrows, "
        f'0 for all.</p><div class="chart" id="timeline" tabindex="0" aria-label="Timeline"></div>',
        f'<h2>Memory over the step</h2><label>Of <select id="place">{options}</select></label>'
        '<div class="chart" id="held"></div>',
    ]


def _table(table: Rows) -> str:
    names = list(table.rows[0])
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(row.get(name)))}</td>" for name in names) + "</tr>"
        for row in table.rows
    )
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else ("yes" if value else "no")
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
