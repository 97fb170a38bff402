"""Kubernetes: a JobSet per domain, queued by Kueue; MultiKueue sends each to its domain's cluster.

MultiKueue moves a whole job to one worker cluster and never splits one, so the plan is one JobSet per domain, each with
a queue whose only cluster is that domain's. JobSet v1alpha2, Kueue v1beta2.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from hippo.export.base import Export, Wishes, job_name, slugs, yaml_text
from hippo.export.program import Blank, LaunchedProgram
from hippo.export.program import program as program_named
from hippo.export.torchrun import ADDRESS, C10D, Launch, launched, program_files, split_note
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem

Document = dict[str, Any]

QUEUE_API = "kueue.x-k8s.io/v1beta2"
FLAVOR = "hippo-gpus"
GPU = "nvidia.com/gpu"
TOGETHER = (
    "The JobSets of the domains are admitted one by one: hosts that start early wait at the rendezvous for the others. "
    "Give every queue its quota before the first is applied."
)
HOST_NETWORK = "Pods use their hosts' network: the domains' clusters reach each other's hosts, not each other's pods."


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """``jobset-*.yaml``, ``kueue-manager.yaml``, ``kueue-worker-*.yaml`` and the program's files (a ConfigMap)."""
    program = program_named(problem, plan, wishes.program)
    names, job = slugs(program.placed.domains), job_name(problem.model.name)
    blanks = (
        Blank("jobset-*.yaml", "image, and the values of the variables below"),
        ADDRESS,
        Blank("Secret NAME-kubeconfig", "a kubeconfig for each domain's cluster, in the manager's kueue-system"),
    )
    files = {"kueue-manager.yaml": yaml_text(manager(program, names))}
    for domain, name in names.items():
        files[f"jobset-{name}.yaml"] = yaml_text([jobset(program, domain, name, job)])
        files[f"kueue-worker-{name}.yaml"] = yaml_text(queues(program, domain, name, checks=[]))
    notes = (TOGETHER, HOST_NETWORK, C10D, *split_note(program))
    launch = Launch("JobSet with Kueue", _command(program, names, job, wishes), files, blanks, notes)
    return launched(problem, plan, program, launch)


def _command(program: LaunchedProgram, names: Mapping[str, str], job: str, wishes: Wishes) -> str:
    """What is typed, in order: the plan and its queues in every domain's cluster, then the jobs at the manager."""
    given = " ".join(f"--from-file={name}" for name in sorted(program_files(program)))
    lines = []
    for domain, name in names.items():
        context = f"kubectl --context {quote(wishes.places.get(domain, name))}"
        lines.append(f"{context} create configmap {job}-plan {given}")
        lines.append(f"{context} apply -f kueue-worker-{name}.yaml")
    lines.append("kubectl apply -f kueue-manager.yaml")
    lines.append("kubectl apply " + " ".join(f"-f jobset-{name}.yaml" for name in names.values()))
    return "\n".join(lines)


def jobset(program: LaunchedProgram, domain: str, name: str, job: str) -> Document:
    """The hosts of one domain: an Indexed job whose completion index is the position of the host."""
    hosts = program.placed.hosts_of(domain)
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": f"{job}-{name}", "labels": {"kueue.x-k8s.io/queue-name": name}},
        "spec": {
            "managedBy": "kueue.x-k8s.io/multikueue",
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [
                {
                    "name": "hosts",
                    "replicas": 1,
                    "template": {
                        "spec": {
                            "parallelism": len(hosts),
                            "completions": len(hosts),
                            "completionMode": "Indexed",
                            "backoffLimit": 0,
                            "template": {"spec": _pod(program, domain, job)},
                        }
                    },
                }
            ],
        },
    }


def _pod(program: LaunchedProgram, domain: str, job: str) -> Document:
    gpus = max(len(host.ranks) for host in program.placed.hosts_of(domain))
    given = {"MASTER_ADDR": "fill-in.example", "MASTER_PORT": "29500", **dict.fromkeys(program.variables, "")}
    start = f'cp /plan/* . && exec bash launch.sh {quote(domain)} "$JOB_COMPLETION_INDEX"'
    return {
        "restartPolicy": "Never",
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "containers": [
            {
                "name": "host",
                "image": "fill-in/torch-and-the-program:tag",
                "workingDir": "/training",
                "command": ["bash", "-c", start],
                "env": [{"name": name, "value": value} for name, value in given.items()],
                "resources": {"limits": {GPU: gpus}},
                "volumeMounts": [
                    {"name": "plan", "mountPath": "/plan"},
                    {"name": "training", "mountPath": "/training"},
                    {"name": "shared-memory", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "plan", "configMap": {"name": f"{job}-plan"}},
            {"name": "training", "emptyDir": {}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


def manager(program: LaunchedProgram, names: Mapping[str, str]) -> list[Document]:
    """The manager's side of MultiKueue: per domain a cluster, a config, a check, and queues."""
    found: list[Document] = []
    for domain, name in names.items():
        secret = {"kubeConfig": {"locationType": "Secret", "location": f"{name}-kubeconfig"}}
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": name}
        found += [
            _object("MultiKueueCluster", name, {"clusterSource": secret}),
            _object("MultiKueueConfig", name, {"clusters": [name]}),
            _object("AdmissionCheck", name, {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}),
            *queues(program, domain, name, checks=[name])[bool(found) :],  # one flavour for all
        ]
    return found


def queues(program: LaunchedProgram, domain: str, name: str, *, checks: list[str]) -> list[Document]:
    """A flavour, a queue with room for the domain's part of the plan, and its door."""
    hosts = program.placed.hosts_of(domain)
    quota = len(hosts) * max(len(host.ranks) for host in hosts)
    spec: Document = {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": [GPU],
                "flavors": [{"name": FLAVOR, "resources": [{"name": GPU, "nominalQuota": quota}]}],
            }
        ],
    }
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
    return [
        _object("ResourceFlavor", FLAVOR, {}),
        _object("ClusterQueue", name, spec),
        _object("LocalQueue", name, {"clusterQueue": name}, namespace="default"),
    ]


def _object(kind: str, name: str, spec: Document, *, namespace: str | None = None) -> Document:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": QUEUE_API, "kind": kind, "metadata": metadata, "spec": spec}
