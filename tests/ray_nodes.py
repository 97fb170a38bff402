"""A Ray cluster of two nodes, as processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

NEEDS_RAY = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: an extra of its own, `ray`"),
    pytest.mark.filterwarnings("ignore"),  # of Ray and what it brings
]


@contextmanager
def two_nodes() -> Iterator[None]:
    """Two cores each; this process is connected."""
    import ray
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    found.add_node(num_cpus=2)
    ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
    found.shutdown()
