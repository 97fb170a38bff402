"""What the machine at hand has."""

from __future__ import annotations

import re


def available_bytes() -> float | None:
    """Memory that this machine has free; None where it does not say."""
    try:
        with open("/proc/meminfo") as stream:
            found = re.search(r"^MemAvailable:\s+(\d+) kB", stream.read(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else 1024.0 * int(found[1])
