"""The table of deadline misses: paired differences and their intervals, by hand."""

from __future__ import annotations

from tests.scripts import script


def test_intervals_of_two_cases_are_as_wide_as_students() -> None:
    """Differences of -1 and -3 points: mean -2, t(1) = 12.706 times a standard error of 1."""
    bench = script("benchmarks/_deadlines.py")
    first, second = (bench.Case("gavel", 0.7, 0.85, 1.5, seed) for seed in (1, 2))
    found = [bench.Row(first, "learned", 1, 1.0, 1.0), bench.Row(second, "learned", 1, 1.0, 1.0)]
    found += [bench.Row(first, "deadline", 2, 2.0, 2.0), bench.Row(second, "deadline", 4, 4.0, 4.0)]
    lines = bench.table(found)
    assert lines[-1].endswith("-2.000  (-14.706 .. +10.706)")
    assert lines[-2].split() == ["learned", "1.0", "1.000", "1.000"]
