"""Rounds: which pairs, outages, the clock; hosts and instants as people write them."""

from __future__ import annotations

import pytest

from hippo.errors import InputError
from hippo.measure.probe.ask import PathMeasured
from hippo.measure.probe.prometheus import instant
from hippo.measure.probe.rounds import (
    Leg,
    ProbeHost,
    domains_of_addresses,
    hosts_from_texts,
    legs_between,
    refuse_silence,
    rounds,
)
from hippo.measure.probe.wire import Goodput, NoAnswer

from .worlds import QUICK, Clock

FOUND = PathMeasured(0.01, 0.02, 5, Goodput(954.0, 1.0), Goodput(477.0, 1.0), 1448.0)


def hosts(*names: str) -> list[ProbeHost]:
    return [ProbeHost(name, "h", 1) for name in names]


def test_every_pair_once():
    assert [leg.domains for leg in legs_between(hosts("b", "c"), "a")] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [leg.domains for leg in legs_between(hosts("a", "b"), None)] == [("a", "b")]
    assert [leg.domains for leg in legs_between(hosts("a", "b"), "a")] == [("a", "b")]
    with pytest.raises(InputError, match="--here NAME"):
        legs_between(hosts("a"), None)


def test_an_outage_is_a_rate_of_zero(monkeypatch):
    monkeypatch.setattr("hippo.measure.probe.rounds.time", Clock())
    answers = iter([FOUND, NoAnswer("gone"), FOUND])

    def ask(_):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    leg = Leg(("a", "b"), "a to b", ask)
    found = list(rounds([leg], QUICK, every_s=0.05, for_s=0.1, progress=lambda *_: None))
    seen = [look.samples(time_s) for time_s, (look,) in found]
    assert [there.rate_bytes_per_s for there, _ in seen] == pytest.approx([1000.0, 0.0, 1000.0], rel=1e-3)
    assert [back.rate_bytes_per_s for _, back in seen] == pytest.approx([500.0, 0.0, 500.0], rel=1e-3)
    assert [there.round_trip_s for there, _ in seen] == [0.01, None, 0.01]
    times = [time_s for time_s, _ in found]
    assert [later - times[0] for later in times] == pytest.approx([0, 0.05, 0.1])
    with pytest.raises(InputError, match="a to b: gone"):
        refuse_silence(found[1][1])


def test_rounds_that_a_long_one_covers_fall_out(monkeypatch):
    """Rounds of 1, 2.5 and 1 s, a second apart: the one at 2 s falls out, as does that at 3 s."""
    clock, lasts = Clock(), iter([1.0, 2.5, 1.0])
    monkeypatch.setattr("hippo.measure.probe.rounds.time", clock)

    def ask(_):
        clock.sleep(next(lasts))
        return FOUND

    found = list(rounds([Leg(("a", "b"), "a to b", ask)], QUICK, every_s=1.0, for_s=4.0, progress=lambda *_: None))
    assert [time_s - found[0][0] for time_s, _ in found] == [0.0, 1.0, 4.0]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("east=10.0.0.1", ProbeHost("east", "10.0.0.1", 5210)),
        ("east=10.0.0.1:99", ProbeHost("east", "10.0.0.1", 99)),
        ("10.0.0.1:99", ProbeHost("10.0.0.1", "10.0.0.1", 99)),
        ("east=[fd00::1]:99", ProbeHost("east", "fd00::1", 99)),
        ("east=fd00::1", ProbeHost("east", "fd00::1", 5210)),
    ],
)
def test_hosts(text, host):
    assert hosts_from_texts([text], source="--to") == (host,)


@pytest.mark.parametrize("text", ["", "=", "east=", "=h", "east=h:0", "east=h:99999", "east=h:x", "a/b=h", "e=h i"])
def test_no_hosts(text):
    with pytest.raises(InputError, match="--to"):
        hosts_from_texts([text], source="--to")


def test_domains_that_are_unknown_or_twice():
    with pytest.raises(InputError, match="unknown domain 'x'"):
        hosts_from_texts(["x=h"], source="--to", known=["a"])
    with pytest.raises(InputError, match="two hosts for one domain"):
        hosts_from_texts(["a=h", "a=i"], source="--to")
    with pytest.raises(InputError, match="two domains"):
        domains_of_addresses(["a=h", "b=h"], source="--host", known=None)
    with pytest.raises(InputError, match="unknown domain"):
        domains_of_addresses(["a=h"], source="--host", known=["b"])
    assert domains_of_addresses(["a=h", "a=i"], source="--host", known=None) == {"h": "a", "i": "a"}


def test_instants():
    day = 86_400.0
    assert instant("now", day, option="--end") == day
    assert instant("-6h", day, option="--start") == day * 3 / 4
    assert instant("1234.5", day, option="--start") == 1234.5
    assert instant("1970-01-02", day, option="--start") == day
    assert instant("1970-01-02T01:00:00+01:00", day, option="--start") == day
    for text in ("", "yesterday", "-6", "nan", "1e99", "-inf"):
        with pytest.raises(InputError, match="--start"):
            instant(text, day, option="--start")
