"""Small charts as inline SVG: text in, text out, styled by the page that holds them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#0b5fa5", "#d1495b", "#2a8f5c", "#8a5fbf", "#c98314", "#4d5b66", "#12a0a8", "#9c4a1a")
"""Told apart without colour vision too: neighbours differ in lightness."""
TICKS = 6


@dataclass(frozen=True)
class Point:
    series: int
    value: float
    low: float
    high: float
    """NaN where there is no interval: the point then stands alone."""
    tip: str


@dataclass(frozen=True)
class Line:
    series: int
    points: Sequence[tuple[float, float]]
    kept: float
    """Where on the x axis a ring is drawn."""
    tip: str


def colour(series: int) -> str:
    return COLOURS[series % len(COLOURS)]


def forest(rows: Sequence[tuple[str, Sequence[Point]]], unit: str, zero: bool = False) -> str:
    """A line a row, a dot a series with its interval; `zero` draws where nothing differs."""
    right, step, top = 24, 15, 8
    rows = [(_short(label), found) for label, found in rows]
    left = 24 + LETTER * max(len(label) for label, _ in rows)
    points = [point for _, found in rows for point in found]
    scale = _scale(_ends(points, zero), left, WIDE - right)
    bands: list[str] = []
    marks: list[str] = []
    y = top
    for place, (label, found) in enumerate(rows):
        height = step * max(1, len(found)) + 12
        bands += [_rect(0, y, WIDE, height, "band")] if place % 2 == 0 else []
        marks.append(_text(left - 12, y + height / 2 + 4, label, "label", "end"))
        for nth, point in enumerate(found):
            marks.append(_whisker(scale, point, y + 6 + step * (nth + 0.5)))
        y += height
    axis = [_line(scale(tick), top, scale(tick), y, "grid") for tick in scale.ticks]
    axis += [_text(scale(tick), y + 16, _plain(tick), "tick", "middle") for tick in scale.ticks]
    if zero:
        axis.append(_line(scale(0), top, scale(0), y, "zero"))
    axis.append(_text((left + WIDE - right) / 2, y + 34, unit, "tick", "middle"))
    return _svg(WIDE, y + 42, [*bands, *axis, *marks], unit)


WIDE = 1000
LETTER = 7.2
"""Width of a label's letter, on the large side: no font is known here."""
LETTERS = 60
"""Of a label, so that at least half of the width is left to the marks."""


def _short(label: str) -> str:
    return label if len(label) <= LETTERS else f"{label[: LETTERS - 1].rstrip()}…"


def curves(title: str, lines: Sequence[Line], x: str, y: str) -> str:
    """A small panel of lines over whole numbers."""
    width, height, left, top, bottom = 360, 220, 44, 28, 36
    values = [value for line in lines for _, value in line.points if not math.isnan(value)]
    steps = sorted({at for line in lines for at, _ in line.points})
    up = _scale(_padded(values), height - bottom, top, most=5)
    across = _Scale(steps[0], max(steps[-1], steps[0] + 1), left + 10, width - 14, steps)
    shown = steps[:: math.ceil(len(steps) / 12)]
    body = [_text(left - 34, 16, title, "title", "start")]
    body += [_line(left, up(tick), width - 8, up(tick), "grid") for tick in up.ticks]
    body += [_text(left - 6, up(tick) + 4, _plain(tick), "tick", "end") for tick in up.ticks]
    body += [_text(across(at), height - bottom + 16, _plain(at), "tick", "middle") for at in shown]
    body.append(_text((left + width) / 2, height - 4, f"{x} (up: {y})", "tick", "middle"))
    for line in lines:
        body += _drawn_line(line, across, up)
    return _svg(width, height, body, title)


def effects(title: str, values: Sequence[tuple[str, float, float, str]], y: str) -> str:
    """A small panel: value, effect, its deviation and a tip, one dot each."""
    width, height, left, top, bottom = 360, 220, 52, 28, 36
    found = [
        end
        for _, effect, spread, _ in values
        for end in (effect - _or_zero(spread), effect + _or_zero(spread))
        if not math.isnan(end)
    ]
    up = _scale(_padded([*found, 0.0]), height - bottom, top, most=5)
    body = [_text(left - 42, 16, title, "title", "start")]
    body += [_line(left, up(tick), width - 8, up(tick), "grid") for tick in up.ticks]
    body += [_text(left - 6, up(tick) + 4, _plain(tick), "tick", "end") for tick in up.ticks]
    body.append(_line(left, up(0), width - 8, up(0), "zero"))
    gap = (width - left - 8) / len(values)
    for place, (value, effect, spread, tip) in enumerate(values):
        at = left + gap * (place + 0.5)
        body.append(_text(at, height - bottom + 16, value, "tick", "middle"))
        if not math.isnan(effect):
            ends = up(effect - _or_zero(spread)), up(effect + _or_zero(spread))
            body.append(_mark(_line(at, ends[0], at, ends[1], ""), _dot(at, up(effect)), 0, tip))
    body.append(_text((left + width) / 2, height - 4, y, "tick", "middle"))
    return _svg(width, height, body, title)


def legend(names: Iterable[str]) -> str:
    items = (
        f'<span><i style="background:{colour(place)}"></i>{escape(name)}</span>'
        for place, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(items)}</p>'


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[float]

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def _scale(ends: tuple[float, float], start: float, end: float, most: int = TICKS) -> _Scale:
    low, high = ends
    step = _step((high - low) / most)
    first = math.ceil(low / step - 1e-9)
    ticks = [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]
    return _Scale(low, high, start, end, ticks)


def _step(least: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(least))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))


def _ends(points: Sequence[Point], zero: bool) -> tuple[float, float]:
    found = [each for point in points for each in (point.low, point.value, point.high)]
    return _padded([each for each in found if not math.isnan(each)] + ([0.0] if zero else []))


def _padded(values: Sequence[float]) -> tuple[float, float]:
    """A little wider than the values; of one value or none still a range."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def _whisker(scale: _Scale, point: Point, y: float) -> str:
    if math.isnan(point.value):
        return ""
    bar = ""
    if not math.isnan(point.low + point.high):
        bar = _line(scale(point.low), y, scale(point.high), y, "")
    return _mark(bar, _dot(scale(point.value), y), point.series, point.tip)


def _drawn_line(line: Line, across: _Scale, up: _Scale) -> Iterable[str]:
    known = [(at, value) for at, value in line.points if not math.isnan(value)]
    path = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in known)
    yield _mark(f'<polyline points="{path}"/>', "", line.series, line.tip)
    for at, value in known:
        if at == line.kept:
            ring = f'<circle cx="{across(at):.1f}" cy="{up(value):.1f}" r="4.5" class="ring"/>'
            yield _mark("", ring, line.series, line.tip)


def _mark(bar: str, dot: str, series: int, tip: str) -> str:
    hue = colour(series)
    return f'<g stroke="{hue}" fill="{hue}"><title>{escape(tip)}</title>{bar}{dot}</g>'


def _dot(x: float, y: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    named = f' class="{kind}"' if kind else ' class="bar"'
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{named}/>'


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _plain(value: float) -> str:
    return f"{value:.10g}"


def _or_zero(value: float) -> float:
    """No deviation draws no bar."""
    return 0.0 if math.isnan(value) else value


def _svg(width: float, height: float, body: Iterable[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px" role="img" '
        f'aria-label="{escape(label)}">{"".join(body)}</svg>'
    )
