"""The constants of the cost model as the open published rows fit them (minutes; deterministic).

Starts from the constants in use, so that a second run must find nothing better; prints each with its plausible range.
`benchmarks/_fit.py` says how; the last constants of `hippo.cost.calibration` (memory) are not fitted here.
"""

from __future__ import annotations

from _data import fitted_rows  # type: ignore[import-not-found]
from _fit import fit  # type: ignore[import-not-found]
from hippo.cost.calibration import CALIBRATION, RANGES, constant


def main() -> None:
    """Fits and prints the table."""
    best, losses = fit(fitted_rows(), CALIBRATION)
    print("loss after each accepted step: " + ", ".join(f"{each:.4f}" for each in losses))
    print(f"{'constant':40s} {'in use':>10s} {'fitted':>10s}   plausible")
    for name, (low, high) in RANGES.items():
        print(f"{name:40s} {constant(CALIBRATION, name):10.3g} {constant(best, name):10.3g}   {low:g} to {high:g}")


if __name__ == "__main__":
    main()
