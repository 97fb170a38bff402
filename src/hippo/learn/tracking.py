"""What training says of itself: a line of JSON per update, the same for TensorBoard, and a callback for progress."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Figures = Mapping[str, float]


class Tracker:
    """Writes ``curve.jsonl`` and TensorBoard's event file into a folder; both go on where a resumed run left off.

    ``resumed_at``: lines of later updates belong to work that was lost, and are dropped.
    """

    def __init__(self, folder: Path, *, resumed_at: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "curve.jsonl"
        kept = [line for line in _lines(self.path) if json.loads(line)["update"] <= resumed_at]
        self.path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        self._writer = _summary_writer(folder, resumed_at)

    def write(self, update: int, figures: Figures) -> None:
        """One update's figures; what is not finite is left out (JSON has no word for it)."""
        told = {name: round(float(value), 6) for name, value in figures.items() if math.isfinite(value)}
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"update": update, **told}) + "\n")
        if self._writer is not None:
            for name, value in told.items():
                self._writer.add_scalar(name, value, update)
            self._writer.flush()

    def close(self) -> None:
        """Ends the event file."""
        if self._writer is not None:
            self._writer.close()


def read_curve(path: Path) -> list[dict[str, float]]:
    """The lines of a ``curve.jsonl``."""
    return [json.loads(line) for line in _lines(path)]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _summary_writer(folder: Path, resumed_at: int) -> Any:
    """TensorBoard's writer; None where tensorboard is not installed (it is a convenience)."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=resumed_at + 1 if resumed_at else None)
