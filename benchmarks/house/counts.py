"""What a tree is made of: lines, files, compiled kernels, private functions used once, names of classes, READMEs, docs.

All by the syntax tree and the files, nothing is imported. A kernel is a function with a decorator that compiles, or one
handed to it: numba's ``njit``, ``jit``, ``vectorize`` and their like, and every decorator of the tree's own that is
made of one. A private function is used once when its file names it once beside its definition.
"""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.house.tree import Tree

NUMBAS = {"kernel", "njit", "jit", "vectorize", "guvectorize", "cfunc", "stencil", "generated_jit"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def counts(tree: Tree) -> dict[str, Any]:
    """All counts of the files that git tracks."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=tree.folder, capture_output=True, text=True, check=True)
    tracked = [tree.folder / name for name in listing.stdout.split("\0") if name]
    package = tree.folder / "src" / "hippo"
    sources = [path for path in tracked if path.suffix == ".py" and package in path.parents and path.exists()]
    texts = [path.read_text() for path in sources]
    trees = [ast.parse(text) for text in texts]
    folders = {path.parent for path in tracked if package in (path.parent, *path.parents) and path.exists()}
    docs = [path for path in tracked if path.suffix == ".md" and tree.folder / "docs" in path.parents and path.exists()]
    private = [uses for each in trees for uses in private_uses(each)]
    classes = Counter(node.name for each in trees for node in ast.walk(each) if isinstance(node, ast.ClassDef))
    shared = {name: number for name, number in classes.items() if number > 1}
    return {
        "files of src": len(sources),
        "lines of src": sum(text.count("\n") for text in texts),
        "functions": sum(isinstance(node, Function) for each in trees for node in ast.walk(each)),
        "compiled kernels": kernels(trees),
        "private functions": len(private),
        "of them used once": private.count(1),
        "class names that stand for several classes": len(shared),
        "classes of such names": sum(shared.values()),
        "folders of src": len(folders),
        "of them with a README": sum((folder / "README.md").exists() for folder in folders),
        "pages of docs": len(docs),
        "words of docs": sum(len(path.read_text().split()) for path in docs),
    }


def kernels(trees: Sequence[ast.Module]) -> int:
    """How many functions are compiled."""
    compiling = set(NUMBAS)
    used = {_name(each) for tree in trees for function in _functions(tree) for each in function.decorator_list}
    while found := {name for tree in trees for name in _made_of(tree, compiling) if name in used} - compiling:
        compiling |= found
    functions = [function for tree in trees for function in _functions(tree)]
    decorated = sum(any(_name(each) in compiling for each in function.decorator_list) for function in functions)
    handed = sum(
        isinstance(node, ast.Assign | ast.Return)
        and isinstance(node.value, ast.Call)
        and _name(node.value) in compiling
        and any(isinstance(word, ast.Name) for word in node.value.args)
        for tree in trees
        for node in tree.body
    )
    return decorated + handed


def private_uses(tree: ast.Module) -> Iterator[int]:
    """Of every private function of a file: how often the file names it."""
    names = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    for function in _functions(tree):
        if function.name.startswith("_") and not function.name.endswith("__"):
            yield names[function.name]


def _functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def _name(node: ast.expr) -> str:
    """The last name of what is called: ``njit`` of ``numba.njit(cache=True)(f)``."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _made_of(tree: ast.Module, compiling: set[str]) -> Iterator[str]:
    """Names at the top of a file whose definition names something that compiles."""
    for node in tree.body:
        inside = {_name(each) for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)}
        if isinstance(node, Function) and inside & compiling:
            decorated = any(_name(each) in compiling for each in node.decorator_list)
            yield from () if decorated else (node.name,)
        elif isinstance(node, ast.Assign) and inside & compiling:
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
