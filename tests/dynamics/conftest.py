"""What the tests of moving links share."""

from tests.score.conftest import across, small

__all__ = ["across", "small"]
