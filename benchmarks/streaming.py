"""Bandwidth that low-communication training needs, against the simulation in Streaming DiLoCo (its table 4).

    hippo bench streaming

Rows of ``data/diloco_bandwidth.json``: Gbit/s at which 50, 80, 90, 95 and 99 % of the time is computation. The paper
says layers, step time, H = 100, fragments of three layers, reductions that run beside the backward pass, one step late
where they overlap. What it does not say has one default for all rows:

* a forward pass is a third of a step (Kaplan's rule: two of six FLOPs), each layer the same share;
* 16 bits a parameter, sent once, where it does not say fp4;
* fragments are strided (layers i, i + n, i + 2 n, ..), a layer's reduction is ready when its backward pass ends;
* its answers lie on 50 bandwidths from 0.1 to 1000 Gbit/s, evenly in the logarithm, as all its figures are among them;
* ``sent``: bytes of the model, of those of the parameters in its name: fitted to the three data-parallel rows alone, so
  that the other twelve are predicted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.simulate.streamed import waited_s

DATA = Path(__file__).resolve().parents[1] / "data" / "diloco_bandwidth.json"
PARAMETERS = {"1B": 1e9, "10B": 1e10, "100B": 1e11}
EVERY, LAYERS_A_FRAGMENT, BITS, FORWARD = 100, 3, 16.0, 1 / 3
PRINTED_GBPS = np.logspace(-1, 3, 50)
FINE_GBPS = np.logspace(-1, 3, 4000)
TRIED = np.arange(0.6, 1.205, 0.01)


@dataclass(frozen=True)
class Row:
    """A model, a method, and the Gbit/s that the paper prints for each utilisation."""

    model: str
    layers: int
    step_s: float
    method: str
    gbps: tuple[float, ...]

    def utilization(self, gbps: float, sent: float) -> float:
        """Share of the time that is computation."""
        bits = PARAMETERS[self.model] * sent * (4.0 if "fp4" in self.method else BITS)
        layer_s = bits / self.layers / (gbps * 1e9)
        if self.method == "data-parallel":
            return self.step_s / (self.step_s + self._waited_s(range(self.layers), layer_s, late=0))
        fragments = self.layers // LAYERS_A_FRAGMENT if self.method.startswith("streaming") else 1
        late = 1 if "overlap" in self.method else 0
        waits = (self._waited_s(range(at, self.layers, fragments), layer_s, late=late) for at in range(fragments))
        return EVERY * self.step_s / (EVERY * self.step_s + sum(waits))

    def _waited_s(self, layers: Iterable[int], layer_s: float, *, late: int) -> float:
        backward_s = self.step_s * (1 - FORWARD) / self.layers
        ready = sorted((self.layers - layer) * backward_s for layer in layers)
        return waited_s([(each, layer_s) for each in ready], self.layers * backward_s + late * self.step_s)

    def needed(self, shares: Iterable[float], sent: float, tried: NDArray[np.float64]) -> NDArray[np.float64]:
        """Least of the bandwidths tried at which each utilisation is reached, Gbit/s."""
        reached = np.array([self.utilization(float(gbps), sent) for gbps in tried])
        return np.array([tried[np.argmax(reached >= share)] for share in shares])

    def errors(self, shares: Iterable[float], sent: float, tried: NDArray[np.float64]) -> NDArray[np.float64]:
        """Relative errors of ``needed``."""
        found: NDArray[np.float64] = self.needed(shares, sent, tried) / np.array(self.gbps) - 1
        return found


def read() -> tuple[tuple[Row, ...], tuple[float, ...]]:
    """The rows, and the utilisations of their figures."""
    document: dict[str, Any] = json.loads(DATA.read_text())
    rows = (
        Row(each["model"], each["layers"], each["step_time_s"], each["method"], tuple(each["gbps"]))
        for each in document["rows"]
    )
    return tuple(rows), tuple(document["cu"])


def fitted(rows: Iterable[Row], shares: tuple[float, ...]) -> float:
    """``sent`` with the least mean error on the data-parallel rows."""
    known = [row for row in rows if row.method == "data-parallel"]
    means = [np.mean([abs(row.errors(shares, sent, PRINTED_GBPS)) for row in known]) for sent in TRIED]
    best = np.flatnonzero(np.array(means) <= min(means) + 1e-9)
    return float(TRIED[best[len(best) // 2]])


def main() -> None:
    """The table, and the medians."""
    rows, shares = read()
    sent = fitted(rows, shares)
    print(f"sent = {sent:.2f} of the parameters named, fitted to the data-parallel rows")
    print(f"{'model':6}{'method':24}" + "".join(f"{share:>16.0%}" for share in shares) + "   printed -> here, Gbit/s")
    for row in rows:
        here = row.needed(shares, sent, PRINTED_GBPS)
        cells = (f"{said:g} -> {found:.1f}" for said, found in zip(row.gbps, here, strict=True))
        print(f"{row.model:6}{row.method:24}" + "".join(f"{cell:>16}" for cell in cells))
    told = [row for row in rows if row.method != "data-parallel"]
    for words, some, share, tried in (
        ("all 15 rows, on the printed bandwidths", rows, sent, PRINTED_GBPS),
        ("the 12 rows not fitted to", told, sent, PRINTED_GBPS),
        ("all 15 rows, between them too", rows, sent, FINE_GBPS),
        ("all 15 rows, sent = 1, nothing fitted", rows, 1.0, PRINTED_GBPS),
        ("all 15 rows, sent = 1, between them too", rows, 1.0, FINE_GBPS),
    ):
        errors = np.abs(np.concatenate([row.errors(shares, share, tried) for row in some]))
        print(f"{words}: median {np.median(errors):.1%}, mean {errors.mean():.1%}, worst {errors.max():.0%}")


if __name__ == "__main__":
    main()
