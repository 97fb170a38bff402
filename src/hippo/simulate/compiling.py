"""How the kernels of moving worlds are compiled.

Their arguments are tuples of dozens of arrays, and unpacking those for a call from Python is a third of the time that
compiling takes. So only kernels that Python calls have that way in, and none has the one for C.
"""

from __future__ import annotations

from typing import Any

ENTRY: dict[str, Any] = {"cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Of a kernel that Python calls."""
INNER: dict[str, Any] = {**ENTRY, "no_cpython_wrapper": True}
"""Of one that only kernels call."""
