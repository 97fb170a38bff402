"""The way of ``hippo plan`` through the house: rooms passed, climbs, returns.

The way is every function of the package that the command runs, in the order of their first calls (loops count once;
kernels and what imports do are not seen), each replaced by its room: the folder in which it stood in the tree of the
record, a file at the top being a room of its own. Equal neighbours are one. Then

    passed    how often the way enters a room, the first included
    climbs    how often it enters one on a higher floor than the room before
    returns   how often it enters one that it has left before

Floors are the import contract of the tree of the record. So a function that only moved, or whose folder was renamed or
joined with another, counts where it was; only work that is gone, or done at once where it was done in pieces, shortens
the way. A function is known again by its name; of several by the rooms that its file's other functions come from; a new
function belongs to the room that most of its file came from, else to its folder, whose floor is that of no other.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.house.tree import Tree

WALK = Path(__file__).with_name("walk.py")
COMMAND = ("plan", "--model", "llama-3-70b", "--cluster", "four-hubs", "--time-limit", "600")

Call = tuple[str, str]  # file, name of the function with those around it


@dataclass(frozen=True)
class House:
    """Where functions stood, and on which floor: the rooms of the tree of the record."""

    rooms: Mapping[str, Sequence[str]]  # of each name of a function
    floors: Mapping[str, int]  # of each name at the top of the package; 0 is the highest

    @classmethod
    def of(cls, tree: Tree) -> House:
        """That of a tree."""
        package, rooms = tree.folder / "src" / "hippo", dict[str, list[str]]()
        for path in sorted(package.rglob("*.py")):
            for name in _names(ast.parse(path.read_text()), ""):
                rooms.setdefault(name, []).append(room(str(path.relative_to(package))))
        contracts = tomllib.loads((tree.folder / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        layers = next(each["layers"] for each in contracts if each["type"] == "layers")
        floors = {
            name.strip("() ").removeprefix("hippo."): number
            for number, layer in enumerate(layers)
            for name in layer.split("|")
        }
        return cls(rooms, floors)

    def of_calls(self, calls: Sequence[Call]) -> list[str]:
        """The room of each call."""
        known: dict[str, Counter[str]] = {}
        for file, name in calls:
            homes = set(self.rooms.get(name, ()))
            if len(homes) == 1:
                known.setdefault(file, Counter()).update(homes)
        return [self._room(file, name, known.get(file, Counter())) for file, name in calls]

    def _room(self, file: str, name: str, neighbours: Counter[str]) -> str:
        homes = set(self.rooms.get(name, ()))
        if room(file) in homes:
            return room(file)
        likely = [home for home, _ in neighbours.most_common() if not homes or home in homes]
        return likely[0] if likely else min(homes, default=room(file))

    def floor(self, of: str) -> int:
        """0 is the highest; that of a room nobody knew is between none."""
        return self.floors.get(of.partition("/")[0].removesuffix(".py"), len(self.floors))


def room(file: str) -> str:
    """The folder of a file of the package; a file at the top is a room of its own."""
    return file.rpartition("/")[0] or file


def way(rooms: Sequence[str]) -> list[str]:
    """Rooms in order, equal neighbours being one."""
    return [here for here, before in zip(rooms, ("", *rooms[:-1]), strict=True) if here != before]


def rooms(tree: Tree, house: House | None = None) -> dict[str, Any]:
    """The three counts and the way itself, by the rooms of ``house`` (None: the tree is the one of the record)."""
    house = House.of(tree) if house is None else house
    start = tomllib.loads((tree.folder / "pyproject.toml").read_text())["project"]["scripts"]["hippo"]
    with TemporaryDirectory() as folder:
        out = Path(folder) / "calls.json"
        tree.hippo(COMMAND, where=Path(folder))  # what compiles, compiles now
        command = (str(tree.python), str(WALK), str(tree.folder / "src" / "hippo"), str(out), start, *COMMAND)
        ran = tree.run(command, where=Path(folder))
        if not out.exists():
            raise RuntimeError(f"the traced plan ended with exit code {ran.code}: {ran.stderr.strip()[-500:]}")
        calls: list[Call] = [(file, name) for file, name in json.loads(out.read_text())]
    passed = way(house.of_calls(calls))
    return {
        "functions": len(calls),
        **told(passed, house),
        "house": {"rooms": house.rooms, "floors": house.floors},
        "way": passed,
    }


def told(passed: Sequence[str], house: House) -> dict[str, int]:
    """The three counts of a way."""
    return {
        "passed": len(passed),
        "climbs": sum(house.floor(b) < house.floor(a) for a, b in zip(passed, passed[1:], strict=False)),
        "returns": len(passed) - len(set(passed)),
    }


def _names(node: ast.AST, around: str) -> Iterator[str]:
    """Functions with the names around them, as ``co_qualname`` has them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{around}{child.name}"
            yield from _names(child, f"{around}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from _names(child, f"{around}{child.name}.")
        else:
            yield from _names(child, around)
