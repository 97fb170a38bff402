"""``hippo probe`` from end to end: what it writes is read by plan, simulate and watch; mistakes are one message."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import pytest
from tests.measure.probe.worlds import Clock

from hippo.measure.probe import rounds
from hippo.measure.probe.serve import listening, serve
from hippo.problem.load import load_cluster, load_trace

QUICK = ("--seconds", "0.06", "--ramp", "0.02", "--timeout", "20")
HARDWARE = ("--gpu", "A100-SXM-80GB", "--nodes", "1", "--gpus-per-node", "4")


@pytest.fixture
def port():
    """A server of this machine."""
    with serving() as found:
        yield found


@contextmanager
def serving():
    stop = Event()
    with listening(0, bind="127.0.0.1") as own:
        thread = Thread(target=serve, args=(own,), kwargs={"stop": stop.is_set}, daemon=True)
        thread.start()
        try:
            yield own.getsockname()[1]
        finally:
            stop.set()
            thread.join()


def report(local: str, remote: str, mbit: float, at_s: int) -> str:
    """A report of iperf3."""
    test = {"protocol": "TCP", "omit": 2, "reverse": 0}
    start = {"connected": [{"local_host": local, "remote_host": remote}], "timestamp": {"timesecs": at_s}}
    end = {"streams": [{"sender": {"mean_rtt": 41000, "min_rtt": 40000}}]}
    end |= {"sum_received": {"bits_per_second": mbit * 1e6}}
    return json.dumps({"start": start | {"tcp_mss_default": 1448, "test_start": test}, "end": end})


def test_what_is_written_is_read(hippo, port, tmp_path):
    answer = hippo(
        "probe", "--to", f"east=127.0.0.1:{port}", "--here", "west", *QUICK, *HARDWARE, "--out", tmp_path, "--json"
    )
    assert answer.code == 0, answer
    assert {(link["from"], link["to"]) for link in answer.document["links"]} == {("east", "west"), ("west", "east")}
    assert all(link["bandwidth_gbps"]["median"] > 0 for link in answer.document["links"])
    cluster = load_cluster(str(tmp_path / "cluster.yaml"))
    assert load_trace(tmp_path / "network.csv", cluster, complete=True).time_s.tolist() == [0.0]
    planned = hippo("plan", "--model", "gpt2", "--cluster", tmp_path / "cluster.yaml", "--planner", "sailor", "--json")
    assert planned.code == 0


def test_a_table_and_how_it_was_made(hippo, port):
    answer = hippo("probe", "--to", f"east=127.0.0.1:{port}", "--here", "west", *QUICK)
    assert answer.code == 0
    assert "west -> east" in answer.out
    assert "one TCP flow" in answer.out
    assert "round trips of" in answer.out


def test_again_and_again_and_an_outage(hippo, tmp_path, monkeypatch):
    """The server has ended before the second round begins."""
    out, latest, server = tmp_path / "out", tmp_path / "hippo.prom", ExitStack()
    measure = rounds.measure

    def once(host, port, effort):
        if latest.exists():
            server.close()
        return measure(host, port, effort)

    monkeypatch.setattr(rounds, "measure", once)
    monkeypatch.setattr(rounds, "time", Clock())
    with server:
        port = server.enter_context(serving())
        answer = hippo(
            *("probe", "--to", f"east=127.0.0.1:{port}", "--here", "west", *QUICK, *HARDWARE, "--out", out),
            *("--every", "1.2", "--for", "4.8", "--textfile", latest, "--json"),
        )
    assert answer.code == 0, answer
    assert "written as an outage" in answer.err
    for link in answer.document["links"]:
        assert (link["samples"], link["outages"]) == (5, 4)
    trace = load_trace(out / "network.csv", load_cluster(str(out / "cluster.yaml")), complete=True)
    assert trace.bandwidth_bytes_per_s[0].min() > 0
    assert trace.bandwidth_bytes_per_s[1:].max() == 0
    assert trace.time_s.tolist() == [0.0, 1.2, 2.4, 3.6, 4.8]
    assert 'hippo_link_bits_per_second{src="west",dst="east"} 0' in latest.read_text()


def test_reports_of_iperf3_become_a_trace(hippo, tmp_path):
    """Two links, three times; hippo simulate plays a plan along it."""
    files = []
    for index, mbit in enumerate((800, 400, 800)):
        for one, two in (("a1", "b1"), ("b1", "a1")):
            path = tmp_path / f"{one}{index}.json"
            path.write_text(report(one, two, mbit, 1000 + 60 * index))
            files.append(path)
    hosts = ("--host", "east=a1", "--host", "west=b1")
    out = tmp_path / "out"
    answer = hippo("probe", "--iperf3", *files, *hosts, "--cluster", "toy", "--out", out, "--json")
    assert answer.code == 0, answer
    cluster = load_cluster(str(out / "cluster.yaml"))
    assert cluster.link("east", "west").bandwidth_bytes_per_s == pytest.approx(1e8 * 1.0483, rel=1e-3)
    assert cluster.link("east", "west").latency_s == pytest.approx(0.02)
    assert load_trace(out / "network.csv", cluster, complete=True).time_s.tolist() == [0, 60, 120]
    plan = ("plan", "--model", "gpt2", "--cluster", out / "cluster.yaml", "--planner", "even", "--global-batch", "64")
    assert hippo(*plan, "--out", tmp_path / "plan").code == 0
    played = hippo("simulate", tmp_path / "plan" / "plan.json", "--trace", out / "network.csv", "--json").document
    assert played["instants"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing says what to measure"),
        (("--to", "east=127.0.0.1:1", "--here", "west", *QUICK), "refuses: no server listens there"),
        (("--to", "east=127.0.0.1:1"), "one host is named"),
        (("--to", "east=h", "--iperf3", "x"), "asked for together"),
        (("--to", "x=h", "--here", "east", "--cluster", "toy"), "unknown domain 'x'"),
        (("--to", "east=h", "--here", "x", "--cluster", "toy"), "unknown domain 'x'"),
        (("--to", "a=h", "--here", "b", "--seconds", "-1"), "--seconds: is out of range"),
        (("--to", "a=h", "--here", "b", "--flows", "1000"), "--flows: is out of range"),
        (("--to", "a=h", "--here", "b", "--seconds", "nan"), "--seconds: is out of range"),
        (("--to", "a=h", "--here", "b", "--every", "1"), "shorter than one round"),
        (("--to", "a=h", "--here", "b", "--out", "x"), "hardware"),
        (("--to", "a=h", "--here", "b", "--gpu", "X", "--out", "x"), "unknown gpu"),
        (("--to", "a=h", "--here", "b", "--gpu", "X", "--cluster", "toy"), "stands beside --cluster"),
        (("--serve", "--port", "70000"), "is no port"),
        (("--serve", "--bind", "203.0.113.1"), "cannot listen"),
        (("--serve", "more"), "is not expected"),
        (("--iperf3", "missing.json", "--cluster", "toy"), "does not exist"),
        (("--prometheus", "http://127.0.0.1:1", "--cluster", "toy"), "cannot be asked"),
        (("--prometheus", "http://127.0.0.1:1"), "no domain is known"),
        (("--prometheus", "http://127.0.0.1:1", "--cluster", "toy", "--start", "soon"), "is no instant"),
        (("--prometheus", "http://127.0.0.1:1", "--cluster", "toy", "--labels", "a,b,c"), "is no label or two"),
    ],
)
def test_mistakes(refused, words, said, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if "--prometheus" in words:
        pytest.importorskip("httpx", reason="needs the extra 'service'")
    assert said in refused("probe", *words)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_is_there_is_not_written_over(refused, port, tmp_path):
    (tmp_path / "network.csv").write_text("precious")
    words = ("--to", f"east=127.0.0.1:{port}", "--here", "west", *QUICK, *HARDWARE, "--out", tmp_path, "--every", "2")
    assert "a trace is there already" in refused("probe", *words)
    assert (tmp_path / "network.csv").read_text() == "precious"


def test_a_service_that_never_hears_is_no_success(hippo, port, tmp_path, monkeypatch):
    """Rounds go on, as it may come; that it never did ends the command with its reason."""
    pytest.importorskip("httpx", reason="needs the extra 'service'")
    monkeypatch.setattr(rounds, "time", Clock())
    words = ("--to", f"east=127.0.0.1:{port}", "--here", "west", *QUICK, "--every", "1.2", "--for", "2.4")
    answer = hippo("probe", *words, "--textfile", tmp_path / "latest.prom", "--push", "http://127.0.0.1:9")
    assert answer.code == 2
    assert answer.err.count("not told") == 3
    assert (tmp_path / "latest.prom").exists()


def test_serving_ends_when_asked(hippo):
    answer = hippo("probe", "--serve", "--port", "0", "--bind", "127.0.0.1", "--for", "0.1")
    assert answer.code == 0
    assert "serving on port" in answer.err
