"""The page in Chromium, by keyboard: what Tab reaches, what a screen reader is told, what Enter does; at both sizes, in
both colours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from tests.chromium import CHROMIUM
from tests.processes import started

from hippo.serve.api import MOST_STREAMS_EACH

from .servers import free_ports, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH"),
]
NAMED = {"button", "textbox", "link", "DisclosureTriangle", "progressbar", "image", "table", "dialog", "list", "region"}
"""Roles that a screen reader announces with a name; lists only where they can be reached."""
GANG = {"devices": 8, "duration_s": 1e5}
SIZES = {"desktop": (1400, 1000), "phone": (390, 844)}


class Browser:
    """A page of Chromium, told and asked over its pipe."""

    def __init__(self, process: subprocess.Popen[bytes], tell: int, hear: int) -> None:
        self._process, self._tell, self._hear, self._number = process, tell, os.fdopen(hear, "rb"), 0
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Accessibility", "DOM"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **values: Any) -> Any:
        self._number += 1
        told: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if not method.startswith("Target."):
            told["sessionId"] = self.session
        os.write(self._tell, json.dumps(told).encode() + b"\0")
        while True:
            heard = b""
            while not heard.endswith(b"\0"):
                one = self._hear.read(1)
                assert one, "Chromium has ended"
                heard += one
            answer = json.loads(heard[:-1])
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def value(self, script: str) -> Any:
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def press(self, key: str, *, text: str = "") -> None:
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key, 0)
        values = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = "\r" if key == "Enter" else text
        self.ask("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **values)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **values)

    def nodes(self) -> list[tuple[str, str, bool]]:
        """Role, name and whether it has the focus, of all that is told to a screen reader."""
        found = []
        for node in self.ask("Accessibility.getFullAXTree")["nodes"]:
            if not node.get("ignored"):
                held = {each["name"]: each["value"].get("value") for each in node.get("properties", [])}
                role, name = (str(node.get(key, {}).get("value", "")).strip() for key in ("role", "name"))
                found.append((role, name, bool(held.get("focused"))))
        return found

    def focus(self) -> tuple[str, str]:
        """Role and name of where the keyboard is."""
        return next(((role, name) for role, name, here in self.nodes()[1:] if here), ("", ""))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, str, httpx.Client]]:
    (port,) = free_ports(1)
    words = ["--cluster", "four-hubs", "--store", f"sqlite:///{tmp_path / 's.db'}", "--policy", "srpt"]
    serve = [sys.executable, "-m", "hippo", "serve", *words, "--mode", "advise", "--port", str(port), "-q"]
    base, token = f"http://127.0.0.1:{port}", tmp_path / "s.db.token"
    with started(serve, cwd=tmp_path) as process:

        def ready() -> bool:
            assert process.poll() is None
            try:
                return bool(httpx.get(f"{base}/readyz", trust_env=False).status_code == 200)
            except httpx.HTTPError:
                return False

        until(ready)
        head = {"Authorization": f"Bearer {token.read_text().strip()}"}
        with httpx.Client(base_url=base, headers=head, trust_env=False, timeout=30.0) as http:
            yield base, token.read_text().strip(), http


@pytest.fixture
def browser() -> Iterator[Browser]:
    (told, tell), (hear, heard) = os.pipe(), os.pipe()
    with TemporaryDirectory(prefix="hippo-chromium-", ignore_cleanup_errors=True) as folder:
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder}"]
        move = f'exec 3<&{told} 4>&{heard}; exec "$@"'  # it reads at 3 and writes at 4
        with started(
            ["bash", "-c", move, "chromium", str(CHROMIUM), *words, "--remote-debugging-pipe"],
            pass_fds=(told, heard),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            os.close(told)
            os.close(heard)
            made = Browser(process, tell, hear)
            yield made
            os.close(tell)
            made._hear.close()


def test_by_keyboard_a_proposal_is_approved_and_a_job_is_read(service: tuple[str, str, httpx.Client], browser: Browser):
    base, token, http = service
    for number in range(2):
        http.post("/v1/jobs", json=GANG, headers={"Idempotency-Key": f"k{number}"}).raise_for_status()
    until(lambda: len(http.get("/v1/decisions?state=proposed").json()["decisions"]) == 2)

    # without a token there is one thing to do
    browser.ask("Page.navigate", url=base)
    until(lambda: browser.value("document.getElementById('door') && !document.getElementById('door').hidden"))
    browser.press("Tab")
    assert browser.focus() == ("textbox", "Token, as hippo serve wrote it beside its store:")
    for letter in token:
        browser.press(letter, text=letter)
    browser.press("Enter")
    until(lambda: browser.value("document.querySelectorAll('#decisions button').length") == 4)
    until(lambda: browser.value("document.querySelectorAll('#jobs button').length") == 2)

    # everything that can be done is reached, in the order in which it stands there
    browser.value("document.activeElement.blur(); history.replaceState(null, '', '/')")
    reached: list[tuple[str, str]] = []
    for _ in range(60):
        browser.press("Tab")
        if (here := browser.focus()) in reached:
            break
        reached.append(here)
    assert [name for role, name in reached if role == "button"] == [
        *("approve decision d2", "deny decision d2", "approve decision d1", "deny decision d1"),
        *("j1: how it went on", "j2: how it went on", "Show jobs that are over"),
    ]
    assert "Events, newest first" in {name for _, name in reached}
    told = browser.nodes()
    for role, name, _ in told:
        if role in NAMED - {"list", "dialog"}:
            assert name, role
    assert {"Decisions", "Jobs", "Links", "Domains and links", "What came about"} <= {
        name for role, name, _ in told if role == "region"
    }

    # Enter on the button of the first proposal
    while browser.focus() != ("button", "approve decision d1"):
        browser.press("Tab")
    browser.press("Enter")
    until(lambda: http.get("/v1/jobs/j1").json()["state"] == "running")
    until(lambda: browser.value("document.querySelectorAll('#decisions button').length") == 2)

    # a job is opened and closed; who was on its button is there again
    while browser.focus() != ("button", "j1: how it went on"):
        browser.press("Tab")
    browser.press("Enter")
    until(lambda: browser.value("document.getElementById('past').open"))
    assert any(role == "dialog" and name.startswith("j1, a gang: running") for role, name, _ in browser.nodes())
    browser.press("Escape")
    until(lambda: not browser.value("document.getElementById('past').open"))
    assert browser.focus() == ("button", "j1: how it went on")

    # its row is filled again as its job is another, and the keyboard stays where it was
    http.delete("/v1/jobs/j2").raise_for_status()
    row = "[...document.querySelectorAll('#jobs tr')].find(r => r.innerText.includes('j1'))"
    browser.value(f"{row}.told = ''; later('jobs')")
    until(lambda: browser.value(f"{row}.told"))
    assert browser.focus() == ("button", "j1: how it went on")


def test_an_old_proposal_that_waits_has_its_buttons(service: tuple[str, str, httpx.Client], browser: Browser):
    base, token, http = service
    for number in range(40):
        gang = {"devices": 4, "duration_s": 1e5}
        http.post("/v1/jobs", json=gang, headers={"Idempotency-Key": f"k{number}"}).raise_for_status()
    until(lambda: len(http.get("/v1/decisions?state=proposed&limit=500").json()["decisions"]) == 40)
    browser.ask("Page.navigate", url=f"{base}/#token={token}")
    until(lambda: browser.value("document.querySelectorAll('#decisions button').length") == 80, 30.0)
    rows = "[...document.querySelectorAll('#decisions tbody tr')]"
    assert browser.value(f"{rows}.length") == 40
    oldest = "document.querySelector('[aria-label=\"approve decision d1\"]')"
    browser.value(f"{oldest}.click()")
    until(lambda: http.get("/v1/jobs/j1").json()["state"] == "running")
    until(lambda: not browser.value(f"!!{oldest}"), 30.0)


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_wider_than_the_screen_and_text_can_be_read(
    service: tuple[str, str, httpx.Client], browser: Browser, size: str, colours: str, tmp_path: Path
):
    base, token, http = service
    for number in range(3):
        http.post("/v1/jobs", json=GANG, headers={"Idempotency-Key": f"k{number}"}).raise_for_status()
    width, height = SIZES[size]
    browser.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size == "phone"
    )
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
    browser.ask("Page.navigate", url=f"{base}/#token={token}")
    until(lambda: browser.value("document.querySelectorAll('#decisions button').length") == 6)
    http.post("/v1/telemetry", json={"domains": [{"domain": "guian", "gpus": 48}]}).raise_for_status()
    until(lambda: "48 of 64 up" in browser.value("document.getElementById('map').textContent"))
    until(
        lambda: "guian: 48 of 64 GPUs can be used (first)" in browser.value("document.getElementById('feed').innerText")
    )
    links = http.get("/v1/links").json()["links"]
    measured = [{"from": each["from"], "to": each["to"], "gbps": 0.5 * each["bought_gbps"]} for each in links]
    http.post("/v1/telemetry", json={"links": measured}).raise_for_status()
    told = "document.querySelectorAll('#links [title^=\"nine of ten: \"]').length"
    until(
        lambda: browser.value(told) == len(links) or browser.value("document.querySelector('#alarm.bad')") is not None
    )
    assert browser.value("document.getElementById('alarm').innerText") == "all well"
    assert browser.value("document.querySelectorAll('#map svg').length") == 1
    if folder := os.environ.get("HIPPO_PICTURES"):
        until(lambda: "waiting" in browser.value("document.getElementById('jobs').innerText"))
        shot = browser.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        Path(folder, f"page-{size}-{colours}.png").write_bytes(b64decode(shot))
    assert browser.value("document.documentElement.scrollWidth") <= width
    right = "Math.max(...[...document.querySelectorAll('#decisions button')].map(b => b.getBoundingClientRect().right))"
    assert browser.value(right) <= width  # who has to say yes need not scroll
    pairs = [("--ink", "--paper"), ("--ink", "--card"), ("--soft", "--card"), ("--good", "--card")]
    pairs += [("--warn", "--card"), ("--bad", "--card"), ("--accent", "--card")]
    for ink, paper in pairs:
        assert contrast(browser, ink, paper) >= 4.5, (ink, paper)


def test_a_page_that_is_refused_events_asks_again(service: tuple[str, str, httpx.Client], browser: Browser):
    base, token, http = service
    with ExitStack() as stack:
        for _ in range(MOST_STREAMS_EACH):
            stack.enter_context(http.stream("GET", "/v1/events", timeout=None))
        browser.ask("Page.navigate", url=f"{base}/#token={token}")
        alarm = "document.getElementById('alarm')?.textContent || ''"  # none while the page loads
        until(lambda: browser.value(alarm).startswith("no events: too many"))
    until(lambda: browser.value("source.readyState") == 1)  # seconds later


def contrast(browser: Browser, ink: str, paper: str) -> float:
    """Of two colours of the page, by WCAG 2: 4.5 is asked of text."""

    def light(name: str) -> float:
        script = (
            f"(() => {{ const e = document.createElement('i'); e.style.color = 'var({name})'; document.body.append(e);"
        )
        script += " const c = getComputedStyle(e).color; e.remove(); return c; })()"
        parts = [int(each) / 255.0 for each in browser.value(script)[4:-1].split(",")]
        red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(ink), light(paper)), reverse=True)
    return (high + 0.05) / (low + 0.05)
