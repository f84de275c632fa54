"""Panels as SVG: axes, ticks, log scales, lines and points, a legend; readable in any viewer and styled by a page.

A series has its points as data, [place of x, place of y, text of x, text of y]: a page shows them on hover.
"""

import json
import math
from dataclasses import dataclass
from html import escape

from ..document import Panel, Series
from .words import clean

__all__ = ["file", "panel"]

Place = int | float
Point = tuple[float, float]

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 40, 48
LEGEND_LINE, LETTER = 20, 6.6
MOST_MARKED = 30
# Two per pixel; more could not be seen.
MOST_DRAWN = 600
# Okabe and Ito's palette; each has a marker and a dash too, so that series do not differ by color alone.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.6l3.4 6.2h-6.8z",
    "m0-3.8l3.8 3.8l-3.8 3.8l-3.8-3.8z",
    "m-3.2-3.2l6.4 6.4m0-6.4l-6.4 6.4",
    "m0 3.6l3.4-6.2h-6.8z",
)
DASHES = ("none", "7 5", "1 4", "9 4 1 4", "none", "7 5")
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high`, logarithms on a log scale, put between two places."""

    low: float
    high: float
    log: bool
    start: Place
    end: Place

    def place(self, value: float) -> float:
        share = ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[tuple[float, str]]:
        """(value, text): powers of ten on a log scale that spans two, else round steps."""
        if not self.log:
            return _steps(self.low, self.high)
        powers = range(math.ceil(self.low), math.floor(self.high) + 1)
        if len(powers) >= 2:
            return [(10.0**power, _power(power)) for power in powers[:: math.ceil(len(powers) / 6)]]
        return [tick for tick in _steps(10**self.low, 10**self.high) if tick[0] > 0]


def panel(panel: Panel) -> str:
    """An <svg> element."""
    drawable = [(series, _drawable(series, panel)) for series in panel.series]
    points = [point for _, points in drawable for point in points if point]
    legend, height = _legend(panel.series)
    size = HEIGHT + height
    description = f"{clean(panel.title)}: {clean(panel.y_label)} by {clean(panel.x_label)}"
    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {size}" width="{WIDTH}" height="{size}" role="img" '
        f'data-x="{escape(clean(panel.x_label))}" data-y="{escape(clean(panel.y_label))}" '
        f'font-family="system-ui, sans-serif" font-size="12" aria-label="{escape(description)}">',
        f'<rect class="ground" width="{WIDTH}" height="{size}" fill="#ffffff"/>',
        _text(LEFT, 20, panel.title, "title", most=50, extra='font-size="14" font-weight="600"'),
    ]
    if points:
        x = _axis([x for x, _ in points], panel.log_x, LEFT, WIDTH - RIGHT)
        y = _axis([y for _, y in points], panel.log_y, HEIGHT - BOTTOM, TOP)
        parts += [*_grid(x, y), *(_series(i, series, points, x, y) for i, (series, points) in enumerate(drawable))]
    else:
        parts.append(_text(WIDTH / 2, HEIGHT / 2, "No values yet", "label", anchor="middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts += [
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, panel.x_label, "label", anchor="middle", most=55),
        _text(14, middle, panel.y_label, "label", "middle", 36, f'transform="rotate(-90 14 {middle:g})"'),
        *legend,
        '<circle class="ring" r="6" fill="none" display="none"/>',
        "</svg>",
    ]
    return "\n".join(parts)


def file(content: Panel) -> str:
    """A panel as the content of a file."""
    return panel(content).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def _drawable(series: Series, panel: Panel) -> list[Point | None]:
    """The points, None for those that cannot be drawn on the axes."""

    def fits(value: float, log: bool) -> bool:
        return math.isfinite(value) and (value > 0 or not log)

    pairs = zip(series.x, series.y, strict=True)
    points = [(x, y) if fits(x, panel.log_x) and fits(y, panel.log_y) else None for x, y in pairs]
    return _thin(points) if series.kind == "line" and len(points) > MOST_DRAWN else points


def _thin(points: list[Point | None]) -> list[Point | None]:
    """The ends, and of each chunk in between the lowest and the highest point: no peak and no gap is lost."""
    result, size = points[:1], math.ceil(2 * len(points) / MOST_DRAWN)
    for start in range(1, len(points) - 1, size):
        chunk = points[start : min(start + size, len(points) - 1)]
        heights = [(point[1], place) for place, point in enumerate(chunk) if point]
        extremes = {min(heights)[1], max(heights)[1]} if heights else set()
        result += [point for place, point in enumerate(chunk) if not point or place in extremes]
    return result + points[-1:]


def _axis(values: list[float], log: bool, start: Place, end: Place) -> Axis:
    """All values, with a margin."""
    ends = [math.log10(value) if log else value for value in (min(values), max(values))]
    margin = 0.04 * (ends[1] - ends[0]) or 0.05 * abs(ends[0]) or 0.5
    return Axis(ends[0] - margin, ends[1] + margin, log, start, end)


def _steps(low: float, high: float) -> list[tuple[float, str]]:
    """Multiples of 1, 2 or 5 times a power of ten, three to six of them."""
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = min(factor for factor in (1, 2, 5, 10) if factor * power >= rough) * power
    values = [count * step for count in range(math.ceil(low / step), math.floor(high / step) + 1)]
    decimals = max(0, -math.floor(math.log10(step)))
    plain = decimals <= 4 and max(map(abs, values)) < 1e6
    texts = (f"{value:.{decimals}f}" if plain else f"{value:.3g}" for value in values)
    return [(value, text.replace("-", "−")) for value, text in zip(values, texts, strict=True)]


def _power(power: int) -> str:
    return f"{10.0**power:g}" if abs(power) <= 3 else "10" + str(power).translate(SUPERSCRIPTS)


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    for value, text in x.ticks():
        place = x.place(value)
        parts.append(f'<path class="grid" d="M{place} {TOP}V{HEIGHT - BOTTOM}" stroke="#e6e6e6"/>')
        parts.append(_text(place, HEIGHT - BOTTOM + 16, text, "tick", anchor="middle"))
    for value, text in y.ticks():
        place = y.place(value)
        parts.append(f'<path class="grid" d="M{LEFT} {place}H{WIDTH - RIGHT}" stroke="#e6e6e6"/>')
        parts.append(_text(LEFT - 6, place + 4, text, "tick", anchor="end"))
    parts.append(
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="#888888" fill="none"/>'
    )
    return parts


def _series(index: int, series: Series, points: list[Point | None], x: Axis, y: Axis) -> str:
    """A line, broken where a point is missing, and markers where they are few enough to be distinct."""
    places = [point and (x.place(point[0]), y.place(point[1])) for point in points]
    pairs = zip(points, places, strict=True)
    texts = [[*place, f"{point[0]:.4g}", f"{point[1]:.4g}"] for point, place in pairs if point and place]
    line = ""
    if series.kind == "line":
        pairs = zip([None, *places], places, strict=False)
        # h0: a point without neighbors is a dot.
        line = "".join(
            f"L{here[0]} {here[1]}" if before else f"M{here[0]} {here[1]}h0" for before, here in pairs if here
        )
    marks = "".join(_mark(index, *place) for place in places if place) if _has_markers(series) else ""
    data = escape(json.dumps(texts, separators=(",", ":"), ensure_ascii=False))
    attributes = f'class="series" data-name="{escape(clean(series.name))}" data-points="{data}"'
    return f"<g {attributes}>{_strokes(index, line, marks)}</g>"


def _legend(series: tuple[Series, ...]) -> tuple[list[str], int]:
    """The names of the series, below the axes, and the height that they take."""
    parts, left, line = [], LEFT, 0
    for index, item in enumerate(series):
        name = _short(item.name, 44)
        width = 30 + round(LETTER * len(name))
        if left + width > WIDTH and left > LEFT:
            left, line = LEFT, line + 1
        y = HEIGHT + 8 + LEGEND_LINE * line
        sample = f"M{left} {y}h20" if item.kind == "line" else ""
        parts.append(_strokes(index, sample, _mark(index, left + 10, y) if _has_markers(item) else ""))
        parts.append(_text(left + 26, y + 4, name, "label"))
        left += width + 12
    return parts, LEGEND_LINE * (line + 1) if series else 0


def _has_markers(series: Series) -> bool:
    """Two points are a line to compare with, and need no markers."""
    return series.kind == "points" or (len(series.x) <= MOST_MARKED and len(series.x) != 2)


def _mark(index: int, x: Place, y: Place) -> str:
    return f"M{x} {y}{MARKERS[index % len(MARKERS)]}"


def _strokes(index: int, line: str, marks: str) -> str:
    """Either may be empty. A seventh series has the color of the first, but another dash."""
    color, dash = COLORS[index % len(COLORS)], DASHES[(index + index // len(COLORS)) % len(DASHES)]
    manner = f'fill="none" stroke-width="1.8" stroke-linecap="round" stroke-dasharray="{dash}"'
    parts = [f'<path class="line" d="{line}" {manner}/>'] if line else []
    parts += [f'<path class="marks" d="{marks}" fill="{color}"/>'] if marks else []
    return f'<g class="c{index % len(COLORS)}" stroke="{color}">{"".join(parts)}</g>'


def _text(x: Place, y: Place, text: str, kind: str, anchor: str = "start", most: int = 60, extra: str = "") -> str:
    color = "#222222" if kind == "title" else "#555555"
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}"'
    return f'<text class="{kind}" {place} {extra}>{escape(_short(text, most))}</text>'


def _short(text: str, most: int) -> str:
    text = clean(text)
    return text if len(text) <= most else text[: most - 1] + "…"
