"""What a policy is: a key that ranks jobs, and what it may do with the ranking."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.jobs.engine import columns


@dataclass(frozen=True)
class Policy:
    """Ranks the jobs that want to run, smallest key first, ties by arrival; plain data that the kernels read.

    ``code`` picks the key (``engine.keys``). ``numbers`` are the policy's own (at most 8).
    """

    name: str
    code: int  # of ``engine.columns``
    summary: str  # one sentence
    knows: str  # "nothing", "estimates" (the submitters') or "durations" (clairvoyant)
    source: str = ""  # paper
    preempts: bool = False
    strict: bool = False  # nobody passes a head that does not fit
    rounds: bool = False  # stops jobs at ends of rounds only
    levels: tuple[float, ...] = ()  # of attained service, ascending, at which a running job gets a new key
    per_device: bool = True  # levels count device-seconds, else seconds
    numbers: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        assert self.knows in ("nothing", "estimates", "durations")
        assert list(self.levels) == sorted(self.levels)

    @property
    def learns(self) -> bool:
        """Whether its key is that of ``jobs.learned``."""
        return self.code == columns.LEARNED
