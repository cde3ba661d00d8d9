"""A moving picture of a screen: one SVG that any browser plays, from pictures taken one by one.

A row of the terminal is drawn once for each text that it ever shows, and is visible in the times
in which it shows it (CSS keyframes). The first picture is what is seen without animation: where
none is possible, and by readers who have asked their system for less motion.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

_ROW, _COLUMN = 24.4, 12.2
"""Height of a row and width of a column in Rich's pictures."""
_STYLE = re.compile(r"\.terminal-\d+-(r\d+) \{ ([^}]*?);? \}")
_TEXT = re.compile(
    r'<text class="terminal-\d+-(r\d+)" x="([\d.]+)" y="[\d.]+" textLength="([\d.]+)" '
    r'clip-path="url\(#terminal-\d+-line-(\d+)\)">([^<]*)</text>'
)
_RECT = re.compile(
    r'<rect fill="(#\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="[\d.]+"'
)
_BLANK = re.compile(r"(&#160;|\s)*")


@dataclass
class MovingPicture:
    """The pictures so far, as rows with the times in which they are seen."""

    columns: int
    lines: int
    _frames: list[tuple[float, list[str]]] = field(default_factory=list)
    """Seconds for which each is shown, and its rows; the first row is the caption."""
    _classes: dict[str, str] = field(default_factory=dict)

    def add(self, svg: str, seconds: float, caption: str = "") -> None:
        """Takes what `App.export_screenshot` gives, to be shown for so long below a caption."""
        names = {name: self._class(style) for name, style in _STYLE.findall(svg)}
        rows = [""] * self.lines
        for colour, x, y, width in _RECT.findall(svg):
            row = int(float(y) / _ROW)
            if row < self.lines and float(width) > 0:
                rows[row] += f'<path fill="{colour}" d="M{x} 0h{width}v24.9h-{width}"/>'
        for name, x, length, row, text in _TEXT.findall(svg):
            if not _BLANK.fullmatch(text):
                rows[int(row)] += (
                    f'<text class="{names[name]}" x="{x}" y="18.5" textLength="{length}">'
                    f"{text}</text>"
                )
        middle = self.columns * _COLUMN / 2
        title = (
            f'<text class="caption" x="{middle:.0f}" y="9">{escape(caption, quote=False)}</text>'
        )
        rows.insert(0, title if caption else "")
        if self._frames and self._frames[-1][1] == rows:
            seconds += self._frames.pop()[0]
        self._frames.append((seconds, rows))

    def write(self, path: Path) -> None:
        """Writes the picture; it starts again after its end."""
        starts, total = [], 0.0
        for seconds, _ in self._frames:
            starts.append(total)
            total += seconds
        seen: dict[tuple[int, str], list[int]] = {}
        for index, (_, rows) in enumerate(self._frames):
            for row, markup in enumerate(rows):
                if markup:
                    seen.setdefault((row, markup), []).append(index)
        times: dict[tuple[int, ...], str] = {}
        groups = []
        for (row, markup), frames in seen.items():
            name = times.setdefault(tuple(frames), f"t{len(times)}")
            groups.append(
                f'<g class="{name}" transform="translate(9,{17 + row * _ROW:.1f})">{markup}</g>'
            )
        marks = [*(100 * start / total for start in starts), 100.0]
        rules = [f".{name}{{{style}}}" for style, name in self._classes.items()]
        for shown, name in times.items():
            if len(shown) < len(self._frames):
                rules.append(_keyframes(name, shown, marks, total))
        width, height = self.columns * _COLUMN + 18, self.lines * _ROW + 50
        path.write_text(
            f'<svg viewBox="0 0 {width:.0f} {height:.0f}" xmlns="http://www.w3.org/2000/svg">\n'
            f"<style>text{{font:20px 'Fira Code',Menlo,'DejaVu Sans Mono',monospace;"
            "white-space:pre}\n"
            "text.caption{font:bold 17px system-ui,sans-serif;fill:#e0e0e0;text-anchor:middle}\n"
            + "\n".join(rules)
            + "\n@media (prefers-reduced-motion:reduce){g{animation:none!important}}\n</style>\n"
            # The frame is seen on a dark page, too.
            f'<rect x="1" y="1" width="{width - 2:.0f}" height="{height - 2:.0f}" rx="8" '
            'fill="#121212" stroke="#666"/>\n'
            '<g stroke="none"><circle cx="22" cy="20" r="7" fill="#ff5f57"/>'
            '<circle cx="44" cy="20" r="7" fill="#febc2e"/>'
            '<circle cx="66" cy="20" r="7" fill="#28c840"/></g>\n'
            + "\n".join(groups)
            + "\n</svg>\n"
        )

    def _class(self, style: str) -> str:
        return self._classes.setdefault(style, f"s{len(self._classes)}")


def _keyframes(name: str, frames: tuple[int, ...], marks: list[float], total: float) -> str:
    """The rule that shows a class in these frames; in the first one without animation, too."""
    shown = set(frames)
    steps, before = [], None
    for index in range(len(marks) - 1):
        now = "visible" if index in shown else "hidden"
        if now != before:
            steps.append(f"{marks[index]:.2f}%{{visibility:{now}}}")
        before = now
    still = "visible" if 0 in shown else "hidden"
    return (
        f".{name}{{visibility:{still};animation:{name} {total:.1f}s step-end infinite}}"
        f"@keyframes {name}{{{''.join(steps)}}}"
    )
