"""Reports of iperf3: figures, directions, times; what is no report."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.measure.probe.iperf3 import samples_from_reports
from hippo.measure.probe.sample import frame_share

from .worlds import report

HOSTS = {"10.0.0.1": "east", "10.0.0.2": "west"}


@pytest.fixture
def read(tmp_path):
    """Reads reports from documents."""

    def reading(*documents, hosts=HOSTS):
        paths = []
        for index, document in enumerate(documents):
            path = tmp_path / f"{index}.json"
            path.write_text(document if isinstance(document, str) else json.dumps(document))
            paths.append(str(path))
        return samples_from_reports(paths, hosts)

    return reading


def test_a_report(read):
    (sample,), remarks = (found := read(report())).samples, found.remarks
    assert sample.pair == ("east", "west")
    assert sample.time_s == 1795248000
    assert sample.rate_bytes_per_s == pytest.approx(100e6 / 8, rel=1e-3)  # 95.4 % of the wire carries the stream
    assert sample.round_trip_s == pytest.approx(0.0402)
    assert remarks == ()


def test_the_way_back_and_both_ways(read):
    assert read(report(start__test_start__reverse=1)).samples[0].pair == ("west", "east")
    both = report(end__sum_received_bidir_reverse={"bits_per_second": 1e7})
    assert [sample.pair for sample in read(both).samples] == [("east", "west"), ("west", "east")]


def test_mean_round_trip_where_no_least_is_told_and_none_where_neither_is(read):
    old = report(end__streams=[{"sender": {"mean_rtt": 61000}}])
    assert read(old).samples[0].round_trip_s == pytest.approx(0.061)
    assert read(report(end__streams=[{"sender": {"mean_rtt": 0}}])).samples[0].round_trip_s is None


def test_files_in_any_order(read):
    late = report(start__timestamp={"timesecs": 1795248600})
    assert [sample.time_s for sample in read(late, report()).samples] == [1795248000, 1795248600]


def test_a_key_that_stands_twice(read):
    """As ``sock_bufsize`` and others do with ``--bidir`` (3.12)."""
    twice = json.dumps(report()).replace('"tcp_mss_default": 1448', '"sock_bufsize": 0, "sock_bufsize": 0')
    assert read(twice).samples[0].pair == ("east", "west")
    for text in ('{"start": ' + "9" * 5000 + "}", "[" * 100_000):
        with pytest.raises(InputError, match="not valid JSON"):
            read(text)


def test_remarks(read):
    ramp = read(report(start__test_start__omit=0))
    assert "ramp" in ramp.remarks[0]
    failed = {"start": {"connected": []}, "end": {}, "error": "unable to connect to server: Connection refused"}
    assert "Connection refused" in read(report(), failed).remarks[0]
    with pytest.raises(InputError, match="no report holds a measurement"):
        read(failed)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a mapping"),
        ({}, "start"),
        (report(start__connected=[]), "never began"),
        (report(end__sum_received={}), "bits_per_second"),
        (report(end={}), "sum_received"),
        (report(end__sum_received__bits_per_second=-1), "out of range"),
        (report(end__sum_received__bits_per_second="fast"), "must be a number"),
        (report(start__timestamp={}), "timesecs"),
        (report(start__test_start__protocol="UDP"), "only TCP"),
        ({"status": "success", "data": {}}, "start"),  # an answer of Prometheus
    ],
)
def test_what_is_no_report(read, document, words):
    with pytest.raises(InputError, match=words) as error:
        read(document)
    assert "0.json" in str(error.value)


def test_hosts_without_a_domain(read):
    with pytest.raises(InputError, match=r"--host NAME=10\.0\.0\.2"):
        read(report(), hosts={"10.0.0.1": "east"})
    with pytest.raises(InputError, match="joins east to itself"):
        read(report(), hosts=dict.fromkeys(HOSTS, "east"))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PLACES = ("start", "end", "start__connected", "start__timestamp", "start__test_start", "end__streams")


@given(place=st.sampled_from((*PLACES, "end__sum_received", "start__tcp_mss_default")), value=JSON)
def test_anything_in_any_place_is_read_or_refused(tmp_path_factory, place, value):
    path = tmp_path_factory.mktemp("report") / "one.json"
    path.write_text(json.dumps(report(**{place: value})))
    try:
        samples = samples_from_reports([str(path)], HOSTS).samples
    except InputError:
        return
    assert all(sample.rate_bytes_per_s >= 0 for sample in samples)


@given(st.floats(500, 65536))
def test_frames_are_larger_than_what_they_carry(segment):
    assert 1 < frame_share(segment) < 1.15
