"""JobSet and Kueue: every object by the openAPI schema of its kind."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml

from .conftest import exported
from .crds import faults
from .examples import example


def objects() -> dict[str, list[dict[str, Any]]]:
    files = exported("jobset", *example()).files
    return {name: list(yaml.safe_load_all(str(text))) for name, text in files.items() if name.endswith(".yaml")}


def test_a_jobset_per_domain_and_a_queue_for_each():
    found = objects()
    assert set(found) == {
        *("jobset-dc-a.yaml", "jobset-dc-b.yaml", "kueue-manager.yaml"),
        *("kueue-worker-dc-a.yaml", "kueue-worker-dc-b.yaml"),
    }
    (jobset,) = found["jobset-dc-b.yaml"]
    queues = {each["metadata"]["name"] for each in found["kueue-manager.yaml"] if each["kind"] == "LocalQueue"}
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] in queues
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert pod["containers"][0]["command"][-1].endswith('bash launch.sh dc-b "$JOB_COMPLETION_INDEX"')


@pytest.mark.parametrize("name", sorted(objects()))
def test_every_object_is_as_its_schema_says(name: str):
    for document in objects()[name]:
        assert faults(document) == []


def test_names_that_one_object_gives_another_are_there():
    manager = objects()["kueue-manager.yaml"]
    names = {(each["kind"], each["metadata"]["name"]) for each in manager}
    assert len(names) == len(manager)
    for each in manager:
        spec = each["spec"]
        if each["kind"] == "AdmissionCheck":
            assert (spec["parameters"]["kind"], spec["parameters"]["name"]) in names
        if each["kind"] == "ClusterQueue":
            assert ("AdmissionCheck", spec["admissionChecksStrategy"]["admissionChecks"][0]["name"]) in names
            assert ("ResourceFlavor", spec["resourceGroups"][0]["flavors"][0]["name"]) in names
        if each["kind"] == "LocalQueue":
            assert ("ClusterQueue", spec["clusterQueue"]) in names


def broken(name: str, *path: Any, new: str | None = None, value: Any = None) -> list[str]:
    """Faults after the field at ``path`` is renamed, or takes another value."""
    document = deepcopy(objects()[name][path[0]])
    place = document
    for step in path[1:-1]:
        place = place[step]
    old = place.pop(path[-1])
    place[new or path[-1]] = old if new else value
    return faults(document)


def test_the_schemas_refuse_broken_ones():
    quota = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0, "nominalQuota")
    assert "nominalQouta: unknown field" in broken("kueue-worker-dc-a.yaml", 1, *quota, new="nominalQouta")[1]
    jobs = broken("jobset-dc-a.yaml", 0, "spec", "replicatedJobs", new="replicatedJob")
    assert jobs == ["JobSet.spec.replicatedJob: unknown field"]
    job = ("spec", "replicatedJobs", 0, "template", "spec")
    assert "not of type integer" in broken("jobset-dc-a.yaml", 0, *job, "completions", value="two")[0]
    pod = (*job, "template", "spec", "containers", 0)
    assert "imgae: unknown field" in broken("jobset-dc-a.yaml", 0, *pod, "image", new="imgae")[0]
