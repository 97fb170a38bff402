"""What a tree is, answers and costs, kept so that another can be held against it.

    python -m benchmarks.house record --tree DIR --python PY --out results/house/before.json [--parts answers,counts,..]
    python -m benchmarks.house check --tree DIR [--quick | --only NAME,..]     does it answer as the record says?
    python -m benchmarks.house compare results/house/before.json results/house/after.json     writes results/house.md

Run in the root of a checkout; DIR is any checkout of hippo, PY a Python that has its libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.house.answers import Questions, ask, differences, reworded
from benchmarks.house.counts import counts
from benchmarks.house.first_use import GIVEN, first_use
from benchmarks.house.page import page
from benchmarks.house.rooms import House, rooms
from benchmarks.house.speeds import processes, tables
from benchmarks.house.tree import Tree

ROOT = Path(__file__).resolve().parents[2]
BEFORE = ROOT / "results" / "house" / "before.json"
MOST_LINES = 12  # of differences that are shown per answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: done, or equal; 1: something differs; 2: wrong words."""
    asked = _parser().parse_args(arguments)
    return int(asked.verb(asked))


def record(asked: argparse.Namespace) -> int:
    """Measures parts of a tree and writes them into a file, whose other parts stay."""
    tree = _tree(asked)
    if (commit := tree.commit()).endswith("+"):
        raise SystemExit(f"{tree.folder}: files differ from commit {commit[:-1]}. To fix: commit them, then record.")
    kept = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    for part in asked.parts:
        if part == "processes" and asked.beside is not None:
            found = in_turns(tree, _tree(asked, asked.beside))
        else:
            found = GIVEN if part == "first-use" and asked.given else PARTS[part](tree)
        kept[part] = {"commit": commit, "machine": machine(), **found}
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(lines(kept, deep=4) + "\n")
        print(f"{part}: written to {asked.out}")
    return 0


def check(asked: argparse.Namespace) -> int:
    """Asks a tree what the record holds, and says which answers differ."""
    before, questions = _kept(asked.record)["answers"]["answers"], Questions.read()
    wrong = meant = different = 0
    names = asked.only or (questions.quick if asked.quick else list(before))
    if strange := [name for name in names if name not in before]:
        raise SystemExit(f"{asked.record}: no answer to {', '.join(strange)}; there are {', '.join(before)}")
    with TemporaryDirectory() as folder:
        questions.lay(Path(folder))
        for name in names:
            try:
                after = ask(_tree(asked), questions, name, Path(folder))
            except RuntimeError as error:
                apart, words, wrongly = [str(error)], [], True
            else:
                apart, words = differences(before[name], after), reworded(before[name], after)
                wrongly = bool(questions.unexpected(name, apart))
            wrong, meant, different = wrong + wrongly, meant + bool(apart and not wrongly), different + bool(words)
            told = "DIFFERS" if wrongly else "differs on purpose" if apart else "equal"
            print(f"{name:28s} {told}{f', {len(words)} texts reworded' if words else ''}", flush=True)
            for line in [*apart, *(words if asked.words else [])][:MOST_LINES]:
                print(f"    {line}")
    equal = len(names) - wrong - meant
    print(f"{equal} of {len(names)} answers are equal, {meant} differ on purpose ({different} with other words)")
    return int(wrong > 0)


def compare(asked: argparse.Namespace) -> int:
    """Writes the page that sets two records side by side."""
    before, after = _kept(asked.before), _kept(asked.after)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(page(before, after))
    print(f"wrote {asked.out}")
    return 0


def answers(tree: Tree) -> dict[str, Any]:
    """The answers to all questions."""
    questions, found = Questions.read(), {}
    with TemporaryDirectory() as folder:
        questions.lay(Path(folder))
        for name in (*questions.plans, *questions.answers):
            found[name] = ask(tree, questions, name, Path(folder))
            print(f"{name:28s} {found[name]['cpu_s']:6.1f} CPU s", file=sys.stderr, flush=True)
    return {"answers": found}


def way_of_plan(tree: Tree) -> dict[str, Any]:
    """The way of ``hippo plan``, by the rooms of the record of before, where there is one."""
    kept = json.loads(BEFORE.read_text()).get("rooms") if BEFORE.exists() else None
    return rooms(tree, None if kept is None else House(**kept["house"]))


def in_turns(tree: Tree, beside: Tree) -> dict[str, Any]:
    """What whole processes of a tree cost, and under ``beside`` those of another that ran in turns with them."""
    own, others = processes(tree, beside)
    return {**own, "beside": {"commit": beside.commit(), **others}}


PARTS: dict[str, Callable[[Tree], dict[str, Any]]] = {
    "answers": answers,
    "counts": counts,
    "rooms": way_of_plan,
    "processes": lambda tree: processes(tree)[0],
    "tables": lambda tree: {"tables": tables(tree)},
    "first-use": first_use,
}


def machine() -> dict[str, Any]:
    """What a figure was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def lines(node: Any, *, deep: int) -> str:
    """JSON with a line for each entry of the outer mappings, ``deep`` of them, so that changes can be read."""
    if deep == 0 or not isinstance(node, dict) or not node:
        return json.dumps(node)
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {lines(value, deep=deep - 1)}" for key, value in node.items()) + "}"


def _kept(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise SystemExit(f"{path}: no such record. To fix: write it with 'record --tree DIR --out {path}'.")
    return dict(json.loads(path.read_text()))


def _tree(asked: argparse.Namespace, folder: Path | None = None) -> Tree:
    folder = folder or asked.tree
    if not (folder / "src" / "hippo").is_dir():
        raise SystemExit(f"{folder}: no checkout of hippo, it has no src/hippo. To fix: name the root of one.")
    return Tree(folder.resolve(), asked.python)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(required=True)
    for name, verb in (("record", record), ("check", check), ("compare", compare)):
        made = verbs.add_parser(name, help=(verb.__doc__ or "").partition("\n")[0])
        made.set_defaults(verb=verb)
        if name == "compare":
            made.add_argument("before", type=Path)
            made.add_argument("after", type=Path)
            made.add_argument("--out", type=Path, default=ROOT / "results" / "house.md")
            continue
        made.add_argument("--tree", type=Path, default=ROOT, metavar="DIR", help="the checkout that is asked")
        made.add_argument("--python", type=Path, default=Path(sys.executable), metavar="PY")
        if name == "record":
            made.add_argument("--out", type=Path, required=True, metavar="FILE.json")
            made.add_argument("--beside", type=Path, metavar="DIR", help="processes run in turns with this tree's")
            made.add_argument("--given", action="store_true", help="of first-use, the figures that were handed down")
            made.add_argument("--parts", type=_several(PARTS), default=list(PARTS), metavar=",".join(PARTS))
        else:
            made.add_argument("--record", type=Path, default=BEFORE, metavar="FILE.json")
            made.add_argument("--only", type=_several(), metavar="NAME,..")
            made.add_argument("--quick", action="store_true", help="a dozen questions, a minute")
            made.add_argument("--words", action="store_true", help="show reworded texts too")
    return parser


def _several(known: Collection[str] = ()) -> Callable[[str], list[str]]:
    """A type of argument: names with commas between them, all of them known."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        if known and not set(found) <= set(known):
            raise argparse.ArgumentTypeError(f"one or several of {', '.join(known)} (got {text!r})")
        return found

    return names


if __name__ == "__main__":
    sys.exit(main())
