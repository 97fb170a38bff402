"""Kernels compiled without counting who holds their arrays give none back: nobody would notice but the memory.

numba itself refuses arrays that such a kernel makes, and parts of arrays; it lets one pass that was handed in.
"""

from __future__ import annotations

import ast
from pathlib import Path

import hippo

LEAN = ("LEAN", "LEAN_ENTRY", "WITHIN", "_nrt=False")


def given_back(text: str) -> tuple[int, list[str]]:
    """How many lean kernels a module has, and those that return an array that they were given."""
    kernels = [
        each
        for each in ast.walk(ast.parse(text))
        if isinstance(each, ast.FunctionDef)
        and any(word in ast.unparse(decorator) for decorator in each.decorator_list for word in LEAN)
    ]
    return len(kernels), [each.name for each in kernels if _returned(each) & _looked_into(each)]


def _returned(kernel: ast.FunctionDef) -> set[str]:
    given = {each.arg for each in kernel.args.args}
    values = [each.value for each in ast.walk(kernel) if isinstance(each, ast.Return)]
    parts = [part for value in values for part in (value.elts if isinstance(value, ast.Tuple) else [value])]
    return {part.id for part in parts if isinstance(part, ast.Name)} & given


def _looked_into(kernel: ast.FunctionDef) -> set[str]:
    """Names of arrays, and of tuples of them: what the kernel takes something out of."""
    inside = [each.value for each in ast.walk(kernel) if isinstance(each, ast.Subscript | ast.Attribute)]
    measured = [
        each.args[0]
        for each in ast.walk(kernel)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "len"
    ]
    return {each.id for each in (*inside, *measured) if isinstance(each, ast.Name)}


def test_lean_kernels_give_no_array_back():
    found = {file: given_back(file.read_text()) for file in Path(hippo.__file__).parent.rglob("*.py")}
    assert sum(count for count, _ in found.values()) > 40
    assert [(file.name, names) for file, (_, names) in found.items() if names] == []


def test_one_that_does_is_seen():
    kernel = "@njit(**LEAN)\ndef f(a, b):\n    a[0] = b\n    return {}\n"
    assert given_back(kernel.format("b")) == (1, [])
    assert given_back(kernel.format("a")) == (1, ["f"])
    assert given_back(kernel.format("b, a")) == (1, ["f"])
