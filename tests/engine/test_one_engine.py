"""One room moves a pipeline's clock on."""

from __future__ import annotations

import ast
from pathlib import Path

import hippo

PACKAGE = Path(hippo.__file__).parent
ROOMS = ("schedule", "simulate", "dispatch", "planners", "decide", "score", "run")
MOVED = {"link_free", "port_free", "wake", "wakes", "arrived", "arrival", "inputs"}
"""Names of what a play writes: when links and ports are free, ranks wake, and inputs arrive."""

REMAINING = {
    "schedule/search/graph.py:heads": "a longest path, from one operation on",
}
"""Outside the engine, each with why."""


def players(source: str) -> set[str]:
    """Kernels that write what a play writes."""
    found = set()
    for function in ast.parse(source).body:
        if isinstance(function, ast.FunctionDef) and any("kernel" in ast.unparse(d) for d in function.decorator_list):
            for each in ast.walk(function):
                if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store):
                    array = each.value
                    name = array.attr if isinstance(array, ast.Attribute) else getattr(array, "id", "")
                    if name in MOVED:
                        found.add(function.name)
    return found


def test_no_other_loop_plays_a_pipeline() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}:{name}"
        for room in ROOMS
        for path in (PACKAGE / room).rglob("*.py")
        for name in players(path.read_text())
    }
    assert found == set(REMAINING)


def test_a_second_loop_would_be_seen() -> None:
    loop = "@kernel(lean=True)\ndef play(order, link_free):\n    for op in order:\n        link_free[op] += 1.0\n"
    assert players(loop) == {"play"}
    assert "play" in players((PACKAGE / "engine" / "events.py").read_text())
