"""The house rules: rooms, docstrings, names, light start, no machine paths."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

from .conftest import ROOT

SOURCES = sorted((ROOT / "src" / "hippo").rglob("*.py"))
NAMES = [str(path.relative_to(ROOT / "src")) for path in SOURCES]
STATES = {
    "LiveWorld",  # a queue that lives
    "ServedSite",
    "LoopState",
    "HeldScheduler",
    "CopiedMoment",
    "LinkMinutes",
    "ServiceClock",
    "Service",
    "Puller",
    "PlanCache",
    "ConstructionState",
    "Renewal",
    "Alternatives",
    "Sweep",
    "WorldEnv",
    "Recorder",
    "WorldBatch",
}  # what grows during a run is no noun: one per run, never shared
POLICIES = ("flat_ppo.policy", "no_gnn.policy", "no_masks.policy", "no_multipliers.policy")
LEARNED = {
    "src/hippo/network/hi_ppo/hi_ppo.policy",
    "src/hippo/dynamics/gru.npz",
    "src/hippo/dispatch/dispatch.npz",
    "src/hippo/jobs/learned/jobs.npz",
    "src/hippo/jobs/learned/deadlines.npz",
    "src/hippo/jobs/joint/hi_ppo/world.npz",
} | {f"src/hippo/network/hi_ppo/policies/{name}" for name in POLICIES}
MOST_LEARNED_BYTES = 2_000_000
RECORDED = {"tests/network/hi_ppo/recorded.npz", "data/offers_four_by_eighty.npz"}
"""What an earlier server answered, and what the planner offers on a cluster."""
PICTURES = {".png", ".gz"}
NAMELESS = {"utils", "common", "core", "helpers", "manager", "misc"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_imports_only_point_down_the_floors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(ROOT)
    exit_code = lint_imports(no_cache=True)
    assert exit_code == 0, capsys.readouterr().out


def test_the_contract_names_every_floor():
    contract = (ROOT / "pyproject.toml").read_text().split('type = "layers"')[1].split("]")[0]
    inside = [path for path in (ROOT / "src" / "hippo").iterdir() if path.is_dir() or path.suffix == ".py"]
    floors = {path.stem for path in inside if not path.stem.startswith("_")}
    missing = {floor for floor in floors if f"hippo.{floor}" not in contract}
    assert not missing, f"floors without a place in the import contract: {missing}"


def test_names_are_imported_from_the_module_that_defines_them():
    guilty = [
        f"{path.relative_to(ROOT)}:{node.lineno} imports {alias.name} from the root of {node.module}"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hippo"
        for alias in node.names
        if _is_package_root(ROOT / "src" / Path(*node.module.split(".")), alias.name)
    ]
    assert guilty == []


def _is_package_root(folder: Path, name: str) -> bool:
    """Whether ``folder`` is a package that passes on a name which another module defines."""
    if not folder.is_dir() or (folder / f"{name}.py").exists():
        return False
    return name not in {getattr(node, "name", None) for node in tree(folder / "__init__.py").body}


def test_public_names_have_docstrings():
    bare = []
    for path in SOURCES:
        module = tree(path)
        if module.body and not ast.get_docstring(module):
            bare.append(str(path.relative_to(ROOT)))
        for owner in (module, *(node for node in module.body if isinstance(node, ast.ClassDef))):
            bare += [
                f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                for node in owner.body
                if isinstance(node, ast.FunctionDef | ast.ClassDef)
                and not node.name.startswith("_")
                and not ast.get_docstring(node)
            ]
    assert bare == []


def test_files_are_named_after_their_subject():
    assert [name for name in NAMES if NAMELESS & set(Path(name).with_suffix("").parts)] == []


def test_nouns_are_frozen():
    """Values on every floor that data passes; a planner may keep a score sheet of its own while it searches, and what
    grows during a run says so by name."""
    thawed = [
        f"{path.name}:{node.lineno} {node.name}"
        for path in SOURCES
        if "planners" not in path.parts
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and node.name not in STATES
        and any(_is_thawed(decorator) for decorator in node.decorator_list)
    ]
    assert thawed == []


def _is_thawed(decorator: ast.expr) -> bool:
    if isinstance(decorator, ast.Name):
        return decorator.id == "dataclass"
    if not isinstance(decorator, ast.Call) or getattr(decorator.func, "id", "") != "dataclass":
        return False
    return not any(word.arg == "frozen" and getattr(word.value, "value", False) for word in decorator.keywords)


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listing.split("\0") if name]


def test_no_machine_paths_in_tracked_files():
    machine_path = re.compile(r"(?<![\w.])/(?:work|root|farm|tmp|home/\w+)/")
    guilty = []
    for path in tracked():
        if path.suffix in PICTURES or not path.is_file() or path == Path(__file__):
            continue
        if str(path.relative_to(ROOT)) in LEARNED | RECORDED:
            continue
        guilty += [
            f"{path.relative_to(ROOT)}:{number}"
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if machine_path.search(line)
        ]
    assert guilty == []


def test_binary_files_are_pictures_or_what_was_learned():
    """Weights ship with the package, each by name, and small."""
    binary = {str(path.relative_to(ROOT)) for path in tracked() if path.is_file() and b"\0" in path.read_bytes()}
    assert {name for name in binary if Path(name).suffix not in PICTURES} == LEARNED | RECORDED
    assert sum((ROOT / name).stat().st_size for name in LEARNED) < MOST_LEARNED_BYTES


@pytest.mark.parametrize("statement", ["import hippo", "import hippo.cli.main", "import hippo.registry"])
def test_the_front_doors_import_nothing_heavy(statement: str):
    heavy = ["numpy", "numba", "simpy", "rich", "jinja2", "yaml", "torch", "ortools", "pandas"]
    check = f"{statement}\nimport sys\nprint([name for name in {heavy!r} if name in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert seen.strip() == "[]"


def test_a_plan_loads_only_what_it_needs():
    """No charts and no page without --out, no tables with --json."""
    heavy = ["jinja2", "rich", "simpy", "torch", "ortools"]
    words = ["plan", "--model", "llama-3-8b", "--cluster", "toy", "--planner", "even", "--json"]
    check = f"from hippo.cli.main import run\nimport sys\nrun({words!r})\n"
    check += f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    seen = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stderr
    assert seen.splitlines()[-1] == "[]"


def test_planning_needs_no_torch():
    check = "import hippo.registry as r, sys\n[r.planner(n) for n in r.PLANNERS]\nprint('torch' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert seen.strip() == "False"


def test_every_folder_says_what_belongs_there():
    """A README of a few lines in each that holds sources or what they read."""
    folders = {path.parent for path in tracked() if path.is_relative_to(ROOT / "src" / "hippo") and path.is_file()}
    assert sorted(str(each.relative_to(ROOT)) for each in folders if not (each / "README.md").is_file()) == []


ONE_A_FILE = {"cli", "network/methods", "schedule/generators"}
"""Folders whose files are told as one: a command, a method, a generator each."""


def test_a_readme_leaves_out_no_file_and_names_none_that_is_gone():
    """Each is named, or meant by a pattern such as ``*_terminal``."""
    house, omitted, lost = ROOT / "src" / "hippo", [], []
    for readme in (path for path in tracked() if path.name == "README.md" and path.is_relative_to(house)):
        told = re.findall(r"`([^`]+)`", readme.read_text())
        lost += [
            f"{readme.parent.name}: {name}" for name in told if name.endswith(".py") and not found_from(readme, name)
        ]
        if str(readme.parent.relative_to(house)) in ONE_A_FILE:
            continue
        files = (path for path in readme.parent.glob("*.py") if not path.name.startswith("__"))
        omitted += [
            str(path.relative_to(house))
            for path in files
            if not any(fnmatch(path.stem, name.removesuffix(".py")) for name in told)
        ]
    assert (omitted, lost) == ([], [])


def found_from(readme: Path, name: str) -> bool:
    """Paths begin in the folder, in one above it within the package, or at the root of the checkout."""
    above = [readme.parent, *(each for each in readme.parents if each.is_relative_to(ROOT / "src" / "hippo")), ROOT]
    return any((each / name).is_file() for each in above)


def test_dotted_names_in_docstrings_lead_somewhere():
    """``hippo.room.module`` or a name in it; where something moved, what tells of it moves too."""
    lost = []
    for path in SOURCES:
        for name in re.findall(r"``(hippo(?:\.\w+)+)(?:\(\))?``", path.read_text()):
            if name.endswith(".yaml"):
                continue
            parts, place = name.split("."), ROOT / "src"
            while parts and (place / parts[0]).is_dir():
                place /= parts.pop(0)
            module = (
                place / f"{parts[0]}.py" if parts and (place / f"{parts[0]}.py").is_file() else place / "__init__.py"
            )
            parts = parts[1:] if module.name != "__init__.py" else parts
            if parts and not re.search(rf"\b{parts[0]}\b", module.read_text()):
                lost.append(f"{path.relative_to(ROOT)}: {name}")
    assert lost == []
