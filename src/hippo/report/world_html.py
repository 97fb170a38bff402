"""Parts of the page of a replay of elastic jobs: devices and links over time, who waits and why, what was stopped."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from hippo.decide.wording import count, listed, number, percent
from hippo.jobs.account import ReplayAccount
from hippo.jobs.job import KINDS
from hippo.jobs.joint.figures import stopped_s
from hippo.jobs.joint.record import DONE, EVICTED, FAILED, LEFT, PAUSED, SCATTERED, TOO_FEW, LinkState, Run, WorldRecord
from hippo.report.jobs_charts import Axes, ChartLine, Floats, chart, span, stacked
from hippo.report.text import NOTHING, unbroken, usd
from hippo.report.world_charts import (
    DeviceBlock,
    Lane,
    Stretch,
    TimeAxis,
    binned,
    device_map,
    job_lanes,
    link_chart,
    palette,
)

MOST_DOMAINS, MOST_LINKS, MOST_LANES, MOST_STOPS = 8, 12, 30, 14
BINS = 160
MOST = 0.8  # of the device time in use, which a picture shows where the rest takes long
WHYS = ((TOO_FEW, "var(--m3)"), (SCATTERED, "var(--m4)"), (LEFT, "var(--m5)"))
WHILE = {
    TOO_FEW: "while too few devices were free",
    SCATTERED: "while enough were free, but not together",
    LEFT: "though they could have begun",
}
IDLE = "on devices, but restarting or waiting for data or state", "var(--k4)"
FLOWS = (
    ("exchange of jobs over several domains", "var(--d0)"),
    ("data", "var(--m2)"),
    ("state of jobs that move", "var(--d1)"),
)
HATCHED = "not computing yet", "repeating-linear-gradient(45deg, var(--idle) 0 3px, var(--k4) 3px 4.5px)"
AWAY = "a broken node, other tenants", "color-mix(in srgb, var(--bad) 40%, var(--idle))"
FRAMED = "a part of a job over several domains", "var(--idle);outline:2px solid var(--ink);outline-offset:-2px"
GANGS = {"train": "gangs", "preprocess": "preparation", "predict": "prediction", "deploy": "serving"}
GANG_COLOURS = dict(zip(GANGS.values(), ("var(--m5)", "var(--d8)", "var(--m2)", "var(--d7)"), strict=True))
BY = {PAUSED: "by the scheduler", EVICTED: "by other tenants", FAILED: "by a broken node"}
ENDED = {
    PAUSED: "stopped by the scheduler",
    EVICTED: "put out by other tenants",
    FAILED: "stopped by a failure",
    DONE: "done",
}


def world_panels(account: ReplayAccount, record: WorldRecord) -> dict[str, object]:
    """What the template of the page needs besides."""
    told = _Telling(account, record)
    return {
        "devices": Markup(told.devices()),
        "devices_lead": unbroken(told.devices_lead()),
        "devices_legend": [(name, Markup(_patch(colour))) for name, colour in told.kinds()],
        "links": told.links(),
        "links_lead": unbroken(told.links_lead()),
        "links_legend": [(name, Markup(_patch(colour))) for name, colour in FLOWS],
        "waits": Markup(told.waits()),
        "waits_lead": unbroken(told.waits_lead()),
        "waits_legend": [(name, Markup(_patch(colour))) for name, colour in (*WHYS, IDLE)],
        "lanes": Markup(told.lanes()),
        "lanes_lead": unbroken(told.lanes_lead()),
        "stops": told.stops(),
        "stops_lead": unbroken(told.stops_lead()),
    }


def _patch(colour: str) -> str:
    return f'<i class="swatch" style="background:{colour}"></i>'


class _Telling:
    """The first play of an account, in pictures and sentences."""

    def __init__(self, account: ReplayAccount, record: WorldRecord) -> None:
        self.account, self.record, self.jobs = account, record, account.workload
        self.first, self.domains = account.first, account.site.domains
        assert account.offers is not None, "elastic jobs have offers"
        self.offers = account.offers
        self.best = account.offers.quickest(account.workload)
        self.kind = [self._kind(job) for job in range(len(self.jobs))]
        weight = Counter[str]()
        for run in record.runs:
            weight[self.kind[run.job]] += int(_gpus(run) * (run.end_s - run.begin_s))
        gangs = [name for name in GANGS.values() if name in weight]
        models = sorted((name for name in weight if name not in gangs), key=lambda name: -weight[name])
        self.colours = {**palette(models), **{name: GANG_COLOURS[name] for name in gangs}}
        begin_s = float(self.jobs.arrival_s[0])
        last_s = max(each.end_s for each in record.runs)
        busy_s = 1.02 * max(
            [float(self.jobs.arrival_s[-1]), *(each.end_s for each in record.waits), self._most_done_s()]
        )
        self.span = TimeAxis(begin_s, busy_s if busy_s < 0.8 * last_s else last_s)
        self.cut_off = sum(each.end_s > self.span.end_s for each in record.runs)

    def _kind(self, job: int) -> str:
        jobs = self.jobs
        return jobs.models[jobs.model[job]] if jobs.elastic[job] else GANGS[KINDS[jobs.kind[job]]]

    def _most_done_s(self) -> float:
        """When ``MOST`` of the device time in use is over."""
        runs = sorted(self.record.runs, key=lambda each: each.end_s)
        used = np.cumsum([_gpus(run) * (run.end_s - run.begin_s) for run in runs])
        return runs[int(np.searchsorted(used, MOST * used[-1]))].end_s

    # --------------------------------------------------------------------------------------------------------- devices
    def devices(self) -> str:
        """The map of devices."""
        runs = [
            DeviceBlock(
                run.begin_s,
                run.end_s if np.isnan(run.computes_s) else run.computes_s,
                run.end_s,
                run.nodes,
                self.colours[self.kind[run.job]],
                self.jobs.name(run.job),
                self._told(run),
                run.job,
            )
            for run in self.record.runs
        ]
        away = [
            DeviceBlock(
                each.begin_s,
                each.begin_s,
                each.end_s,
                ((each.node, each.devices),),
                "",
                "",
                "a broken node" if each.broken else "other tenants",
            )
            for each in self.record.absences
        ]
        return device_map(self.account.site, [*runs, *away], self.span, self._shown())

    def _shown(self) -> list[int]:
        """The domains that are drawn: those used most, in the site's order."""
        used = np.zeros(len(self.domains))
        for run in self.record.runs:
            for domain, devices in run.gpus:
                used[domain] += devices * (run.end_s - run.begin_s)
        return sorted(np.argsort(-used, kind="stable")[:MOST_DOMAINS].tolist())

    def kinds(self) -> list[tuple[str, str]]:
        """What the colours of the map mean."""
        broken = [AWAY] if self.record.absences else []
        return [*self.colours.items(), HATCHED, FRAMED, *broken]

    def devices_lead(self) -> str:
        """How to read it, and what is left out."""
        runs = [run for run in self.record.runs if len(run.gpus) > 1]
        all_s = sum(_gpus(run) * (run.end_s - run.begin_s) for run in self.record.runs)
        over_s = sum(_gpus(run) * (run.end_s - run.begin_s) for run in runs)
        told = f"Under {self.first.policy.name}: a row per node, a block per job and stretch of time, coloured by job. "
        if runs:
            jobs = count(len({run.job for run in runs}), "job")
            told += (
                f"{jobs} ran over several domains, in {percent(over_s / all_s)} of the device time in use; the parts "
                "are joined by a line where they begin. "
            )
        else:
            told += "No job ran over several domains. "
        hidden = len(self.domains) - len(self._shown())
        if hidden:
            told += f"{count(hidden, 'domain')} that were used less are not drawn. "
        if self.cut_off:
            told += f"{count(self.cut_off, 'run')} go on beyond the right edge. "
        return told + "Point at a block to see all that belongs to its job."

    def _told(self, run: Run) -> str:
        """A run in words."""
        jobs, job = self.jobs, run.job
        lines = [f"{jobs.name(job)}: {self.kind[job]}{_priority(int(jobs.priority[job]))}"]
        where = " + ".join(f"{devices} {self.domains[domain]}" for domain, devices in run.gpus)
        lines.append(f"{count(_gpus(run), 'device')}: {where}{self._layout(run)}")
        lines.append(f"from {span(run.begin_s)} for {span(run.end_s - run.begin_s)}")
        if np.isnan(run.computes_s):
            lines.append("never computed")
        elif run.computes_s > run.begin_s:
            lines.append(f"computes after {span(run.computes_s - run.begin_s)}")
        if run.state_gb:
            lines.append(f"state: {number(run.state_gb)} GB from {self.domains[run.state_from]}, {usd(run.state_usd)}")
        lines.append(self._ended(run))
        return "\n".join(lines)

    def _layout(self, run: Run) -> str:
        if run.offer < 0:
            return ""
        dp, tp, pp = self.offers.layout[run.offer].tolist()
        return f", dp {dp} tp {tp} pp {pp}"

    def _ended(self, run: Run) -> str:
        if run.for_job == run.job:
            return "then it goes on elsewhere or otherwise"
        return ENDED[run.ended] + (f"; {self.jobs.name(run.for_job)} takes its devices" if run.for_job >= 0 else "")

    # ----------------------------------------------------------------------------------------------------------- links
    def links(self) -> list[dict[str, str]]:
        """The links that carried most, each with its picture."""
        edges = np.linspace(self.span.begin_s, self.span.end_s, BINS + 1)
        gb = self.first.ledger.link_gb
        states: dict[tuple[int, int], list[LinkState]] = {}
        for each in self.record.links:
            states.setdefault((each.source, each.destination), []).append(each)
        found, shown = [], sorted(states, key=lambda link: -gb[link])[:MOST_LINKS]
        means = {link: _means(states[link], edges) for link in shown}
        top = max((float(capacity.max()) for capacity, *_ in means.values()), default=1.0)
        for link in shown:
            capacity, *parts = means[link]
            name = f"{self.domains[link[0]]} → {self.domains[link[1]]}"
            used = float(sum(part.sum() for part in parts)) / max(float(capacity.sum()), 1e-9)
            coloured = [(colour, part) for (_, colour), part in zip(FLOWS, parts, strict=True)]
            svg = link_chart(name, edges, coloured, capacity, 1.05 * top)
            least, most = float(capacity.min()) * 8e-9, float(capacity.max()) * 8e-9
            carries = f"{number(most)} Gbit/s" if least > 0.99 * most else f"{number(least)} to {number(most)} Gbit/s"
            found.append(
                {
                    "name": name,
                    "carried": f"{_volume(float(gb[link]))}, {percent(used)} used",
                    "capacity": carries,
                    "svg": Markup(svg),
                }
            )
        return found

    def links_lead(self) -> str:
        """What went over them, in sentences."""
        figures, world = self.first.figures, self.first.world
        assert world is not None, "recorded"
        state_gb = sum(run.state_gb for run in self.record.runs)
        gb = self.first.ledger.link_gb
        paid = f", for {usd(self.first.egress_usd)} of egress" if self.first.egress_usd else ""
        more = int((gb > 0).sum()) - MOST_LINKS
        parts = [f"{_volume(world.exchanged_gb)} that jobs over several domains exchanged"]
        parts += [f"{_volume(state_gb)} of state of jobs that moved"] if state_gb else []
        parts += [f"{_volume(figures.moved_gb - state_gb)} of data"] if figures.moved_gb > 1.001 * state_gb else []
        told = (
            f"{_volume(figures.egress_gb)} crossed between domains{paid}: {listed(parts)}. The line is what a link can "
            "carry; exchanges come in bursts, their mean is drawn. All charts have one scale."
        )
        return told + (f" {count(more, 'link')} that carried less are not drawn." if more > 0 else "")

    # ----------------------------------------------------------------------------------------------------------- waits
    def waits(self) -> str:
        """How many jobs wait, by reason."""
        edges = np.linspace(self.span.begin_s, self.span.end_s, BINS + 1)
        stretches = [
            (why, colour, [(each.begin_s, each.end_s) for each in self.record.waits if each.why == why])
            for why, colour in WHYS
        ]
        idle = [(run.begin_s, run.end_s if np.isnan(run.computes_s) else run.computes_s) for run in self.record.runs]
        stretches.append((*IDLE, [(begin_s, end_s) for begin_s, end_s in idle if end_s > begin_s]))
        means = [_counts(each, edges) for _, _, each in stretches]
        lines = [
            ChartLine(why, edges, np.append(mean[:1], mean), css=colour)
            for (why, colour, _), mean in zip(stretches, means, strict=True)
        ]
        return chart(
            stacked(lines),
            Axes(220, "time since the first arrival", until=self.span.end_s),
            title="Jobs that wait, by reason",
        )

    def waits_lead(self) -> str:
        """How much of the waiting each reason is."""
        seconds = {
            why: sum(each.end_s - each.begin_s for each in self.record.waits if each.why == why) for why, _ in WHYS
        }
        all_s = sum(seconds.values())
        if not all_s:
            return "Nobody waited."
        told = listed(
            [f"{percent(each / all_s)} {WHILE[why]}" for why, each in seconds.items() if each > 0.005 * all_s]
        )
        world = self.first.world
        assert world is not None, "recorded"
        frag = ""
        if not np.isnan(world.fragmentation):
            share = percent(world.fragmentation)
            frag = (
                f" Meanwhile a job of this trace could not use {share} of the free devices, on average (fragmentation)."
            )
        return f"Jobs waited for {span(all_s)} in all: {told}.{frag}"

    def lanes(self) -> str:
        """What those jobs went through that took longest beyond what they would alone."""
        took_s = self.first.ledger.finish_s - self.jobs.arrival_s
        lost_s = np.nan_to_num(took_s - self.jobs.duration_s / self.best) + self.first.ledger.late_s
        chosen = sorted(np.argsort(-lost_s, kind="stable")[:MOST_LANES].tolist())
        rates: dict[int, list[tuple[float, float]]] = {}
        for time_s, job, rate in self.record.rates:
            rates.setdefault(job, []).append((time_s, rate))
        return job_lanes([self._lane(job, rates.get(job, [])) for job in chosen], self.span)

    def _lane(self, job: int, rates: list[tuple[float, float]]) -> Lane:
        colour, name = self.colours.get(self.kind[job], "var(--m5)"), self.jobs.name(job)
        why_colour, found = dict(WHYS), list[Stretch]()
        stopped = {run.end_s: self._ended(run) for run in self.record.runs if run.job == job}
        for wait in self.record.waits:
            if wait.job == job:
                after = f" ({stopped[wait.begin_s]})" if wait.begin_s in stopped else ""
                tip = (
                    f"{name} waits{after}: {wait.why}\nfrom {span(wait.begin_s)} for {span(wait.end_s - wait.begin_s)}"
                )
                found.append(Stretch(wait.begin_s, wait.end_s, why_colour[wait.why], tip, 0.55))
        for run in self.record.runs:
            if run.job != job:
                continue
            computes_s = run.end_s if np.isnan(run.computes_s) else run.computes_s
            found.append(Stretch(run.begin_s, computes_s, IDLE[1], self._told(run)))
            if run.offer < 0:
                found.append(Stretch(computes_s, run.end_s, colour, self._told(run)))
                continue
            changes = [(time_s, rate) for time_s, rate in rates if computes_s <= time_s < run.end_s]
            ends = [*(time_s for time_s, _ in changes), run.end_s]
            for (begin_s, end_s), (_, rate) in zip(pairwise(ends), changes, strict=True):
                share = rate / float(self.best[job])
                tip = f"{self._told(run)}\nhere {percent(share)} of the rate on its most devices in one domain"
                found.append(Stretch(begin_s, end_s, colour, tip, 0.3 + 0.7 * min(1.0, share)))
        for far in self.record.far:
            if far.job == job:
                tip = (
                    f"{name}: its clients in {self._clients(job)} are farther than its bound\nfrom {span(far.begin_s)}"
                )
                tip += f" for {span(far.end_s - far.begin_s)}"
                found.append(Stretch(far.begin_s, far.end_s, "var(--bad)", tip))
        deadline_s = float(self.jobs.deadline_s[job])
        found.sort(key=lambda each: each.begin_s)
        return Lane(job, name, tuple(found), deadline_s, not self.first.ledger.finish_s[job] <= deadline_s)

    def _clients(self, job: int) -> str:
        return self.jobs.client_domains[int(self.jobs.clients_at[job])]

    def lanes_lead(self) -> str:
        """How to read the lanes."""
        told = "A row per job, by arrival: waiting, then on devices, the fuller the colour the quicker. "
        if np.isfinite(self.jobs.deadline_s).any():
            told += "A green bar is a deadline that was kept, a red one was missed. "
        if self.record.far:
            told += "Red: clients are farther than the bound of a job that serves. "
        if len(self.jobs) > MOST_LANES:
            told += f"The {MOST_LANES} that took longest beyond what they would alone in one domain."
        return told.rstrip()

    # ----------------------------------------------------------------------------------------------------------- stops
    def stops(self) -> list[tuple[str, ...]]:
        """Those that cost most time."""
        costly = sorted(self.record.stops, key=lambda pair: -stopped_s(*pair))[:MOST_STOPS]
        rows: list[tuple[str, ...]] = []
        for before, after in sorted(costly, key=lambda pair: pair[0].end_s):
            taker = before.for_job
            same = (before.nodes, before.offer) == (after.nodes, after.offer)
            why = ENDED[before.ended]
            if taker == before.job:
                why = "starts anew as it was" if same else "goes on otherwise"
            elif taker >= 0:
                why = f"makes room for {self.jobs.name(taker)}"
            rows.append(
                (
                    self.jobs.name(before.job),
                    span(before.end_s),
                    why,
                    self._held(before),
                    self._held(after),
                    span(stopped_s(before, after)),
                    _volume(after.state_gb) if after.state_gb else NOTHING,
                    usd(after.state_usd) if after.state_usd else NOTHING,
                )
            )
        return rows

    def _held(self, run: Run) -> str:
        return " + ".join(f"{devices} {self.domains[domain]}" for domain, devices in run.gpus)

    def stops_lead(self) -> str:
        """All of them in a sentence."""
        if not self.record.stops:
            return "No job was stopped."
        ways = Counter(before.ended for before, _ in self.record.stops)
        told = listed([f"{number:,} {BY[way]}" for way, number in ways.most_common()])
        at_once = int(self.first.ledger.preemptions.sum() + self.first.ledger.failures.sum()) - len(self.record.stops)
        if at_once > 0:
            told += f" ({at_once:,} more of runs that lasted no time)"
        world = self.first.world
        assert world is not None, "recorded"
        paid = sum(run.state_usd for run in self.record.runs)
        moved = sum(run.state_gb for run in self.record.runs)
        state = f"{_volume(moved)} of state moved{f' for {usd(paid)}' if paid else ''}; " if moved else ""
        return (
            f"{count(len(self.record.stops), 'stop')}: {told}; {world.moves:,} went on on other devices or by another "
            f"plan; {state}a job was stopped for {span(world.interruption_s)} on average. The costliest, by time:"
        )


def _gpus(run: Run) -> int:
    return sum(devices for _, devices in run.gpus)


def _priority(value: int) -> str:
    return f", priority {value}" if value else ""


def _volume(gb: float) -> str:
    return f"{number(gb / 1e3)} TB" if gb >= 1000 else f"{number(gb)} GB"


def _means(states: list[LinkState], edges: Floats) -> list[Floats]:
    """Capacity, exchange, data and state between the edges."""
    times = [each.time_s for each in states]
    return [binned(times, column, edges) for column in list(zip(*states, strict=True))[3:]]


def _counts(stretches: list[tuple[float, float]], edges: Floats) -> Floats:
    """(b,) how many of these stretches lie between the edges (b + 1,), in the mean."""
    changes = sorted([(begin_s, 1) for begin_s, _ in stretches] + [(end_s, -1) for _, end_s in stretches])
    times = [time_s for time_s, _ in changes]
    return binned(times, np.cumsum([change for _, change in changes]).tolist() if changes else [], edges)
