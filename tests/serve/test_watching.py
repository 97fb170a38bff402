"""Prometheus and Alertmanager as they are: rules, a scrape, an alert that comes back; and the dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from tests.processes import started

from hippo.serve.watching import RequestTimes, metrics_text

from .servers import free_ports, until
from .worlds import Clock, Served, url

SERVICE = Path(__file__).parents[2] / "examples" / "service"
METRIC = re.compile(r"\bhippo_\w+")


def exposed(tmp_path: Path) -> set[str]:
    served = Served.of(url(tmp_path), Clock())
    try:
        served.submit()
        served.turn()
        times = RequestTimes()
        times.took("GET", "/v1/jobs", 200, 0.01)
        told = metrics_text(served.store, served.loop, None, times)
    finally:
        served.close()
    return {line.split()[2] for line in told.splitlines() if line.startswith("# TYPE")}


def test_rules_and_dashboard_ask_for_what_is_told(tmp_path: Path):
    known = exposed(tmp_path)
    known |= {f"{name}_total" for name in known} | {"hippo_request_seconds_bucket"}
    rules = yaml.safe_load((SERVICE / "alerts.yaml").read_text())["groups"][0]["rules"]
    panels = json.loads((SERVICE / "grafana.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules] + [each["expr"] for panel in panels for each in panel["targets"]]
    assert {name for text in asked for name in METRIC.findall(text)} <= known
    runbook = (SERVICE.parents[1] / "docs" / "service.md").read_text()
    for rule in rules:
        assert "**" + rule["annotations"]["runbook"].removeprefix("docs/service.md: ") in runbook


def test_panels_of_the_dashboard_stand_beside_one_another():
    panels = json.loads((SERVICE / "grafana.json").read_text())["panels"]
    held: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not held & cells
        assert at["x"] + at["w"] <= 24
        held |= cells


# ------------------------------------------------------------------------------------------------------ as they are
def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.slow
def test_promtool_reads_the_rules():
    promtool = tool("promtool")
    for words in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        ran = subprocess.run([promtool, *words], cwd=SERVICE, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_prometheus_scrapes_it_and_an_alert_comes_back(tmp_path: Path):
    """A link collapses; Prometheus sees it, Alertmanager tells the service, which has it among its events."""
    prometheus, alertmanager = tool("prometheus"), tool("prometheus-alertmanager")
    here, there, manager = free_ports(3)
    words = ["--cluster", "four-hubs", "--store", f"sqlite:///{tmp_path / 's.db'}", "--policy", "srpt"]
    rules = (SERVICE / "alerts.yaml").read_text().replace("for: 1m", "for: 1s")
    (tmp_path / "alerts.yaml").write_text(rules)
    for name in ("prometheus.yml", "alertmanager.yml"):
        text = (SERVICE / name).read_text().replace("8470", str(here)).replace("9093", str(manager))
        (tmp_path / name).write_text(text.replace("15s", "1s").replace("group_by", "group_wait: 0s, group_by"))
    running = []
    try:
        serve = [sys.executable, "-m", "hippo", "serve", *words, "--port", str(here), "-q"]
        running.append(subprocess.Popen(serve, cwd=tmp_path))
        base = f"http://127.0.0.1:{here}"
        until(lambda: answers(f"{base}/readyz"))
        token = (tmp_path / "s.db.token").read_text().strip()
        (tmp_path / "agent.token").write_text(token)
        own = [f"--web.listen-address=127.0.0.1:{manager}", "--cluster.listen-address="]
        running.append(
            subprocess.Popen(
                [alertmanager, "--config.file=alertmanager.yml", f"--storage.path={tmp_path / 'am'}", *own],
                cwd=tmp_path,
                stderr=subprocess.DEVNULL,
            )
        )
        own = [f"--web.listen-address=127.0.0.1:{there}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
        running.append(
            subprocess.Popen(
                [prometheus, "--config.file=prometheus.yml", *own], cwd=tmp_path, stderr=subprocess.DEVNULL
            )
        )
        until(lambda: answers(f"http://127.0.0.1:{there}/-/ready") and answers(f"http://127.0.0.1:{manager}/-/ready"))
        with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as http:
            link = http.get("/v1/links").json()["links"][0]
            ends = {"from": link["from"], "to": link["to"]}
            assert http.post("/v1/telemetry", json={"links": [{**ends, "gbps": 0.001}]}).status_code == 202
            came: list[str] = []
            with http.stream("GET", "/v1/events?since=0", timeout=60.0) as stream:
                for line in stream.iter_lines():
                    came.append(line)
                    if line.startswith("data:") and "HippoLinkCollapsed" in line:
                        break
        assert "event: alert" in came
        assert link["from"] in came[-1]
    finally:
        for each in reversed(running):
            each.terminate()
        for each in running:
            each.wait(20.0)


@pytest.mark.slow
def test_people_sign_on_through_nginx(tmp_path: Path):
    """The example's file: who is whom and may do what, below a path, with a stream of events that is not held back."""
    nginx = tool("nginx")
    here, there = free_ports(2)
    store = f"sqlite:///{tmp_path / 's.db'}"
    words = [sys.executable, "-m", "hippo", "serve", "--store", store]
    serve = [*words, "--cluster", "four-hubs", "--policy", "srpt", "--port", str(here), "-q"]
    with started(serve, cwd=tmp_path):
        until(lambda: answers(f"http://127.0.0.1:{here}/readyz"))
        made = subprocess.run(
            [*words, "--new-token", "nginx", "--role", "proxy"], capture_output=True, text=True, check=True
        )
        text = (SERVICE / "nginx.conf").read_text().replace("8470", str(here)).replace("8471", str(there))
        (tmp_path / "nginx.conf").write_text(text.replace("TOKEN", made.stdout.strip()))
        (tmp_path / "users.txt").write_text("alice:{PLAIN}a\nbob:{PLAIN}b\n")
        (tmp_path / "users.txt").chmod(0o644)
        tmp_path.chmod(0o755)
        proxy = subprocess.Popen([nginx, "-p", str(tmp_path), "-c", "nginx.conf", "-g", "daemon off; user root;"])
        try:
            base, gang = f"http://127.0.0.1:{there}/hippo", {"devices": 8, "duration_s": 60.0}
            forged = {"X-Forwarded-Groups": "hippo-operator", "X-Forwarded-Email": "alice@site"}
            assert httpx.get(f"{base}/v1/state", trust_env=False).status_code == 401
            with httpx.Client(base_url=base, auth=("bob", "b"), headers=forged, trust_env=False) as bob:
                assert bob.get("/v1/state").status_code == 200
                refused = bob.post("/v1/jobs", json=gang, headers={"Idempotency-Key": "one"})
                assert (refused.status_code, refused.json()["title"]) == (403, "not allowed")
            with httpx.Client(base_url=base, auth=("alice", "a"), trust_env=False) as alice:
                assert "location.pathname" in alice.get("/").text
                with alice.stream("GET", "/v1/events?since=0", timeout=60.0) as stream:
                    lines = stream.iter_lines()
                    taken = alice.post("/v1/jobs", json=gang, headers={"Idempotency-Key": "one"})
                    assert (taken.status_code, taken.json()["owner"]) == (201, "alice")
                    assert any('"j1"' in line for line in lines)
        finally:
            proxy.terminate()
            assert proxy.wait(20.0) == 0


def answers(address: str) -> bool:
    try:
        return httpx.get(address, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
