"""The examples of ``docs/contracts.md`` are read as they stand, and its tables name every key that the readers know."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from hippo.jobs import site_file
from hippo.jobs.job import KINDS as JOB_KINDS
from hippo.jobs.job import Job
from hippo.jobs.site_file import load_site
from hippo.jobs.traces.load import load_trace as load_jobs
from hippo.plan import codec as plan_codec
from hippo.plan.check import check
from hippo.plan.codec import load_plan
from hippo.plan.plan import Pipeline, Stage, Sync
from hippo.problem import cluster_yaml, config_json, rollouts
from hippo.problem.cluster import Dynamics
from hippo.problem.load import load_cluster, load_model, load_problem, load_profile, load_trace
from hippo.problem.problem import Problem
from hippo.problem.profile import ProfileRow, check_profile
from hippo.problem.rollouts import load_rollouts
from hippo.schedule import problem_json
from hippo.schedule.problem import PLACEMENTS, RankLink, ScheduleProblem
from hippo.schedule.problem_json import problems_of_text
from hippo.schedule.solve import judge
from hippo.schedule.text import parse_schedule
from hippo.score.cases import load_cases
from hippo.score.judge import evaluate, fits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "contracts.md"
FILES = {
    "Model": "config.json",
    "Cluster": "net.yaml",
    "Agents": "agents.yaml",
    "Network trace": "net.csv",
    "Job trace": "jobs.json",
    "Profile": "profile.json",
    "Plan file": "plan.json",
    "Rollouts": "rolls.yaml",
    "Schedule problem": "problems.json",
    "Order": "order.txt",
    "Cases": "cases.json",
}


def sections() -> dict[str, str]:
    """Text of each section by its heading."""
    parts = re.split(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture
def example(tmp_path: Path) -> dict[str, str]:
    """The example of each section as a file: heading -> path."""
    found = {}
    for heading, name in FILES.items():
        blocks = re.findall(r"^```\w+\n(.*?)^```$", sections()[heading], flags=re.MULTILINE | re.DOTALL)
        assert len(blocks) == 1, heading
        (tmp_path / name).write_text(blocks[0], encoding="utf-8")
        found[heading] = str(tmp_path / name)
    return found


def test_every_section_has_its_example() -> None:
    assert set(sections()) == set(FILES)


def test_model(example: dict[str, str]) -> None:
    model = load_model(example["Model"])
    assert f"{model.parameters:,} here" in sections()["Model"].replace("\n", " ")
    assert (model.num_blocks, model.tied, model.max_seq) == (22, False, 2048)


def test_cluster_and_trace(example: dict[str, str]) -> None:
    cluster = load_cluster(example["Cluster"])
    assert [(domain.name, domain.gpus) for domain in cluster.domains] == [("north", 8), ("south", 16)]
    assert len(cluster.links) == 2
    trace = load_trace(example["Network trace"], cluster)
    there = cluster.link_index["north", "south"]
    assert (trace.bandwidth_bytes_per_s[:, there] * 8 / 1e9).tolist() == pytest.approx([5, 3.5, 0, 5])


def test_agents(example: dict[str, str]) -> None:
    site, _ = load_site(example["Agents"])
    assert [(pool.kind, pool.devices, pool.speed) for pool in site.pools] == [
        ("A100-SXM-80GB", 80, 1.0),
        ("cpu", 256, 0.02),
        ("npu", 16, 0.5),
    ]


def test_job_trace(example: dict[str, str]) -> None:
    jobs, gpu = load_jobs(example["Job trace"]).workload, "A100-SXM-80GB"
    assert [jobs.job(place) for place in range(3)] == [
        Job("a", 0, 3600, 8, "train", "ada", (gpu, "npu"), priority=1, deadline_s=9000, estimate_s=7200),
        Job("b", 60.5, 86400, 64, runs_on=(gpu,), model="llama-3-70b", data_gb=400, data_at="west"),
        Job("c", 90, 600, 16, kind="preprocess", runs_on=("cpu",), memory_gb=4),
    ]


def test_profile(example: dict[str, str]) -> None:
    profile = load_profile(example["Profile"])
    model, cluster = load_model(example["Model"]), load_cluster(example["Cluster"])
    check_profile(profile, model, cluster.gpu, source="page")
    problem = load_problem(model=model, cluster=cluster, profile=example["Profile"])
    assert problem.profile == profile


def test_plan_file(example: dict[str, str]) -> None:
    problem, plan = load_plan(example["Plan file"])
    assert check(problem, plan) == ()
    assert fits(problem, plan)
    assert (problem.model.name, problem.cluster.name, plan.global_batch) == ("gpt2", "toy", 16)
    assert evaluate(problem, plan).step_time_s > 0


def test_rollouts(example: dict[str, str]) -> None:
    problem = load_problem(model="llama-3-8b", cluster=example["Cluster"])
    asked = load_rollouts(example["Rollouts"], problem)
    assert (asked.trainers, dict(asked.pools), asked.pushes.every) == (("north",), {"south": 1}, (1, 2, 4))


def test_schedule_problem(example: dict[str, str]) -> None:
    file = problems_of_text(Path(example["Schedule problem"]).read_text(), source="page")
    inside, wan, size = file.problems
    assert (file.listed, file.ignored) == (True, ())
    assert (inside.ident, wan.problem.down[1], wan.problem.memory[0].at_backward) == ("inside", RankLink(5, 0.5), 0.25)
    assert (size.samples, size.problem.micro_batches, size.problem.forward[0]) == (32, 16, 1.0)
    assert size.at(4).forward[0] == pytest.approx(0.2 + 4 * 0.4)


def test_order(example: dict[str, str]) -> None:
    schedule = parse_schedule(Path(example["Order"]).read_text(), source="page")
    answer = judge(ScheduleProblem.uniform(2, 4, live_limit=3), schedule, source="page")
    assert answer.gap == 0


def test_cases(example: dict[str, str]) -> None:
    (case,) = load_cases(example["Cases"])
    assert case.refusal is None
    assert (case.id, case.measured_s) == ("seqsel-22b-full", 1.42)


def names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


KEYS = {
    "Model": set(config_json._KEYS),
    "Cluster": {*cluster_yaml._TOP, *cluster_yaml._DOMAIN, *cluster_yaml._LINK, *cluster_yaml._GPU, *names(Dynamics)},
    "Agents": {*site_file._TOP, *site_file._AGENT},
    "Job trace": {*names(Job), *JOB_KINDS},
    "Profile": {"precision", "state_bytes_per_parameter", "source", "rows"} | names(ProfileRow),
    "Rollouts": {*rollouts._TOP, *rollouts._REPLICA, *rollouts._PUSH},
    "Schedule problem": {*problem_json.KEYS, "fixed", "per_sample", "at_forward", "at_backward", *PLACEMENTS},
    "Plan file": {*plan_codec._TOP, *names(Problem), *names(Pipeline), *names(Stage), *names(Sync), "live_limit"},
}


@pytest.mark.parametrize("heading", KEYS)
def test_every_key_stands_on_the_page(heading: str) -> None:
    text = sections()[heading]
    assert sorted(key for key in KEYS[heading] if not re.search(rf"\b{key}\b", text)) == []
