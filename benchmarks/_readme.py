"""What README says of accuracy, written from ``src/hippo/score/held_out.json``.

``python benchmarks/_readme.py`` writes the paragraph between README's marks; a test holds the page against it.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from hippo.decide.wording import percent
from hippo.score.interval import (
    EMULATED,
    EXPERTS,
    FUSED,
    RUN,
    coverage,
    errors_in_one_place,
    errors_of,
    errors_over_nccl,
    usual_size,
)

README = Path(__file__).resolve().parents[1] / "README.md"


def main() -> None:
    """Writes README."""
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")


def filled(page: str) -> str:
    """The page with the paragraph between its marks."""
    found, times = re.subn(
        r"(<!-- accuracy -->\n).*?(<!-- end -->)",
        lambda marks: f"{marks[1]}{told()}\n{marks[2]}",
        page,
        flags=re.DOTALL,
    )
    assert times == 1, f"README has {times} places for what is said of accuracy"
    return found


def told() -> str:
    """The paragraph."""
    families = {name: each for name, each in coverage().items() if name != RUN}  # its runs count once
    rows = sum(int(str(each["rows"])) for each in families.values())
    held = sum(int(str(each["rows"])) * float(str(each["covered"])) for each in families.values()) / rows
    widths = {name: percent(float(str(each["half_width"]))) for name, each in families.items()}
    usual = errors_in_one_place(usual_size(FUSED))
    far, over_nccl = (
        percent(math.sinh(each.half_width())) for each in (usual.plus(errors_of(EMULATED)), errors_over_nccl(usual))
    )
    return (
        f"Each step is printed with an interval that should hold nine of ten measured steps. Of {rows} rows, each "
        f"predicted without its own source, {percent(held)} lie in theirs (`hippo bench intervals`). It reaches "
        f"{widths[FUSED]} either way for the middle one of the dense models in one place, {far} over several with "
        f"hippo's executor or torch, {over_nccl} with NCCL, which nobody measured alone over a WAN, and "
        f"{widths[EXPERTS]} for mixtures of experts; what no runtime does has none."
    )


if __name__ == "__main__":
    main()
