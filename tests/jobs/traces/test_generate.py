"""Generated traces: the moments of what they were fitted to; written and read again; the same by the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.jobs.job import ELASTIC, KINDS, Job
from hippo.jobs.traces.generate import bursts, distances, fitted, generated, ks_distance
from hippo.jobs.traces.load import JobTrace, load_trace, settled
from hippo.jobs.traces.mix import GRACE_S, SLACKS, Mix, mixed
from hippo.jobs.traces.own import jobs_csv, jobs_json, read, write_jobs
from hippo.jobs.traces.passed import Passed
from hippo.jobs.workload import JobWorkload


@pytest.fixture(scope="module")
def philly(data: Path) -> JobTrace:
    return load_trace(data / "traces" / "philly_open.csv.gz")


def test_bursts_by_hand():
    times = {"a": (0.0, 50.0, 105.0, 300.0), "b": (10.0, 75.0)}
    jobs = [Job(f"{user}{at}", at, 1.0, user=user) for user, each in times.items() for at in each]
    first, follow_s = bursts(JobWorkload.of(jobs))
    assert list(first) == [True, False, False, True, True, True]  # user by user: a a a | a | b | b
    assert list(follow_s) == [50.0, 55.0]


def test_the_distance_of_kolmogorov_and_smirnov_by_hand():
    assert ks_distance(np.array([1, 2, 3, 4]), np.array([3, 4, 5, 6])) == 0.5
    assert ks_distance(np.array([1, 2]), np.array([1, 2])) == 0.0


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_generated_trace_is_like_phillys(philly: JobTrace, seed: int):
    fit_to = philly.workload
    drawn = generated(fitted(fit_to, begin_s=philly.begin_s), len(fit_to), np.random.default_rng(seed))
    far = distances(fit_to, drawn)
    assert far["duration_s"] < 0.06
    assert far["devices"] < 0.02
    assert far["gap_s"] < 0.06
    assert far["jobs_per_burst"] < 0.09
    assert drawn.duration_s.mean() == pytest.approx(fit_to.duration_s.mean(), rel=0.2)
    assert drawn.arrival_s[-1] == pytest.approx(fit_to.arrival_s[-1], rel=0.2)
    shares = [np.bincount(each.user, minlength=len(fit_to.users)) / len(each) for each in (fit_to, drawn)]
    assert np.abs(shares[0] - shares[1]).sum() / 2 < 0.1


def test_hours_are_as_uneven_as_in_the_trace(philly: JobTrace):
    fit_to = philly.workload
    drawn = generated(fitted(fit_to, begin_s=philly.begin_s), len(fit_to), np.random.default_rng(0))
    counts = [np.bincount((each.arrival_s // 3600).astype(int)) for each in (fit_to, drawn)]
    unevenness = [each.var() / each.mean() for each in counts]
    assert unevenness[0] > 100  # a Poisson process has 1
    assert unevenness[1] == pytest.approx(unevenness[0], rel=0.4)


def test_the_seed_decides(philly: JobTrace):
    fit = fitted(philly.workload)
    one, same, other = (generated(fit, 500, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert jobs_csv(one) == jobs_csv(same)
    assert jobs_csv(one) != jobs_csv(other)


def test_too_little_to_fit():
    few = JobWorkload.of([Job(str(at), float(at), 1.0) for at in range(49)])
    at_once = JobWorkload.of([Job(str(at), 0.0, 1.0) for at in range(60)])
    for workload in (few, at_once):
        with pytest.raises(InputError, match="too little to fit"):
            fitted(workload)
    with pytest.raises(InputError, match="no such number of jobs"):
        generated(
            fitted(JobWorkload.of([Job(str(at), float(at), 1.0) for at in range(60)])), 0, np.random.default_rng(0)
        )


def test_what_is_drawn_on_top():
    plain = JobWorkload.of([Job(str(at), float(at), 10.0) for at in range(4000)])
    mix = Mix(deadlines=True, priorities=True, kinds=True, data_gb=50.0, domains=("east", "west"))
    drawn = mixed(plain, mix, np.random.default_rng(0))
    slack = (drawn.deadline_s - drawn.arrival_s - GRACE_S) / drawn.duration_s
    for share, value in SLACKS:
        assert np.mean(np.abs(slack - value) < 1e-6) == pytest.approx(share, abs=0.03)
    assert drawn.data_gb.mean() == pytest.approx(50, rel=0.1)
    assert set(drawn.data_at) == {0, 1}
    assert set(drawn.kind) == set(range(len(KINDS)))
    assert set(drawn.priority) == {0, 1, 2}
    assert list(drawn.duration_s) == list(plain.duration_s)


def test_data_lies_somewhere():
    with pytest.raises(InputError, match="nobody says where data may lie"):
        Mix(data_gb=1.0)
    for volume in (-1.0, float("nan"), 1e300):
        with pytest.raises(InputError, match=r"must be from 0 to 1e\+09"):
            Mix(data_gb=volume, domains=("east",))


words = st.text("abcdefgh-_.:", min_size=1, max_size=6)
seconds = st.floats(0.001, 1e6).map(lambda value: round(value, 3))


@st.composite
def terms(draw: st.DrawFn) -> dict[str, object]:
    """A gang that lasts, or an elastic job, timed or not."""
    least, more, model = (
        draw(st.integers(1, 64)),
        draw(st.integers(0, 64)),
        draw(st.sampled_from(["gpt2", "llama-3-8b"])),
    )
    if draw(st.booleans()):
        kind = draw(st.sampled_from(KINDS))
        return {
            "devices": least,
            "duration_s": draw(seconds),
            "kind": kind,
            "model": draw(st.sampled_from(["", model])),
        }
    sizes = {"devices": least + more, "least": least, "most": least + more, "tokens": draw(seconds)}
    timed = {"duration_s": draw(seconds)} if draw(st.booleans()) else {}
    return {"model": model, "batch": draw(st.integers(1, 999)), "seq": draw(st.integers(1, 999)), **sizes, **timed}


jobs = st.lists(
    st.builds(
        lambda terms, **others: Job(**terms, **others),
        terms=terms(),
        name=words,
        arrival_s=seconds,
        user=words | st.just(""),
        runs_on=st.lists(words, max_size=2, unique=True).map(tuple),
        memory_gb=seconds,
        priority=st.integers(-5, 5),
        deadline_s=st.none() | seconds.map(lambda value: value + 2e6),
        estimate_s=st.none() | seconds,
        data_gb=seconds,
        data_at=words | st.just(""),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda job: job.name,
)


@given(given_jobs=jobs)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, given_jobs: list[Job]):
    workload = JobWorkload.of(given_jobs)
    start_s = float(workload.arrival_s[0])
    for text in (jobs_json(workload), jobs_csv(workload)):
        file = tmp_path_factory.mktemp("own") / "jobs"
        file.write_text(text)
        passed = Passed("jobs")
        again = settled(read(file, passed), passed, "own").workload
        for index in range(len(workload)):
            before, after = workload.job(index), again.job(index)
            assert (after.name, after.devices, after.kind, after.user) == (
                before.name,
                before.devices,
                before.kind,
                before.user,
            )
            assert (after.runs_on, after.priority, after.data_at, after.model) == (
                before.runs_on,
                before.priority,
                before.data_at,
                before.model,
            )
            assert after.arrival_s == pytest.approx(before.arrival_s - start_s, abs=1e-6)
            for key in ("memory_gb", "estimate_s", "data_gb", *ELASTIC):
                assert getattr(after, key) == getattr(before, key)
            assert after.duration_s == pytest.approx(before.duration_s, rel=0, abs=0, nan_ok=True)
            assert (after.deadline_s is None) == (before.deadline_s is None)


def test_the_ending_says_the_form(tmp_path: Path):
    workload = JobWorkload.of([Job("a", 0.0, 1.0)])
    for ending in (".csv", ".json", ".csv.gz", ".json.gz"):
        write_jobs(tmp_path / f"jobs{ending}", workload)
        assert load_trace(tmp_path / f"jobs{ending}").workload.names == ("a",)
    with pytest.raises(InputError, match="neither JSON nor CSV"):
        write_jobs(tmp_path / "jobs.txt", workload)
