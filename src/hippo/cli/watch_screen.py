"""What ``hippo watch`` shows while a trace is replayed: decisions as they are taken, under them how the links are."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console

from hippo.cli.output import PIPED_WIDTH
from hippo.network.worlds.replay import WatchedEpoch
from hippo.network.worlds.world import World
from hippo.problem.links import base_bandwidth
from hippo.report.terminal import question_view
from hippo.report.text import assumed_text
from hippo.report.watch_terminal import compression_line, decision_view, prices_line, status_view

LEAST_SHOWN_S = 0.08
"""Between two pictures of a terminal: more often nobody sees."""


class Screen:
    """A watcher of a replay and a context. A terminal shows the links below the decisions, a pipe only decisions."""

    def __init__(self, world: World, *, pace_s: float = 0.0) -> None:
        self.world, self.pace_s = world, pace_s
        live = sys.stdout.isatty()
        self._console = Console(width=None if live else PIPED_WIDTH)
        self._live: Any = None
        self._shown_at_s = float("-inf")
        cluster = world.problem.cluster
        self._names = [f"{link.source} -> {link.destination}" for link in cluster.links]
        self._shares = world.bandwidth_bytes_per_s / base_bandwidth(cluster)
        self._is_live = live

    def __enter__(self) -> Screen:
        if self._is_live:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, moment: WatchedEpoch) -> None:
        """Shows one epoch."""
        if moment.epoch.view.epoch == 0:
            problem = self.world.problem
            self._console.print(question_view(problem))
            assumed = assumed_text(problem, domains=len(problem.cluster.domains))
            for note in (assumed, prices_line(problem), compression_line(problem)):
                self._console.print(note, highlight=False, markup=False, style="dim", end="\n" if note else "")
            self._console.print()
        if moment.told is not None:
            self._console.print(decision_view(moment.told))
        if self._live is not None and (self.pace_s > 0 or time.monotonic() - self._shown_at_s > LEAST_SHOWN_S):
            self._shown_at_s = time.monotonic()
            self._live.update(self._status(moment), refresh=True)
        if self.pace_s > 0:
            time.sleep(self.pace_s)

    def _status(self, moment: WatchedEpoch) -> Any:
        view, running = moment.epoch.view, moment.epoch.running
        order = np.argsort(-view.cache.bytes_per_step(running), kind="stable")
        kept = moment.keeping_net_tokens
        return status_view(
            [self._names[link] for link in order],
            self._shares[: view.epoch + 1, order],
            plan=view.cache.configurations[running].plan,
            time_s=view.epoch * self.world.epoch_s,
            work_share=moment.net_tokens / kept if kept > 0 else 1.0,
            width=self._console.width,
        )
