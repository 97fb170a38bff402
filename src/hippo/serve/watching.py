"""What Prometheus is told of the service: ``hippo_<thing>_<unit>``."""

from __future__ import annotations

import sqlalchemy as sql
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hippo.serve import tables as t
from hippo.serve.domains import gpus_of
from hippo.serve.loop import ServeLoop
from hippo.serve.pull import Puller
from hippo.serve.store import Store, StoreError


class RequestTimes:
    """How long requests took, by address and status; streams are not among them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        told = "Of a request, until it was answered."
        labels, bounds = ("method", "path", "status"), (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
        self._seconds = Histogram("hippo_request_seconds", told, labels, buckets=bounds, registry=self.registry)

    def took(self, method: str, path: str, status: int, seconds: float) -> None:
        """One was answered; ``path``: as the OpenAPI document writes it."""
        self._seconds.labels(method, path, f"{status // 100}xx").observe(seconds)


def metrics_text(
    store: Store, loop: ServeLoop, puller: Puller | None = None, requests: RequestTimes | None = None
) -> str:
    """Prometheus' text of this moment."""
    registry = CollectorRegistry()
    registry.register(_Now(store, loop, puller))
    found = generate_latest(registry)
    return (found if requests is None else found + generate_latest(requests.registry)).decode()


class _Now:
    def __init__(self, store: Store, loop: ServeLoop, puller: Puller | None) -> None:
        self.store, self.loop, self.puller = store, loop, puller

    def collect(self) -> list[Metric]:
        """All figures, read when they are asked for."""
        loop, state = self.loop, self.loop.state
        jobs = GaugeMetricFamily("hippo_jobs", "Jobs by state.", labels=["state"])
        try:
            counted = self.store.read(
                lambda at: at.execute(sql.select(t.JOBS.c.state, sql.func.count()).group_by(t.JOBS.c.state)).all()
            )
        except StoreError:
            counted = []
        for name, count in counted:
            jobs.add_metric([name], count)
        links = GaugeMetricFamily(
            "hippo_link_bytes_per_second", "What a link carries.", labels=["source", "destination"]
        )
        bought = GaugeMetricFamily(
            "hippo_link_bought_bytes_per_second", "What it is bought as.", labels=["source", "destination"]
        )
        rate, _ = loop.carried()
        names = loop.site.live.site.domains
        for a, source in enumerate(names):
            for b, destination in enumerate(names):
                if a != b and (whole := loop.site.live.site.bandwidth_bytes_per_s[a][b]) > 0:
                    links.add_metric([source, destination], float(rate[a, b]))
                    bought.add_metric([source, destination], float(whole))
        gpus = GaugeMetricFamily("hippo_domain_gpus", "GPUs of a domain.", labels=["domain"])
        up = GaugeMetricFamily("hippo_domain_gpus_up", "GPUs of it that can be used, as told last.", labels=["domain"])
        for name, count in gpus_of(loop.site.live.site).items():
            gpus.add_metric([name], count)
            up.add_metric([name], loop.site.usable.get(name, count))
        age = GaugeMetricFamily(
            "hippo_link_measured_age_seconds", "Since a link was last measured.", labels=["source", "destination"]
        )
        now_s = loop.now_s()
        for ends, last_s in dict(loop.measured.last_s).items():
            age.add_metric([*ends], now_s - last_s)
        pace = GaugeMetricFamily(
            "hippo_step_measured_over_predicted_ratio", "Of the steps of a job that runs.", labels=["job"]
        )
        for name, ratio in loop.pace().items():
            pace.add_metric([name], ratio)
        faults = GaugeMetricFamily("hippo_actuator_up", "Whether an actuator answers.", labels=["actuator"])
        for worker in loop.workers.values():
            faults.add_metric([worker.actuator.name], float(not worker.trouble))
        heard = GaugeMetricFamily("hippo_telemetry_up", "Whether the Prometheus that is asked for links answers.")
        if self.puller is not None:
            heard.add_metric([], float(not self.puller.fault))
        return [
            jobs,
            links,
            bought,
            gpus,
            up,
            age,
            pace,
            faults,
            heard,
            GaugeMetricFamily("hippo_service_holds", "1: it decides nothing now.", float(bool(state.holds))),
            GaugeMetricFamily("hippo_policy_up", "0: a rule decides in its place.", float(not loop.degraded)),
            GaugeMetricFamily("hippo_store_unwritten", "1: the store cannot write.", float(bool(state.unwritten))),
            GaugeMetricFamily("hippo_notice", "1: /v1/state says what to look at.", float(bool(state.notice))),
            GaugeMetricFamily("hippo_orders_open", "Orders that are not answered yet.", loop.orders_open),
            GaugeMetricFamily("hippo_last_turn_age_seconds", "Since the loop went round.", loop.age_s()),
            CounterMetricFamily("hippo_decisions", "Decisions that became orders.", state.decisions),
            CounterMetricFamily("hippo_telemetry_points", "Measurements of links.", state.points),
            CounterMetricFamily("hippo_turns", "Times that the loop went round.", state.turns),
            CounterMetricFamily("hippo_turn_seconds", "What they took.", state.turned_s),
            CounterMetricFamily("hippo_turns_broken", "Times that it broke.", state.counts["turns broken"]),
        ]
