"""Kueue: what is posted, what is read, what becomes of an order whatever the API server does; MultiKueue's clusters.

Against a server that plays it (``cluster_fake``): no real Kubernetes was there.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.export.crds import faults
from tests.serve.servers import until
from tests.serve.worlds import Clock, Served

from hippo.errors import InputError
from hippo.problem.load import load_cluster
from hippo.registry import JOB_SCHEDULERS, load
from hippo.serve.actuators import api_server, batch, kueue
from hippo.serve.actuators.api_server import CA, TOKEN, URL, ApiAddress, ApiServer
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.actuators.batch import PENDING, TAKEN, BatchActuator, BatchLaunch, DomainNodes, LaunchRefusedError
from hippo.serve.actuators.kueue import CLAIM, CLUSTERS, NAMESPACE, QUEUE, Kueue, KueueSite, jobs_of, jobsets, state_of
from hippo.serve.loop import LoopTerms, ServeLoop
from hippo.serve.records import BEGIN, DONE, FAILED, RESIZE, RUNNING, STOP, SeenJob
from hippo.serve.site import ServedSite
from hippo.serve.store import Store

from . import cluster_fake
from .cluster_fake import FakeCluster
from .sites import MARK, ServedBy, by_kueue, by_multikueue, cluster_file, kueue_of

KEY = f"o-1-j1-{MARK}"
SITE = KueueSite(ApiAddress("http://127.0.0.1:1"), "training", "gpus", "runs", image="example/train:1")
CLUSTERED = replace(SITE, clusters={"oslo": "worker-oslo"})
SHARES = (DomainNodes("oslo", 2, 8), DomainNodes("lyon", 1, 4))


def launch(**other: Any) -> BatchLaunch:
    made = BatchLaunch(KEY, ("python", "train.py"), {"SEED": "1"}, Path("/runs/j1"), SHARES)
    return replace(made, **other)


# ------------------------------------------------------------------------------------------------------ what is posted
def test_one_jobset_has_a_replicated_job_a_domain():
    (made,) = jobsets(launch(), SITE)
    assert faults(made) == []
    assert made["metadata"]["name"] == KEY
    assert made["metadata"]["labels"] == {"hippo/key": KEY, "kueue.x-k8s.io/queue-name": "gpus"}
    assert made["spec"]["suspend"] is True
    assert "managedBy" not in made["spec"]
    jobs = [each["template"]["spec"] for each in made["spec"]["replicatedJobs"]]
    assert [(each["parallelism"], each["completions"]) for each in jobs] == [(2, 2), (1, 1)]
    pods = [each["template"]["spec"] for each in jobs]
    assert [each["nodeSelector"] for each in pods] == [{kueue.REGION: "oslo"}, {kueue.REGION: "lyon"}]
    containers = [each["containers"][0] for each in pods]
    assert [each["resources"]["limits"] for each in containers] == [{"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 4}]
    given = {each["name"]: each["value"] for each in containers[1]["env"]}
    assert given["HIPPO_FIRST_HOST"] == f"{KEY}-d0-0-0.{KEY}"
    assert (given["HIPPO_DOMAIN"], given["HIPPO_NODES"], given["SEED"]) == ("lyon", "2,1", "1")


def test_where_domains_are_clusters_each_has_a_jobset_of_its_own():
    made = jobsets(launch(image="example/own:2"), CLUSTERED)
    assert [faults(each) for each in made] == [[], []]
    assert [each["metadata"]["name"] for each in made] == [f"{KEY}-0", f"{KEY}-1"]
    assert [each["metadata"]["annotations"]["hippo/cluster"] for each in made] == ["worker-oslo", "lyon"]
    assert {each["spec"]["managedBy"] for each in made} == {"kueue.x-k8s.io/multikueue"}
    pod = made[1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "example/own:2"
    assert "nodeSelector" not in pod


def test_words_come_through_as_they_were_written(monkeypatch: pytest.MonkeyPatch):
    """Kubernetes would read variables in them; of the service's own environment an image gets nothing."""
    monkeypatch.setenv("PATH", "/opt/here")
    words = ("sh", "-c", "echo $$ $(HOME) $HOME")
    (made,) = jobsets(launch(words=words, environment={"PATH": "/opt/here", "HOME": "/own", "COST": "$$5"}), SITE)
    (container,) = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert tuple(cluster_fake.expanded(each, {"HOME": "wrong"}) for each in container["command"]) == words
    given = {each["name"]: cluster_fake.expanded(each["value"], {}) for each in container["env"]}
    assert given["COST"] == "$$5"
    assert given["HOME"] == "/own"
    assert "PATH" not in given


def test_what_kubernetes_would_not_take_is_refused():
    for wrong in (launch(key="O-1-j1"), launch(key="o-" + 50 * "1"), launch(key="o-1-j_1")):
        with pytest.raises(LaunchRefusedError, match="no name"):
            jobsets(wrong, SITE)
    with pytest.raises(LaunchRefusedError, match="To fix: name the image"):
        jobsets(launch(), replace(SITE, image=""))


# -------------------------------------------------------------------------------------------------------- what is read
def row(kind: str, status: str = "True", reason: str = "Because", message: str = "it is so") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


QUOTA, ADMITTED = row("QuotaReserved"), row("Admitted")
READ = [
    ([row("Completed")], [QUOTA, ADMITTED], DONE, ""),
    ([row("Completed")], [row("Evicted")], DONE, ""),
    ([row("Failed")], [QUOTA, ADMITTED], FAILED, "Because: it is so; pods ended with 3"),
    ([row("Suspended")], None, PENDING, "Kueue has made no Workload of it"),
    ([row("Suspended")], [], PENDING, "has no quota yet"),
    (
        [],
        [row("QuotaReserved", "False", "WaitingForQuota", "8 more")],
        PENDING,
        "has no quota: WaitingForQuota: 8 more",
    ),
    ([], [QUOTA], PENDING, "has quota; checks: none"),
    ([row("Suspended", "False")], [QUOTA, ADMITTED], RUNNING, "admitted; 0 of 1 parts are ready: ImagePullBackOff"),
    ([], [row("Evicted", "True", "Preempted", "for j7")], TAKEN, "evicted by Kueue: Preempted: for j7"),
    ([], [row("Evicted", "False"), QUOTA, ADMITTED], RUNNING, "admitted; 0 of 1 parts are ready: ImagePullBackOff"),
    ([], [row("Finished", "True", "Succeeded")], DONE, ""),
    ([], [row("Finished", "True", "OutOfSync", "changed")], TAKEN, "OutOfSync: changed"),
]


@pytest.mark.parametrize(("of_set", "of_workload", "state", "told"), READ)
def test_states_are_those_of_conditions(of_set: Any, of_workload: Any, state: str, told: str):
    jobset = {"metadata": {}, "spec": {"replicatedJobs": [{}]}, "status": {"conditions": of_set}}
    workload = None if of_workload is None else {"status": {"conditions": of_workload}}
    states: list[Any] = [{"terminated": {"exitCode": 3}}, {"waiting": {"reason": "ImagePullBackOff"}}, {"running": {}}]
    pods = [{"status": {"containerStatuses": [{"state": each}]}} for each in states] + [{"status": {}}]
    assert state_of(jobset, workload, pods) == (state, told)


def test_a_job_of_several_jobsets_is_as_its_worst():
    def told(*parts: Any, whole: int = 2) -> tuple[str, str]:
        sets = [
            {
                "metadata": {"name": f"{KEY}-{at}", "uid": f"u{at}", "labels": {"hippo/key": KEY}},
                "spec": {"replicatedJobs": []},
                "status": {"conditions": of_set},
            }
            for at, (of_set, _) in enumerate(parts)
        ]
        for each in sets:
            each["metadata"]["annotations"] = {"hippo/parts": str(whole)}  # type: ignore[index]
        workloads = [
            {"metadata": {"ownerReferences": [{"uid": f"u{at}"}]}, "status": {"conditions": of_workload}}
            for at, (_, of_workload) in enumerate(parts)
        ]
        (found,) = jobs_of(sets, workloads, [])
        return found.state, found.key

    runs, waits, done, failed = ([], [ADMITTED]), ([], []), ([row("Completed")], []), ([row("Failed")], [])
    assert told(runs, runs) == (RUNNING, KEY)
    assert told(runs, waits) == (PENDING, KEY)
    assert told(runs, done) == (RUNNING, KEY)
    assert told(done, done) == (DONE, KEY)
    assert told(failed, runs) == (TAKEN, KEY)
    assert told(failed, done) == (FAILED, KEY)
    assert told(failed) == (FAILED, KEY)
    assert told(([], [row("Evicted")]), runs) == (TAKEN, KEY)
    assert told(runs) == (PENDING, KEY.replace("o-", "half-"))


# --------------------------------------------------------------------------------------------------------- one cluster
@pytest.fixture
def site(tmp_path: Path) -> Iterator[ServedBy]:
    with by_kueue(tmp_path) as made:
        yield made
        made.actuator.close()


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[ServedBy]:
    with by_multikueue(tmp_path) as made:
        yield made
        made.actuator.close()


def there(site: ServedBy) -> FakeCluster:
    found: FakeCluster = site.site  # type: ignore[attr-defined]
    return found


def engine(site: ServedBy) -> kueue.KueueEngine:
    assert isinstance(site.actuator, BatchActuator)
    assert isinstance(site.actuator.engine, kueue.KueueEngine)
    return site.actuator.engine


def seen(site: ServedBy) -> SeenJob:
    (found,) = site.actuator.seen()
    return found


def test_an_answer_to_a_post_that_is_lost_makes_no_second_job(site: ServedBy):
    there(site).trouble("POST", "jobsets", "lost")
    first = site.order(BEGIN, 1, "oslo")
    with pytest.raises(ActuatorError, match="does not answer"):
        site.actuator.carry_out(first)
    assert site.actuator.carry_out(first).ok
    assert len(there(site).posted) == 1
    assert seen(site).state == RUNNING


def test_what_exists_already_counts_as_begun(site: ServedBy):
    """As where the list is behind the POST."""
    made = launch(shares=(DomainNodes("oslo", 1, 2),), words=("sleep", "600"), home=site.folder)
    for _ in range(2):
        engine(site).begin(made)
    assert len(there(site).posted) == 1
    assert [code for code, _ in there(site).asked].count("POST") == 2


def test_what_is_gone_already_counts_as_ended(site: ServedBy):
    engine(site)._delete("o-9-j9-nobody")
    assert site.actuator.carry_out(site.order(BEGIN, 1, "oslo")).ok
    there(site).trouble("DELETE", "jobsets", "lost")
    stop = site.order(STOP, 2)
    with pytest.raises(ActuatorError):
        site.actuator.carry_out(stop)
    assert site.actuator.carry_out(stop).ok
    assert there(site).sets == {}


@pytest.mark.parametrize("code", [401, 404, 429, 500, 503])
def test_what_may_pass_is_asked_again(site: ServedBy, code: int):
    first = site.order(BEGIN, 1, "oslo")
    there(site).trouble("POST", "jobsets", code)
    with pytest.raises(ActuatorError, match=str(code)):
        site.actuator.carry_out(first)
    there(site).trouble("GET", "pods", code)
    with pytest.raises(ActuatorError, match=str(code)):
        site.actuator.carry_out(first)
    assert site.actuator.carry_out(first).ok
    there(site).trouble("GET", "workloads", code)
    with pytest.raises(ActuatorError, match=str(code)):
        site.actuator.seen()
    assert seen(site).state == RUNNING


@pytest.mark.parametrize("code", [400, 403, 422])
def test_what_is_refused_is_told(site: ServedBy, code: int):
    there(site).trouble("POST", "jobsets", code)
    answer = site.actuator.carry_out(site.order(BEGIN, 1, "oslo"))
    assert not answer.ok
    assert answer.told.startswith(f"the API server: {code} as the test wishes")


def test_a_token_is_read_anew_each_time(site: ServedBy):
    token = engine(site).site.address.token
    assert token is not None
    right = token.read_text()
    token.write_text("of yesterday")
    first = site.order(BEGIN, 1, "oslo")
    with pytest.raises(ActuatorError, match="401 Unauthorized. To fix: give HIPPO_KUEUE_TOKEN"):
        site.actuator.carry_out(first)
    token.unlink()
    with pytest.raises(ActuatorError, match="HIPPO_KUEUE_TOKEN cannot be read"):
        site.actuator.carry_out(first)
    token.write_text("not \u00e4 token")
    with pytest.raises(ActuatorError, match="does not answer"):
        site.actuator.carry_out(first)
    token.write_text(right)
    assert site.actuator.carry_out(first).ok


@pytest.mark.parametrize("what", ["late", "cut", "nonsense", "list"])
def test_a_server_that_does_not_answer_or_answers_nonsense(site: ServedBy, monkeypatch: pytest.MonkeyPatch, what: str):
    monkeypatch.setattr(api_server, "WITHIN_S", 0.3)
    site.again()
    first = site.order(BEGIN, 1, "oslo")
    for method, where in (("GET", "pods"), ("GET", "jobsets"), ("POST", "jobsets")):
        there(site).trouble(method, where, what)
        with pytest.raises(ActuatorError, match="the API server"):
            site.actuator.carry_out(first)
    assert site.actuator.carry_out(first).ok
    assert len(there(site).posted) == 1


def test_objects_that_are_none_are_a_fault(site: ServedBy):
    assert site.actuator.carry_out(site.order(BEGIN, 1, "oslo")).ok
    (jobset,) = there(site).sets.values()
    annotations = jobset["metadata"]["annotations"]
    for wrong in ({"hippo/parts": "two"}, {"hippo/parts": None}):
        jobset["metadata"]["annotations"] = wrong
        with pytest.raises(ActuatorError, match="no JobSet"):
            site.actuator.seen()
    jobset["metadata"]["annotations"] = annotations
    assert seen(site).state == RUNNING


def test_lists_are_read_to_their_end(site: ServedBy):
    there(site).page = 1
    for at in (1, 2, 3):
        order = site.order(BEGIN, at, "oslo")
        assert site.actuator.carry_out(replace(order, key=f"o-{at}-j{at}-{MARK}", job=f"j{at}")).ok
    assert [each.state for each in site.actuator.seen()] == [RUNNING] * 3


def test_a_job_that_moves_begins_once_its_pods_are_gone(site: ServedBy):
    there(site).lingers_s = 1.0
    assert site.actuator.carry_out(site.order(BEGIN, 1, "oslo", "lyon")).ok
    assert site.actuator.carry_out(site.order(RESIZE, 2, "lyon")).ok
    assert there(site).beside == [0, 0]
    assert list(there(site).sets) == [f"o-2-j1-{MARK}"]


def test_a_job_that_has_no_pods_yet_is_waited_for_too(site: ServedBy):
    """It could make some."""
    there(site).domains, there(site).lingers_s = ("lyon",), 1.0
    assert site.actuator.carry_out(site.order(BEGIN, 1, "oslo")).ok
    assert site.actuator.carry_out(site.order(RESIZE, 2, "lyon")).ok
    assert there(site).beside == [0, 0]


def test_a_service_killed_while_pods_end_waits_for_them(site: ServedBy):
    there(site).lingers_s = 1.0
    assert site.actuator.carry_out(site.order(BEGIN, 1, "oslo")).ok
    with there(site).lock:
        there(site).delete(KEY)
    site.again()
    assert seen(site).told == "is gone; its jobs and pods end"
    assert site.actuator.carry_out(site.order(BEGIN, 2, "oslo")).ok
    assert there(site).beside == [0, 0]


def test_what_gets_no_quota_is_taken_back(site: ServedBy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch, "BEGINS_WITHIN_S", 0.7)
    there(site).quota = False
    answer = site.actuator.carry_out(site.order(BEGIN, 1, "oslo"))
    assert not answer.ok
    assert "has no quota: WaitingForQuota: insufficient unused quota" in answer.told
    assert there(site).sets == {}


def test_what_is_admitted_and_finds_no_node_says_so(site: ServedBy):
    there(site).domains = ("lyon",)
    assert site.actuator.carry_out(site.order(BEGIN, 1, "oslo")).ok
    assert (seen(site).state, seen(site).told) == (RUNNING, "admitted; 0 of 1 parts are ready")


def test_who_is_evicted_has_failed_and_does_not_come_back_beside_another(site: ServedBy):
    assert site.actuator.carry_out(site.order(BEGIN, 1, "oslo")).ok
    there(site).evict(KEY, "Preempted", "Preempted to accommodate a workload")
    found = seen(site)
    assert found.state == FAILED
    assert found.told == "kueue: evicted by Kueue: Preempted: Preempted to accommodate a workload"
    there(site).quota = True
    assert site.actuator.carry_out(site.order(BEGIN, 2, "lyon")).ok
    assert list(there(site).sets) == [f"o-2-j1-{MARK}"]
    assert (seen(site).key, seen(site).state) == (f"o-2-j1-{MARK}", RUNNING)


def test_who_is_evicted_and_admitted_again_runs_and_can_be_ended(site: ServedBy):
    assert site.actuator.carry_out(site.order(BEGIN, 1, "oslo")).ok
    until(lambda: site.begun() == 1)
    there(site).evict(KEY, "PodsReadyTimeout", "Exceeded the PodsReady timeout", quota=True)
    until(lambda: site.actuator.seen()[0].state == RUNNING and site.begun() == 2)
    there(site).evict(KEY, "Preempted", "again")
    assert seen(site).state == FAILED
    assert site.actuator.carry_out(site.order(STOP, 2)).ok
    assert there(site).sets == {}


def test_a_service_hands_gangs_to_kueue_and_learns_how_they_end(site: ServedBy, tmp_path: Path):
    """Begun and ended; evicted, and begun anew by another order."""
    rule = load(JOB_SCHEDULERS, "policy", "srpt")
    store = Store(f"sqlite:///{tmp_path / 'kueue.db'}")
    here = ServedSite.of(load_cluster(cluster_file(tmp_path)), load(JOB_SCHEDULERS, "policy", "srpt"), time.time())
    loop = ServeLoop(store, here, [site.actuator], LoopTerms(mode="act", actuator="kueue"), rule=rule, clock=time.time)
    served = Served(store, loop, Clock(time.time()))

    def submitted(seconds: float) -> str:
        gang = {"model": "", "batch": 0, "seq": 0, "tokens": 0.0, "least": 0, "most": 0}
        run = {"command": ["sleep", str(seconds)], "image": "example/train:2"}
        return served.submit(**gang, devices=2, duration_s=900.0, run=run)

    def state(name: str) -> str:
        loop.turn()
        return served.jobs()[name].state

    try:
        short, long = submitted(0.5), submitted(600.0)
        until(lambda: state(short) == "done" and state(long) == "running")
        (before,) = [name for name, each in there(site).sets.items() if f"-{long}-" in name]
        until(lambda: bool(site.actuator.seen()))
        there(site).evict(before, "Preempted", "for somebody else")
        until(lambda: state(long) and len([each for each in served.decisions() if each.job == long]) == 2)
        there(site).quota = True
        until(lambda: state(long) == "running" and before not in there(site).sets)
        assert [each.act for each in served.decisions() if each.job == long] == ["begin", "begin"]
    finally:
        served.close()


# ----------------------------------------------------------------------------------------------- several, by MultiKueue
def test_each_part_goes_to_the_cluster_that_was_decided(clusters: ServedBy):
    assert clusters.actuator.carry_out(clusters.order(BEGIN, 1, "lyon", "oslo")).ok
    assert {each.node for each in there(clusters).pods} == {"lyon", "worker-oslo"}
    statuses = [each["status"] for each in there(clusters).workloads.values()]
    assert [each["clusterName"] for each in statuses] == ["lyon", "worker-oslo"]
    assert not any("nominatedClusterNames" in each for each in statuses)  # Kueue clears it as it admits
    assert all(each["admission"] for each in statuses)
    patches = [path for method, path in there(clusters).asked if method == "PATCH"]
    assert len(patches) == 2


def test_nominations_wait_for_quota_and_take_nothing_away(clusters: ServedBy):
    fake, asking = there(clusters), engine(clusters)
    fake.quota = False
    asking.begin(launch(shares=SHARES[:1], words=("sleep", "600"), home=clusters.folder))
    asking.jobs()
    (uid,) = fake.workloads
    assert "nominatedClusterNames" not in fake.workloads[uid]["status"]
    pods = [{"name": "d0", "count": 1}]
    fake.applied(uid, {"metadata": {}, "status": {"reclaimablePods": pods}}, "kueue-reclaimable-pods")
    fake.clusters, fake.quota = ("elsewhere",), True  # so that it stays nominated
    asking.jobs()  # it has quota now
    before = dict(fake.workloads[uid]["status"])
    asking.jobs()
    after = fake.workloads[uid]["status"]
    assert after == {**before, "nominatedClusterNames": ["worker-oslo"]}
    assert after["reclaimablePods"] == pods
    assert fake.owners[uid]["kueue-reclaimable-pods"] == {"reclaimablePods"}
    assert "reclaimablePods" not in fake.owners[uid][kueue.OWNER]
    (job,) = asking.jobs()
    assert job.state == PENDING
    assert job.told == f"has quota; checks: {cluster_fake.CHECK} pending; nominated: worker-oslo"
    patches = [path for method, path in fake.asked if method == "PATCH"]
    assert len(patches) == 1  # and is left alone from then on
    fake.clusters = ("worker-oslo",)
    until(lambda: asking.jobs()[0].state == RUNNING)


@pytest.mark.parametrize("what", [409, 500, "lost", "cut"])
def test_a_nomination_that_fails_is_made_at_the_next_look(clusters: ServedBy, what: int | str):
    """409: Kueue has written meanwhile."""
    there(clusters).trouble("PATCH", "status", what)
    assert clusters.actuator.carry_out(clusters.order(BEGIN, 1, "oslo")).ok
    assert seen(clusters).state == RUNNING


def test_why_nothing_is_nominated_is_told(clusters: ServedBy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch, "BEGINS_WITHIN_S", 0.7)
    there(clusters).trouble("GET", "admissionchecks", 403, 99)
    answer = clusters.actuator.carry_out(clusters.order(BEGIN, 1, "oslo"))
    assert not answer.ok
    assert "pending; not nominated: the API server: 403 as the test wishes. To fix: give the service's" in answer.told


def test_an_old_version_is_not_written_over(clusters: ServedBy):
    fake, asking = there(clusters), engine(clusters)
    asking.begin(launch(shares=SHARES[:1], words=("sleep", "600"), home=clusters.folder))
    fake.turn()
    (uid,) = fake.workloads
    old = {**fake.workloads[uid], "metadata": dict(fake.workloads[uid]["metadata"])}
    fake.evict(f"{KEY}-0", "Preempted", "meanwhile")
    body = kueue.nomination(old, ["worker-oslo"], [cluster_fake.CHECK])
    assert body is not None
    with pytest.raises(cluster_fake.Refusal, match="modified"):
        fake.applied(uid, body, kueue.OWNER)


def test_under_another_name_kueue_could_not_admit(clusters: ServedBy, monkeypatch: pytest.MonkeyPatch):
    """Why hippo writes as ``kueue-admission``: nobody but its owner can clear the field."""
    monkeypatch.setattr(batch, "BEGINS_WITHIN_S", 0.7)
    monkeypatch.setattr(kueue, "OWNER", "somebody-else")
    answer = clusters.actuator.carry_out(clusters.order(BEGIN, 1, "oslo"))
    assert not answer.ok
    assert "nominated: worker-oslo" in answer.told


def test_who_is_evicted_is_nominated_again_once_it_has_quota(clusters: ServedBy):
    assert clusters.actuator.carry_out(clusters.order(BEGIN, 1, "oslo")).ok
    there(clusters).evict(f"{KEY}-0", "AdmissionCheck", "the worker was lost")
    assert seen(clusters).state == FAILED
    there(clusters).quota = True
    (workload,) = there(clusters).workloads.values()
    until(lambda: seen(clusters).state == RUNNING and workload["status"].get("clusterName") == "worker-oslo")


def test_with_another_dispatcher_there_is_no_arguing(clusters: ServedBy):
    there(clusters).all_at_once = True
    assert clusters.actuator.carry_out(clusters.order(BEGIN, 1, "lyon")).ok
    assert not [path for method, path in there(clusters).asked if method == "PATCH"]
    (workload,) = there(clusters).workloads.values()
    assert workload["status"]["clusterName"] == "worker-oslo"
    assert seen(clusters).told == "runs in worker-oslo, was decided for lyon: is multiKueue.dispatcherName hippo's?"


def test_a_check_of_somebody_else_is_not_ours():
    name = "provisioning"
    status: dict[str, Any] = {"conditions": [QUOTA], "admissionChecks": [{"name": name, "state": "Pending"}]}
    about = {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "1"}
    workload = {"metadata": about, "status": status}
    assert kueue.nomination(workload, ["oslo"], []) is None
    assert kueue.nomination(workload, ["oslo"], [name]) is not None
    for wrong in ({"clusterName": "lyon"}, {"nominatedClusterNames": ["lyon"]}, {"conditions": []}):
        assert kueue.nomination({"metadata": about, "status": {**status, **wrong}}, ["oslo"], [name]) is None


def test_half_a_job_is_ended_and_begun_whole(clusters: ServedBy):
    first, fake = clusters.order(BEGIN, 1, "oslo", "lyon"), there(clusters)
    answered = fake.create

    def then_down(body: Any) -> Any:
        fake.create = answered  # type: ignore[method-assign]
        made = answered(body)
        fake.trouble("POST", "jobsets", 503)
        return made

    fake.create = then_down  # type: ignore[method-assign]
    with pytest.raises(ActuatorError, match="503"):
        clusters.actuator.carry_out(first)
    assert list(fake.sets) == [f"{KEY}-0"]
    clusters.again()
    assert clusters.actuator.carry_out(first).told == f"runs in kueue as {KEY}"
    assert list(fake.sets) == [f"{KEY}-0", f"{KEY}-1"]
    assert len(fake.posted) == 3


def test_of_a_job_whose_second_part_is_refused_nothing_stays(clusters: ServedBy):
    fake = there(clusters)
    answered = fake.create

    def then_full(body: Any) -> Any:
        made = answered(body)
        fake.trouble("POST", "jobsets", 403)
        return made

    fake.create = then_full  # type: ignore[method-assign]
    assert not clusters.actuator.carry_out(clusters.order(BEGIN, 1, "oslo", "lyon")).ok
    assert fake.sets == {}


def test_where_one_part_fails_the_others_are_ended(clusters: ServedBy):
    assert clusters.actuator.carry_out(clusters.order(BEGIN, 1, "oslo", "lyon")).ok
    there(clusters).pods[1].kill()
    until(lambda: seen(clusters).state == FAILED and list(there(clusters).sets) == [f"{KEY}-1"])
    assert "FailedJobs" in seen(clusters).told
    assert clusters.actuator.carry_out(clusters.order(BEGIN, 2, "lyon")).ok


# -------------------------------------------------------------------------------------------------------- what is asked
def told(monkeypatch: pytest.MonkeyPatch, folder: Path, **other: str | None) -> None:
    (folder / "token").write_text("t")
    (folder / "ca.pem").write_text("no certificate")
    given: dict[str, str | None] = {URL: "https://127.0.0.1:6443", TOKEN: str(folder / "token")}
    given |= {CA: str(folder / "ca.pem"), NAMESPACE: "n", QUEUE: "q", CLAIM: "c", CLUSTERS: None, **other}
    for name, value in given.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *((name, None, "is not set. To fix: ") for name in (URL, TOKEN, CA, NAMESPACE, QUEUE, CLAIM)),
        (URL, "cluster:6443", "is no address of an API server (got 'cluster:6443'). To fix: write https://HOST:PORT"),
        (URL, "https://[::1", "is no address of an API server"),
        (URL, "https://cluster:port", "is no address of an API server"),
        (URL, "http://10.0.0.1:8001", "a token must not travel in clear"),
        (URL, "http://127.0.0.1.example.com", "a token must not travel in clear"),
        (TOKEN, "/no/such/file", "is no file that can be read (got '/no/such/file'). To fix: name the file"),
        (CA, "/", "is no file that can be read (got '/'). To fix: name the file"),
        (CLUSTERS, "oslo", "is no list (got 'oslo'). To fix: write DOMAIN=CLUSTER,DOMAIN=CLUSTER"),
        (CA, "", "is not set. To fix: "),
        ("", None, "cannot be read: "),  # no certificate is in that file
    ],
)
def test_what_the_environment_lacks_is_told_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str | None, words: str
):
    told(monkeypatch, tmp_path, **({name: value} if name else {}))
    with pytest.raises(InputError) as raised:
        Kueue(tmp_path / "runs", cluster_file(tmp_path))
    assert words in str(raised.value)
    assert "To fix: " in str(raised.value)
    assert str(raised.value).startswith(name or CA)


def test_behind_a_proxy_on_this_machine_no_token_is_needed(monkeypatch: pytest.MonkeyPatch):
    for name in (TOKEN, CA):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(URL, "http://localhost:8001/")
    assert ApiAddress.of_environment() == ApiAddress("http://localhost:8001")


def test_a_job_names_its_image_or_there_is_one_for_all(tmp_path: Path):
    with cluster_fake.served(FakeCluster(tmp_path)) as fake:
        bare, given = kueue_of(fake, image=""), kueue_of(fake)
        run: dict[str, Any] = {"run": {"command": ["sleep", "1"]}}
        assert "run.image: is missing" in bare.lacks(run)
        assert "run.command" in bare.lacks({})
        assert bare.lacks({"run": {**run["run"], "image": "example/train:2"}}) == ""
        assert "run.image: is no word" in given.lacks({"run": {**run["run"], "image": 7}})
        assert given.lacks(run) == ""
        bare.close()
        given.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes certificates here")
def test_a_server_is_believed_by_its_authority_alone(tmp_path: Path):
    import ssl

    def certificate(name: str) -> tuple[Path, Path]:
        key, pem = tmp_path / f"{name}.key", tmp_path / f"{name}.pem"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        words += ["-keyout", str(key), "-out", str(pem), "-days", "2", "-subj", f"/CN={name}"]
        subprocess.run([*words, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        return pem, key

    (tmp_path / "token").write_text(cluster_fake.TOKEN)
    (right, key), (wrong, _) = certificate("here"), certificate("elsewhere")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(right, key)
    pods = f"/api/v1/namespaces/{cluster_fake.SPACE}/pods"
    with cluster_fake.served(FakeCluster(tmp_path), context) as fake:
        server = ApiServer(ApiAddress(fake.url, tmp_path / "token", right))
        assert server.listed(pods) == []
        server.close()
        server = ApiServer(ApiAddress(fake.url, tmp_path / "token", wrong))
        with pytest.raises(ActuatorError, match="certificate"):
            server.listed(pods)
        server.close()
        assert [path for _, path in fake.asked] == [pods]
