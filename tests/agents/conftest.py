"""What the tests of agents share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tests run side by side; threads of torch would only get in each other's way."""
    torch.set_num_threads(1)
