"""Puts a trained policy into the package, with the constructing agents of another file where it has none.

python benchmarks/_ship_policy.py out/train/hi_ppo.policy [OTHER.policy [ABLATION]]

With the name of an ablation (no_gnn, no_masks, ..) it becomes a row of ``hippo evaluate`` and nothing else.
"""

from __future__ import annotations

import sys

from hippo.files import write_whole
from hippo.network.hi_ppo.serving import FORM, SHIPPED, Policy


def main(arguments: list[str]) -> None:
    """Writes a policy file of the package."""
    arrays, made = FORM.read(arguments[0])
    others = FORM.read(arguments[1])[0] if len(arguments) > 1 else {}
    place = SHIPPED.parent / "policies" / f"{arguments[2]}.policy" if len(arguments) > 2 else SHIPPED
    write_whole(place, FORM.packed({**others, **arrays}, **made))
    print(f"{place.name}: {', '.join(Policy.load(place).networks)}, {place.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
