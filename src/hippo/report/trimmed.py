"""A view without blanks at the ends of its lines: what is piped into a file or a chat stays clean."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment


@dataclass(frozen=True)
class Trimmed:
    """Shows ``view`` as it is, each line up to its last mark."""

    view: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines of the view, blanks at their ends taken off."""
        for line in console.render_lines(self.view, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                last = line[-1]
                yield from line[:-1]
                yield Segment(last.text.rstrip(), last.style, last.control)
            yield Segment.line()
