"""A page of bars as SVG, written by hand: no library, the same picture on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 860
_LEFT, _RIGHT, _BAR, _GAP, _HEAD, _FOOT = 210, 190, 18, 7, 46, 16
_OURS, _OTHER, _GOAL, _TEXT = "#2f6f4f", "#9fb3a8", "#b3402e", "#222"


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure; `ours` is drawn darker, `note` stands behind the figure."""

    label: str
    value: float
    note: str = ""
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars on one scale; `goal` is a line across them."""

    title: str
    bars: tuple[Bar, ...]
    goal: float | None = None
    goal_label: str = ""

    @property
    def height(self) -> int:
        return _HEAD + len(self.bars) * (_BAR + _GAP) + _FOOT

    @property
    def scale(self) -> float:
        """Pixels per unit: the longest bar, or the goal, fills the width there is."""
        most = max([bar.value for bar in self.bars] + [self.goal or 0.0])
        return (WIDTH - _LEFT - _RIGHT) / most if most > 0 else 0.0


def render(panels: Sequence[Panel], caption: str) -> str:
    """The whole picture, panels one under the other."""
    height = sum(panel.height for panel in panels) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{_TEXT}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    top = 6
    for panel in panels:
        parts += _panel(panel, top)
        top += panel.height
    parts.append(f'<text x="12" y="{top + 16}" font-size="11">{escape(caption)}</text></svg>')
    return "\n".join(parts) + "\n"


def _panel(panel: Panel, top: int) -> list[str]:
    parts = [f'<text x="12" y="{top + 20}" font-weight="bold">{escape(panel.title)}</text>']
    first = top + _HEAD - 12
    for number, bar in enumerate(panel.bars):
        y = first + number * (_BAR + _GAP)
        width = max(bar.value * panel.scale, 0.5)
        figure = f"{_figure(bar.value)}{' ' + bar.note if bar.note else ''}"
        middle = y + _BAR - 5
        parts += [
            f'<text x="{_LEFT - 8}" y="{middle}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="bar" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" '
            f'fill="{_OURS if bar.ours else _OTHER}"/>',
            f'<text x="{_LEFT + width + 6:.1f}" y="{middle}">{escape(figure)}</text>',
        ]
    if panel.goal is not None:
        x = _LEFT + panel.goal * panel.scale
        end = first + len(panel.bars) * (_BAR + _GAP)
        parts += [
            f'<line class="goal" x1="{x:.1f}" y1="{first - 6}" x2="{x:.1f}" y2="{end}" '
            f'stroke="{_GOAL}" stroke-dasharray="4 3"/>',
            f'<text x="{x + 3:.1f}" y="{end + 8}" font-size="10" fill="{_GOAL}">'
            f"{escape(panel.goal_label)}</text>",
        ]
    return parts


def _figure(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
