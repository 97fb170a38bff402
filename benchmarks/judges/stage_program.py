"""Optima of an integer program that others publish: layers and recomputed layers of each stage.

    python -m benchmarks.judges.stage_program

The program, the cases that are determined and the search lie in ``tests/judges/stage_program.py``: every split of the
blocks that may be no worse than the published optimum is looked at, and hippo's engine plays the best.
"""

from __future__ import annotations

from tests.judges.stage_program import TOLD, asked, cases, optimum


def main() -> None:
    """A row a case."""
    print(
        "| case | stages, micro-batches | published | least of all splits | by the engine | splits | blocks | again |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, numbers in cases().items():
        if name not in TOLD:
            print(f"| {name} | not told | {numbers['objective']} | | | | | |")
            continue
        case = asked(name)
        best = optimum(case, numbers["objective"] + numbers["tolerance"])
        shape = f"{case.stages}, {case.micro_batches}"
        if best is None:
            print(f"| {name} | {shape} | {numbers['objective']} | above | | 0 | | |")
            continue
        assert best.attained, f"{name}: a stage's own times are longer than counted"
        held, again = (" ".join(f"{x}+{y}" if x else str(y) for x, y in each) for each in (best.held, best.again))
        found = f"{best.objective:.6f} | {best.engine:.6f} | {best.splits}"
        print(f"| {name} | {shape} | {numbers['objective']} | {found} | {held} | {again} |")


if __name__ == "__main__":
    main()
