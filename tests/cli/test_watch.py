"""``hippo watch``: a trace of the toy replayed, decisions with their reasons, input that is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HEADER = "time_s,src,dst,bandwidth_gbps,latency_ms\n"
EPOCHS = 8


def rows(gbps: Callable[[int], float]) -> list[str]:
    """Both directions of the toy (8 Gbit/s at rest) every minute."""
    pairs = ("east,west", "west,east")
    return [f"{60 * epoch},{pair},{gbps(epoch)},20" for epoch in range(EPOCHS) for pair in pairs]


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., Path]:
    def written(lines: list[str]) -> Path:
        path = tmp_path / "net.csv"
        path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
        return path

    return written


@pytest.fixture
def collapse(trace: Callable[..., Path]) -> Path:
    """Calm for three minutes, then a tenth."""
    return trace(rows(lambda epoch: 8.0 if epoch < 3 else 0.8))


def asked(path: Path, *more: object, method: str = "receding_horizon") -> tuple[object, ...]:
    toy = ("--model", "llama-3-8b", "--cluster", "toy", "--global-batch", 16, "--seq", 1024)
    return ("watch", *toy, "--trace", path, "--method", method, *more)


@pytest.mark.parametrize("method", ["hi_ppo", "receding_horizon"])
def test_the_document(hippo, collapse, method):
    document = hippo(*asked(collapse, "--json", method=method)).document
    assert document["epochs"] == EPOCHS
    assert document["epoch_s"] == 60.0
    assert set(document["work"]) == {method, "keeping", "hindsight"}
    assert document["of_hindsight"] <= 1.0 + 1e-9
    assert document["work"]["keeping"]["of_hindsight"] <= 1.0 + 1e-9
    first = document["decisions"][0]
    assert (first["kind"], first["before"]) == ("begun", None)
    assert len(document["running"]) == EPOCHS
    assert {str(index) for index in document["running"]} <= set(document["plans"])
    begun = document["plans"][str(first["plan"])]
    assert begun["plan"]["hippo_plan"] == 1
    assert begun["step_time_interval_s"][0] < begun["step_time_s"] < begun["step_time_interval_s"][1]


def test_what_is_assumed_of_the_runtime_is_told(hippo, collapse):
    toy = asked(collapse, "--runtime", "megatron")
    document = hippo(*toy, "--json").document
    for known in document["plans"].values():
        domains = {stage["domain"] for pipeline in known["plan"]["pipelines"] for stage in pipeline["stages"]}
        assert (known["assumed_span_s"] is None) == (len(domains) == 1)
    said = hippo(*toy).out
    assert "A step of the plan of the start, links as the cluster says:" in said
    first, second, *_ = said.splitlines()
    assert (first, second.endswith("under Megatron-LM")) == ("llama-3-8b on toy", True)
    assert said.index("Assumed: NCCL over a WAN was not measured") < said.index("The run begins with")


def test_the_collapse_is_told(hippo, collapse):
    decisions = hippo(*large(collapse, "hi_ppo")).document["decisions"]
    told = [reason for decision in decisions if decision["epoch"] == 3 for reason in decision["reasons"]]
    moved = next(reason for reason in told if reason["kind"] == "link_moved")
    assert moved["subject"] in ("east <-> west", "west <-> east")
    assert moved["figures"]["actual"] == pytest.approx(1e8)
    assert moved["figures"]["before"] == pytest.approx(1e9)


def test_people_read_decisions_and_the_sum(hippo, collapse):
    answer = hippo(*asked(collapse))
    assert answer.code == 0
    assert "begins" in answer.out
    assert "The run begins with" in answer.out
    assert "hindsight" in answer.out.splitlines()[-1] or "hindsight" in answer.out.splitlines()[-2]


def test_out_writes_the_page_and_the_document(hippo, collapse, tmp_path):
    out = tmp_path / "new" / "out"
    answer = hippo(*asked(collapse, "--json", "--out", out))
    assert {path.name for path in out.iterdir()} == {"watch.html", "watch.json"}
    page = (out / "watch.html").read_text()
    assert "Work done" in page
    assert "net.csv" in page
    assert answer.document["work"]


def test_with_compression_the_same_without_it_comes_first(hippo, collapse):
    question = asked(collapse)
    allowed = ("--allow-compression", "--compression-worth", 1)
    plain, both = (hippo(*question, *more, "--json").document for more in ((), allowed))
    assert "without_compression" not in plain
    assert both["without_compression"]["work"] == plain["work"]
    assert (both["compression_worth"], both["method"]) == (1.0, plain["method"])
    told = " ".join(hippo(*question, *allowed).out.split())
    assert told.index("Without compression receding_horizon did") < told.index("With it receding_horizon did")
    assert "hindsight, no compression" in told


def test_it_does_the_work_that_evaluate_tells_of(hippo, collapse):
    replayed = hippo(*asked(collapse, "--json")).document["work"]
    toy = asked(collapse)[1:-2]
    judged = hippo("evaluate", *toy, "--methods", "receding_horizon,hindsight", "--json").document["methods"]
    assert {name: each["work"] for name, each in judged.items()} == {
        name: pytest.approx(replayed[name]["work"]) for name in judged
    }


def test_a_coarser_epoch(hippo, collapse):
    document = hippo(*asked(collapse, "--json", "--epoch", 120)).document
    assert (document["epochs"], document["epoch_s"]) == (EPOCHS // 2, 120.0)


# --------------------------------------------------------------------------------------------------------- lost links
def test_a_lost_link_is_no_fault(hippo, trace):
    path = trace(rows(lambda epoch: 0.0 if 3 <= epoch < 5 else 8.0))
    document = hippo(*large(path, "hi_ppo")).document
    kinds = {reason["kind"] for decision in document["decisions"] for reason in decision["reasons"]}
    assert document["of_hindsight"] <= 1.0 + 1e-9
    assert {"lost", "back"} <= kinds


def test_a_model_that_fits_nowhere_alone_stands_without_links(hippo, trace):
    """Infeasible at the first instant is an answer: exit 3 and a reason."""
    path = trace(rows(lambda epoch: 0.0))
    answer = hippo(*large(path))
    assert answer.code == 3
    assert "No plan can run" in answer.err or "no plan of" in answer.err


def large(path: Path, method: str = "receding_horizon") -> tuple[object, ...]:
    model = ("--model", "llama-3-70b", "--cluster", "toy", "--global-batch", 16, "--seq", 512)
    return ("watch", *model, "--trace", path, "--method", method, "--json")


# ---------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["0,east,west,8,20", "60,west,east,8,20"], "no value at the trace's first time"),
        (["0,east,west,-1,20"], "not negative"),
        (["0,east,mars,8,20"], "unknown domain 'mars'"),
        (["0,east,east,8,20"], "no such link"),
        (["60,east,west,8,20", "60,west,east,8,20", "0,east,west,8,20"], "time runs backwards"),
        (["0,east,west,nan,20"], "finite number"),
        (["0,east,west,8,20", "0,west,east,8"], "4 fields"),
        ([], "no rows"),
        (["0,east,west,8,20", "0,west,east,8,20", *(f"{t},east,west,8,20" for t in (60, 120, 9e9))], "epochs of 60 s"),
    ],
)
def test_bad_traces(refused, trace, lines, said):
    assert said in refused(*asked(trace(lines)))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--epoch", 0), "--epoch"),
        (("--pace", 99), "--pace"),
        (("--policy", "x.zip"), "only hi_ppo takes a policy"),
        (("--adapt",), "only hi_ppo"),
        (("--fallback", "nobody"), "unknown method 'nobody'"),
        (("--method", "diloco"), "trains every domain alone (got 'diloco'). To fix: add --allow-local-sgd"),
    ],
)
def test_bad_options(refused, collapse, more, said):
    assert said in refused(*asked(collapse, *more))


def test_unknown_methods_are_listed(refused, collapse):
    assert "receding_horizon" in refused(*asked(collapse, method="hippo"))


def test_no_such_trace(refused, tmp_path):
    assert "missing.csv" in refused(*asked(tmp_path / "missing.csv"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b'{"hippo_policy": 1}'])
def test_a_corrupt_policy_is_refused(refused, collapse, tmp_path, content):
    path = tmp_path / "policy.zip"
    path.write_bytes(content)
    assert "policy" in refused(*asked(collapse, "--policy", path, method="hi_ppo"))


def test_a_fallback_only_when_asked_for(hippo, collapse, tmp_path):
    path = tmp_path / "policy.zip"
    path.write_bytes(b"nothing")
    answer = hippo(*asked(collapse, "--policy", path, "--fallback", "static", "--json", method="hi_ppo"))
    assert answer.code == 0
    assert "Going on with static, as asked." in answer.err
    assert answer.document["method"] == "static"


def test_a_missing_shipped_policy_is_said_plainly(refused, collapse, tmp_path, monkeypatch):
    monkeypatch.setattr("hippo.network.hi_ppo.serving.SHIPPED", tmp_path / "hi_ppo.policy")
    said = refused(*asked(collapse, method="hi_ppo"))
    assert "no trained policy" in said
    assert "hippo train" in said
