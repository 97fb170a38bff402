"""What becomes of measurements: minutes that say what their points said, and a Prometheus that is asked for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sql
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.measure.probe.worlds import matrix, prometheus

from hippo.dynamics.forecast import Telemetry, forecast
from hippo.errors import InputError
from hippo.problem.links import base_bandwidth
from hippo.problem.load import load_cluster
from hippo.serve import tables as t
from hippo.serve.expected import AHEAD, LinkMinutes
from hippo.serve.pull import Puller, PullTerms, pulled
from hippo.serve.records import LinkPoint, SeenJob
from hippo.serve.store import Store
from hippo.serve.telemetry import MOST_LOOKS, POINTS_S, checked, history, lately, looked, rolled, written

from .worlds import Clock, Served, url

NOW_S = 1_800_000_000.0
FROM, TO = "wuhu", "guian"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served.of(url(tmp_path), Clock(NOW_S))
    yield made
    made.close()


points = st.lists(
    st.builds(
        LinkPoint,
        time_s=st.integers(0, 4000).map(lambda ago: NOW_S - ago),
        source=st.sampled_from(["a", "b"]),
        destination=st.just("c"),
        bytes_per_s=st.integers(0, 10**9).map(float),
        latency_s=st.none() | st.integers(1, 100).map(lambda ms: ms / 1e3),
        by=st.just("me"),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(points, st.integers(1, 70))
def test_minutes_say_what_their_points_said(tmp_path_factory: pytest.TempPathFactory, told: list, most: int):
    store = Store(url(tmp_path_factory.mktemp("store")))
    try:
        for part in (told[::2], told[1::2]):  # those that come late join the minutes that are there
            if part:
                store.write(written(part)).result()
            before = minutes(store)
            while store.write(rolled(NOW_S, most)).result():
                pass
            for one, other in zip(before, minutes(store), strict=True):
                assert one == pytest.approx(other)
        while store.write(rolled(NOW_S, 1000)).result():
            pass
        left = store.read(lambda at: at.execute(sql.select(sql.func.min(t.POINTS.c.time_s))).scalar())
        assert left is None or left >= NOW_S - POINTS_S
    finally:
        store.close()


def minutes(store: Store) -> list[tuple[float, ...]]:
    return [row for end in "ab" for row in store.read(lambda at, end=end: history(at, end, "c", 0.0))]


def test_the_loop_rolls_and_a_restart_knows_what_to_expect(served: Served, tmp_path: Path):
    old = [LinkPoint(NOW_S - 2000.0, FROM, TO, 1e8, None, "me")]
    young = [LinkPoint(NOW_S - 30.0 + at, FROM, TO, 2e8, 0.01, "me") for at in range(3)]
    served.store.write(written([*old, *young])).result()
    served.turn()
    assert served.loop._rolling is not None
    assert served.loop._rolling.result() == 4
    assert served.store.read(lambda at: at.execute(sql.select(t.MINUTES.c.points)).all()) == [(1,)]
    (last,) = served.store.read(lambda at: lately(at, NOW_S - 900.0))
    assert (last.time_s, last.bytes_per_s) == (NOW_S - 28.0, 2e8)
    served.close()
    again = Served.of(url(tmp_path), served.clock)
    known = LinkMinutes(again.loop.site.cluster)
    known.add([*old, *young])
    assert again.loop.measured.expected(NOW_S) == known.expected(NOW_S)
    assert set(known.expected(NOW_S)) == {(FROM, TO)}
    again.close()


def test_what_is_expected_of_a_link_is_the_forecast_of_its_minutes():
    """A link that swings, one that is out, one of which nobody has told for an hour; each minute told in two points."""
    cluster = load_cluster("four-hubs")
    ends = [(each.source, each.destination) for each in cluster.links]
    base, minutes = base_bandwidth(cluster), LinkMinutes(cluster)
    rng = np.random.default_rng(0)
    rates = base * np.clip(rng.normal(0.6, 0.1, (120, len(ends))), 0.1, 1.0)
    rates[90:, 1] = 0.0
    fresh = np.ones(rates.shape, np.bool_)
    fresh[60:, 2] = fresh[:, 3:] = False
    for at, row in enumerate(rates):
        told = [
            LinkPoint(NOW_S + 60.0 * at + by, *ends[link], row[link] * (0.9 + by / 100.0))
            for by in (0.0, 20.0)
            for link in range(3)
            if fresh[at, link]
        ]
        minutes.add(told)
    found = minutes.expected(NOW_S + 60.0 * 119 + 30.0)
    assert set(found) == set(ends[:3])
    known = np.where(fresh, rates, 0.0)
    known[60:, 2] = rates[59, 2]
    nothing = np.full(rates.shape, np.nan), np.ones((120, len(cluster.domains)))
    wanted = forecast(Telemetry(known, *nothing, fresh), cluster, 60.0, horizons=(0, AHEAD))
    for link in range(3):
        one, mean, sd = found[ends[link]], wanted.bandwidth_bytes_per_s[-1, link], wanted.sd[-1, link]
        assert one.expected == pytest.approx(mean)
        assert (one.least, one.most) == pytest.approx((mean * np.exp(-1.645 * sd), mean * np.exp(1.645 * sd)))
    swings, out, silent = (found[each] for each in ends[:3])
    assert swings.least < 0.6 * base[0] < swings.most
    assert out.expected < 0.3 * base[1]
    assert silent.most / silent.least > swings.most / swings.least
    assert minutes.expected(NOW_S + 60.0 * 119 + 50.0) is found  # made once a minute
    minutes.add([LinkPoint(NOW_S + 60.0 * 1000, *ends[0], 1e8)])
    assert set(minutes._sums) == {int(NOW_S // 60.0) + 1000}  # the others are too old


def test_a_prometheus_is_asked_for_what_is_new(served: Served):
    rows = [[NOW_S - 20.0, "8e8"], [NOW_S - 5.0, "1.6e9"]]
    answer = matrix(({"src": FROM, "dst": TO}, rows))
    with prometheus(lambda asked: answer if asked["query"] == "rate" else matrix()) as (at, _):
        puller = Puller(served.loop, PullTerms(at, "rate", "trip"), now_s=served.clock)
        assert puller.look() == 2
        assert served.loop.measured.last_s[FROM, TO] == NOW_S - 5.0
        assert puller.look() == 0
        rows.append([NOW_S, "0"])
        assert puller.look() == 1
    served.turn()
    names = served.loop.site.live.site.domains
    assert served.loop.carried()[0][names.index(FROM), names.index(TO)] == 0.0


def test_a_prometheus_that_is_gone_or_speaks_nonsense_is_a_fault(served: Served):
    puller = Puller(served.loop, PullTerms("http://127.0.0.1:1", "rate", "trip"), now_s=served.clock)
    with pytest.raises(InputError, match="cannot be asked"):
        puller.look()
    answer = matrix(({"src": FROM, "dst": TO}, [[NOW_S, "9e14"]]))
    with prometheus(lambda asked: answer if asked["query"] == "rate" else matrix()) as (at, _):
        puller = Puller(served.loop, PullTerms(at, "rate", "trip"), now_s=served.clock)
        with pytest.raises(InputError, match="times what is bought"):
            puller.look()
    assert (FROM, TO) not in served.loop.measured.last_s


def test_terms_of_pulling():
    assert pulled("", 15.0) is None
    with pytest.raises(InputError, match="is no address"):
        pulled("localhost:9090", 15.0)
    with pytest.raises(InputError, match="out of range"):
        pulled("http://localhost:9090", 0.0)


def test_how_a_job_went_on_is_kept_more_coarsely_the_older_it_is(served: Served):
    for at in range(3 * MOST_LOOKS):
        seen = SeenJob("j1", "", "running", at / (3.0 * MOST_LOOKS), 0.5, 3.0 - at / 1000.0)
        served.store.write(looked("j1", NOW_S + at, seen)).result()
    times = served.store.read(lambda at: at.execute(sql.select(t.PROGRESS.c.time_s).order_by("time_s")).scalars().all())
    assert MOST_LOOKS / 2 <= len(times) <= MOST_LOOKS
    assert (times[0], times[-1]) == (NOW_S, NOW_S + 3 * MOST_LOOKS - 1)


def test_tables_are_those_that_migrations_make(served: Served):
    with served.store.engine.connect() as at:
        assert compare_metadata(MigrationContext.configure(at), t.METADATA) == []


def test_a_time_of_which_nothing_is_kept_is_refused(served: Served):
    site = served.loop.site.live.site
    assert checked(site, LinkPoint(NOW_S - 29 * 86_400.0, FROM, TO, 1e6), "links.0", NOW_S)
    with pytest.raises(InputError, match=r"links\.0\.time_s: lies \d+ days back"):
        checked(site, LinkPoint(1.0, FROM, TO, 1e6), "links.0", NOW_S)
