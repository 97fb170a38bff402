"""Scripts as modules: examples and benchmarks belong to no package."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from .conftest import ROOT


def script(place: str) -> ModuleType:
    """A file of the repository, run anew under a name of its own; nothing of its ``main`` happens."""
    spec = spec_from_file_location(place.removesuffix(".py").replace("/", "_"), ROOT / place)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module
    spec.loader.exec_module(module)
    return module
