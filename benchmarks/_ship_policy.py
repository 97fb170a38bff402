"""Puts a trained policy into the package, with the constructing agents of another file where it has none.

python benchmarks/_ship_policy.py out/train/hi_ppo.policy [OTHER.policy [ABLATION]]

With the name of an ablation (no_gnn, no_masks, ..) it becomes a row of ``hippo evaluate`` and nothing else.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

from hippo.network.hi_ppo.serving import META, SHIPPED, Policy
from hippo.network.train.export import write

SUFFIX = ".onnx"


def graphs(path: Path) -> dict[str, bytes]:
    """ONNX graphs of a policy file by name."""
    with zipfile.ZipFile(path) as folder:
        return {name.removesuffix(SUFFIX): folder.read(name) for name in folder.namelist() if name.endswith(SUFFIX)}


def main(arguments: list[str]) -> None:
    """Writes a policy file of the package."""
    trained = Path(arguments[0])
    with zipfile.ZipFile(trained) as folder:
        made = json.loads(folder.read(META)).get("made", {})
    others = graphs(Path(arguments[1])) if len(arguments) > 1 else {}
    place = SHIPPED.parent / "policies" / f"{arguments[2]}.policy" if len(arguments) > 2 else SHIPPED
    write(place, {**others, **graphs(trained)}, made)
    print(f"{place.name}: {', '.join(Policy.load(place).graphs)}, {place.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
