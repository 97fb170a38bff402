"""Checkpoints beside the training: at a border processes copy their layers, and write the copies while they train on.

One checkpoint is under way at a time: where a disk is slower than that, the border at which the next is due waits.
A checkpoint gets its name when every process has said that its layers are on the disk. No torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol

from hippo.errors import InputError
from hippo.run import checkpoint
from hippo.run.job import replicas_alone
from hippo.run.lost import LostError
from hippo.run.version import Version

SALVAGE_S = 10.0  # for a checkpoint that is under way when a run fails
POLL_S = 0.02


@dataclass(frozen=True)
class Saving:
    """Where checkpoints go, and how often."""

    folder: Path
    every: int = 10  # steps; the last step is always saved
    losses: tuple[float, ...] = ()  # of the steps before this run
    missed: Callable[[int, str], None] = lambda step, why: None  # hears of steps that could not be saved, and why


class Savers(Protocol):
    """The processes, as far as they save."""

    def say(self, whom: Iterable[int], **told: Any) -> None:
        """One line to each of these processes."""
        ...

    def said(self, key: str, whom: Sequence[int], *, number: int | None = None) -> bool:
        """Whether all of them have said so by now."""
        ...

    def gather(self, key: str, whom: Sequence[int], *, number: int | None = None) -> list[dict[str, Any]]:
        """A message with ``key`` from each, in their order."""
        ...


@dataclass(frozen=True)
class UnderWay:
    """A checkpoint that is being written."""

    hidden: Path
    step: int
    losses: tuple[float, ...]  # of all steps so far
    version: Version  # whose processes write it
    number: int  # among all that were begun: a step may be begun anew


class Saver:
    """Makes checkpoints, one after another; methods that hear processes raise ``RunError`` where one is lost."""

    def __init__(self, crew: Savers, saving: Saving) -> None:
        self._crew, self._saving = crew, saving
        self.under_way: UnderWay | None = None
        self.last: int | None = None  # the last step that was written, or could not be
        self._begun = 0

    def is_due(self, step: int, *, last: bool) -> bool:
        """Whether a step is to be saved."""
        return last or step % self._saving.every == 0

    def begin(self, version: Version, step: int, losses: Iterable[float]) -> None:
        """Lets every process of a version copy its layers. What cannot be written (a full disk) ends no training: the
        checkpoint before stays the newest."""
        assert self.under_way is None, "one is under way"
        try:
            hidden = checkpoint.begin(self._saving.folder, step)
        except InputError as error:
            self._missed(step, str(error))
            return
        self._begun += 1
        self.under_way = UnderWay(hidden, step, (*self._saving.losses, *losses), version, self._begun)
        self._crew.say(version.members, save=str(hidden.resolve()), number=self._begun, version=version.number)

    def poll(self) -> None:
        """Gives what is under way its name where all of it is on the disk."""
        now = self.under_way
        if now is not None and self._said(now.version.members, now.number):
            self.finish()

    def finish(self) -> None:
        """Waits for what is under way."""
        if (now := self.under_way) is None:
            return
        told = self._crew.gather("saved", now.version.members, number=now.number)
        self.under_way = None
        why = next((one["why"] for one in told if one["why"]), "")
        try:
            digests = {name: digest for one in told for name, digest in one["files"].items()}
            options, model = now.version.job.options, now.version.job.problem.model
            alone = replicas_alone(now.version.job.plan)
            if not why and (layer := checkpoint.lacks(digests, model, alone)) is not None:
                why = f"nobody wrote layer {layer}"
            if not why:
                told_of = {"seed": options.seed, "replicas": alone}
                checkpoint.commit(now.hidden, model, now.step, now.losses, digests=digests, **told_of)
        except (OSError, InputError) as error:  # a disk that is full as the last file is written
            why = getattr(error, "strerror", None) or str(error)
        if why:
            self._drop(now, why)
        else:
            self.last = now.step

    def forget(self, step: int) -> None:
        """Where this step is under way, it is to be begun anew: a process was lost that wrote it."""
        if (now := self.under_way) is not None and now.step == step:
            self.under_way = None
            rmtree(now.hidden, ignore_errors=True)

    def leaves(self, processes: Collection[int]) -> None:
        """These processes end now: what they were writing is given up."""
        now = self.under_way
        if now is not None and {*processes} & {*now.version.members}:
            self.under_way = None
            self._drop(now, "a process was lost that wrote it")

    def end(self) -> None:
        """The run is over: nothing half-done stays."""
        if (now := self.under_way) is not None:
            self.under_way = None
            rmtree(now.hidden, ignore_errors=True)

    def salvage(self, lost: Collection[int]) -> None:
        """A run has failed as these were lost: what is under way is still finished if all others write theirs."""
        end_s, gone = time.monotonic() + SALVAGE_S, set(lost)
        while (now := self.under_way) is not None:
            try:
                missing = [each for each in now.version.members if not self._said([each], now.number)]
            except LostError as error:  # what is told of others
                gone |= error.lost
                continue
            if not missing:
                self.finish()
            elif gone & {*missing} or time.monotonic() > end_s:
                self.under_way = None
                self._drop(now, "the run failed while it was written")
            time.sleep(POLL_S)

    def _said(self, whom: Sequence[int], number: int) -> bool:
        return self._crew.said("saved", whom, number=number)

    def _drop(self, now: UnderWay, why: str) -> None:
        rmtree(now.hidden, ignore_errors=True)
        self._missed(now.step, why)

    def _missed(self, step: int, why: str) -> None:
        self.last = step
        self._saving.missed(step, why)
