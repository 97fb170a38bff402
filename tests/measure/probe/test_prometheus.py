"""A server that answers as Prometheus does, and servers that do not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.measure.probe import prometheus as asking
from hippo.measure.probe.prometheus import MOST_POINTS, TimeSpan, rate_query, samples_from_server, trip_query

from .worlds import matrix, prometheus

pytest.importorskip("httpx", reason="needs the extra 'service'")

DOMAINS = {"east": "east", "west": "west", "10.0.0.2": "west"}
LINK = {"__name__": "x", "src": "east", "dst": "west"}
SPAN = TimeSpan(1000.0, 1120.0, 60.0)
NOTHING = matrix()


def asked(url: str, span: TimeSpan = SPAN, **more):
    return samples_from_server(url, span, DOMAINS, rate=rate_query("rate"), trip=trip_query("trip"), **more)


def told(rate=NOTHING, trip=NOTHING):
    """Answers by query."""
    return lambda parameters: {"rate": rate, "trip": trip}[parameters["query"]]


def test_strings_become_samples():
    rate = matrix((LINK, [[1000, "8e8"], [1060, "0"], [1120, "NaN"]]))
    trip = matrix((LINK, [[1000, "0.04"], [1120, "0.05"]]))
    with prometheus(told(rate, trip)) as (url, _):
        known = asked(url)
    assert [(one.time_s, one.rate_bytes_per_s, one.round_trip_s) for one in known.samples] == [
        (1000, 1e8, 0.04),
        (1060, 0.0, None),
        (1120, None, 0.05),
    ]
    assert known.remarks == ()


def test_a_series_that_is_missing_is_no_data():
    with prometheus(told(matrix((LINK, [[1000, "1"]])))) as (url, _):
        assert asked(url).remarks == ("no data: trip",)
    with prometheus(told()) as (url, _), pytest.raises(InputError, match="no rate of any link .*no data: rate"):
        asked(url)


def test_negative_speed_is_unknown():
    """As ``node_network_speed_bytes`` of a virtual interface."""
    with prometheus(told(matrix((LINK, [[1000, "-125000"]])))) as (url, _), pytest.raises(InputError, match="negative"):
        asked(url)


def test_hosts_with_ports_and_one_label():
    with prometheus(told(matrix(({"src": "east", "dst": "10.0.0.2:9100"}, [[1000, "1"]])))) as (url, _):
        assert asked(url).samples[0].pair == ("east", "west")
    with prometheus(told(matrix(({"instance": "10.0.0.2:9100"}, [[1000, "1"]])))) as (url, _):
        assert asked(url, names=("instance",)).samples[0].pair == ("west", "east")
        with pytest.raises(InputError, match="src and dst name no link"):
            asked(url)


def test_two_series_for_one_link():
    series = matrix((LINK, [[1000, "1"]]), ({**LINK, "device": "eth1"}, [[1000, "2"]]))
    with prometheus(told(series)) as (url, _), pytest.raises(InputError, match="several series for east->west"):
        asked(url)


def test_long_spans_are_asked_in_pieces(monkeypatch):
    monkeypatch.setattr(asking, "MOST_POINTS", 110)
    span = TimeSpan(0.0, 250.0, 1.0)

    def answer(parameters):
        start, end, step = (float(parameters[key]) for key in ("start", "end", "step"))
        if (end - start) / step + 1 > 110:
            return 400, {"status": "error", "errorType": "bad_data", "error": "exceeded maximum resolution"}
        return matrix((LINK, [[start + n * step, "8"] for n in range(int((end - start) / step) + 1)]))

    with prometheus(answer) as (url, questions):
        known = asked(url, span)
    assert len(known.samples) == 251
    assert len(questions) == 6


@given(st.floats(0, 1e9), st.floats(0, 1e7), st.floats(1, 1e5))
def test_pieces_cover_every_instant_once(start, length, step):
    pieces = list(TimeSpan(start, start + length, step).pieces())
    assert pieces[0][0] == start
    assert all(stop <= start + length + 1e-3 for _, stop in pieces)
    assert all((stop - begin) / step < MOST_POINTS - 0.5 for begin, stop in pieces)
    assert all(later[0] - before[1] == pytest.approx(step, rel=1e-3, abs=1e-3) for before, later in pairwise(pieces))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((400, {"status": "error", "errorType": "bad_data", "error": "parse error"}), "bad_data: parse error"),
        ((502, "Bad Gateway"), "answers 502"),
        ((200, "<html>"), "answers 200, and not as Prometheus does"),
        ((200, {"ok": True}), "not as Prometheus does"),
        ((200, {"status": "success", "data": {"resultType": "vector", "result": []}}), "no matrix"),
        ((200, {"status": "success", "data": None}), "no matrix"),
        (matrix((LINK, "x")), "without metric or values"),
        (matrix((LINK, [[1, 2, 3]])), "no pair"),
        (matrix((LINK, [["x", "2"]])), "without time"),
        (matrix((LINK, [[60, "1"], [0, "1"]])), "time that runs backwards"),
    ],
)
def test_other_answers(answer, words):
    with prometheus(told(answer)) as (url, _), pytest.raises(InputError, match=words):
        asked(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://", "ftp://x", "http://[::"])
def test_nobody_there(url):
    with pytest.raises(InputError, match="cannot be asked"):
        asked(url)


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (TimeSpan(10.0, 0.0, 1.0), "begins after its end"),
        (TimeSpan(0.0, 10.0, 0.0), "must be above 0"),
        (TimeSpan(0.0, 1e10, 0.001), "too many points"),
    ],
)
def test_spans_that_say_nothing(span, words):
    with pytest.raises(InputError, match=words):
        asked("http://127.0.0.1:1", span)
