"""How the kernels of moving worlds are compiled.

Their arguments are tuples of dozens of arrays, and unpacking those for a call from Python is a third of the time that
compiling takes. So only kernels that Python calls have that way in, and none has the one for C.

A kernel that is called millions of times spends most of its time on counting who holds those arrays: twice per array
and call, with a lock on the bus. ``LEAN`` leaves that out, for kernels that make no array and hand none out.
"""

from __future__ import annotations

from typing import Any

ENTRY: dict[str, Any] = {"cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Of a kernel that Python calls."""
INNER: dict[str, Any] = {**ENTRY, "no_cpython_wrapper": True}
"""Of one that only kernels call."""
LEAN: dict[str, Any] = {**INNER, "_nrt": False}
"""Of an inner kernel that answers numbers, or writes into what it is given. It may look at parts of its arrays, but
neither make arrays (that does not compile) nor return any (whoever calls would give them up once too often), nor call
a kernel that returns any."""
LEAN_ENTRY: dict[str, Any] = {**ENTRY, "_nrt": False}
"""The same of a kernel that Python calls, too."""
WITHIN: dict[str, Any] = {**LEAN, "forceinline": True}
"""Of a lean kernel that one kernel calls, often: it becomes part of it, as to hand over dozens of arrays takes long."""
