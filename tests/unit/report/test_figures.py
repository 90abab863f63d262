"""Figures: what they say, and that they can be drawn where the libraries are."""

from pathlib import Path

import pytest

from trainwright.report.figures import (
    Axis,
    Band,
    Figure,
    Series,
    can_draw,
    render_html,
    render_index,
    save_figures,
)

FIGURE = Figure(
    name="speed", title="Speed <fast>", claim="More is faster.", holds=True, finding="2x.",
    x=Axis(title="n", log=True), y=Axis(title="share", percent=True),
    series=(
        Series(name="a", x=(1.0, 2.0, 4.0), y=(0.1, 0.2, 0.4)),
        Series(name="b", x=(1.0, 2.0), y=(0.1, 0.3), kind="points"),
    ),
    bands=(Band(name="published", low=0.1, high=0.3),),
)  # fmt: skip
BARS = Figure(
    name="bars", title="Bars", claim="There are two.", holds=False, finding="One.", x=Axis(title=""),
    y=Axis(title="times", log=True), series=(Series(name="a", x=("one", "two"), y=(1.0, 2.0), kind="bars"),),
)  # fmt: skip
drawn = pytest.mark.skipif(not can_draw(), reason="plotly and matplotlib are not installed")


def test_a_series_has_as_many_x_as_y() -> None:
    with pytest.raises(ValueError, match="2 x and 1 y"):
        Series(name="a", x=(1.0, 2.0), y=(1.0,))


def test_the_index_tells_each_claim_and_whether_it_holds() -> None:
    page = render_index("Study", ["A line & more."], [FIGURE, BARS], ["points.csv"], drawn=True)
    assert "More is faster." in page
    assert "It holds." in page
    assert "It does not hold." in page
    assert "Speed &lt;fast&gt;" in page
    assert "A line &amp; more." in page
    assert 'src="speed.png"' in page
    assert 'href="points.csv"' in page


def test_an_index_without_figures_says_how_to_get_them() -> None:
    page = render_index("Study", [], [FIGURE], [], drawn=False)
    assert "trainwright[figures]" in page
    assert "<img" not in page


@drawn
def test_a_page_needs_no_network() -> None:
    page = render_html(FIGURE)
    assert "More is faster." in page
    assert "<script src=" not in page
    assert 'src="http' not in page
    assert "Plotly.newPlot" in page


@drawn
def test_figures_are_saved_as_pages_and_pictures(tmp_path: Path) -> None:
    save_figures(tmp_path, [FIGURE, BARS])
    assert {each.name for each in tmp_path.iterdir()} == {"speed.html", "speed.png", "bars.html", "bars.png"}
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
