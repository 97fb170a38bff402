"""What has come in, filled by the channels' threads."""

from __future__ import annotations

import time
from threading import Condition

import torch

Tensor = torch.Tensor
Key = tuple[int, int, int]  # kind, chunk and wave of the operation that a message feeds


class Inbox:
    """Messages of one step."""

    def __init__(self) -> None:
        self.missing: dict[Key, int] = {}
        self.came_at_s: dict[Key, float] = {}  # on the monotonic clock
        self.tensors: dict[Key, Tensor] = {}
        self.news = Condition()
        self.error: BaseException | None = None

    def heard(self, key: Key) -> None:
        """One message of a key is there."""
        with self.news:
            self.missing[key] -= 1
            self.came_at_s[key] = time.monotonic()
            self.news.notify()

    def failed(self, error: BaseException) -> None:
        """A channel broke."""
        with self.news:
            self.error = error
            self.news.notify()

    def has(self, key: Key) -> bool:
        """Whether all of it is there, or nothing need come."""
        return self.missing.get(key, 0) == 0

    def check(self) -> None:
        """Raises what broke a channel."""
        if self.error is not None:
            raise self.error
