"""The notebook of the examples: each cell runs, and what its last line makes can be shown."""

from __future__ import annotations

import ast
import json
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "plan.ipynb"


def test_every_cell_of_the_notebook_runs_and_shows_something():
    names: dict[str, object] = {}
    shown = []
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            *statements, last = ast.parse("".join(cell["source"])).body
            assert isinstance(last, ast.Expr)
            exec(compile(ast.Module(statements, []), cell["id"], "exec"), names)
            shown.append(eval(compile(ast.Expression(last.value), cell["id"], "eval"), names))
    decision, rows, front, timeline = shown
    assert "<svg" in decision._repr_html_()
    assert [row["Gbit/s"] for row in rows] == [2, 8, 32]
    assert rows[0]["s a step"] >= rows[1]["s a step"] >= rows[2]["s a step"]
    assert "<table" in front._repr_html_()
    assert "<table" in timeline._repr_html_()
