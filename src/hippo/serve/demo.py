"""``hippo serve --demo``: an emulated WAN of four domains, three small real training jobs and a queue behind them.

Outside stands what the user sees: the page's port, whose bytes go to a socket of the emulation's inside. Inside, a
keeper starts the service and starts it again if it is killed; the runs outlive it. A driver submits the jobs, lets the
links swing, collapse and come back, and tells the service what the emulator lets through (``POST /v1/telemetry``, as a
prober would).
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hippo.emulate.emulate import emulate, setting_of
from hippo.emulate.emulation import emulation
from hippo.errors import HippoError
from hippo.files import write_files, write_whole
from hippo.front_door.service import Client
from hippo.problem.load import load_cluster

DOMAINS = ("oslo", "lyon", "porto", "turin")
MODEL = {
    "model_type": "gpt2",
    **{"n_embd": 96, "n_layer": 4, "n_head": 4, "vocab_size": 256, "n_positions": 64, "n_inner": 384},
    "tie_word_embeddings": False,
}
GBPS, LATENCY_MS = 0.1, 10.0
PEAK_TFLOPS = 0.25  # of the formulas, whose efficiencies are those of GPUs: what a core of two gets through, nearly
BATCH, SEQ = 32, 64
JOBS: tuple[dict[str, Any], ...] = (
    {"tokens": BATCH * SEQ * 3000.0, "least": 4, "most": 4, "priority": 2},  # over two domains
    {"tokens": BATCH * SEQ * 2500.0, "least": 1, "most": 1, "priority": 1},
    {"tokens": BATCH * SEQ * 2500.0, "least": 1, "most": 1, "priority": 1},
    {"tokens": BATCH * SEQ * 30000.0, "least": 4, "most": 4},  # these wait
    {"tokens": BATCH * SEQ * 30000.0, "least": 4, "most": 4},
)
COLLAPSES_AFTER_S, COLLAPSE = 20.0, 0.05
"""Seconds of steps of the first job, and what is left of the link under it."""
COMES_BACK_AFTER_S = 60.0
TELL_EVERY_S = 1.0
SWING = 0.2


def files() -> dict[str, str]:
    """The demo's cluster and model."""
    links = [
        f"  - {{from: {one}, to: {two}, bandwidth_gbps: {GBPS}, latency_ms: {LATENCY_MS}, both: true}}"
        for at, one in enumerate(DOMAINS)
        for two in DOMAINS[at + 1 :]
    ]
    domains = [f"  - {{name: {name}, nodes: 1, gpus_per_node: 2, intra_node_gbps: 20}}" for name in DOMAINS]
    gpu = (
        f"gpu: {{name: core, family: other, peak_tflops: {{fp32: {PEAK_TFLOPS}}}, memory_gb: 4, hbm_gb_per_s: 10, "
        "nvlink_gb_per_s: 2, price_usd_per_hour: 0.05, source: a share of a core of this machine}"
    )
    text = "\n".join(["name: demo", gpu, "domains:", *domains, "links:", *links, ""])
    return {"demo.yaml": text, "small.json": json.dumps(MODEL)}


def run_demo(folder: Path, port: int, say: Callable[[str], None]) -> None:
    """From the outside: the emulation with everything in it, and the page's port; until Ctrl-C."""
    from hippo.serve.server import ServiceTerms, port_of

    folder.mkdir(parents=True, exist_ok=True)
    write_files(folder, files())
    inside = folder / "http"
    with port_of(ServiceTerms(port=port)) as outside:
        threading.Thread(target=_pass_on, args=(outside, inside), daemon=True).start()
        address = f"http://127.0.0.1:{outside.getsockname()[1]}"

        def tell() -> None:
            while not (token := folder / "hippo.db.token").exists():
                time.sleep(0.1)
            page = f"{address}/#token={token.read_text().strip()}"
            say(f"the page: {page}")
            if sys.stderr.isatty() and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
                webbrowser.open(page)
            say(f"it is served from {folder}; kill the service to see it come back: kill -9 $(cat {folder / 'pid'})")

        threading.Thread(target=tell, daemon=True).start()
        threading.Thread(target=_note_service, args=(folder,), daemon=True).start()
        command = (sys.executable, "-m", "hippo.serve.demo", str(folder))
        where = folder / "demo.yaml"
        emulate(setting_of(load_cluster(where), command, source=str(where)))


def _note_service(folder: Path) -> None:
    """Keep ``pid`` in the folder: the service's number as it is seen from outside the emulation."""
    known, words = -1, [b"hippo.serve.demo", str(folder).encode(), b"serve"]
    while True:
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (each / "cmdline").read_bytes().split(b"\0")[-4:-1] == words and int(each.name) != known:
                    known = int(each.name)
                    write_whole(folder / "pid", str(known))
        time.sleep(0.5)


def _pass_on(outside: socket.socket, inside: Path) -> None:
    """Bytes from the port to the socket inside, and back."""
    while True:
        try:
            mine, _ = outside.accept()
        except OSError:
            return
        threading.Thread(target=_couple, args=(mine, inside), daemon=True).start()


def _couple(mine: socket.socket, inside: Path) -> None:
    with mine, socket.socket(socket.AF_UNIX) as theirs, suppress(OSError):
        theirs.connect(str(inside))
        ends = {mine: theirs, theirs: mine}
        while True:
            for each in select.select(list(ends), [], [])[0]:
                if not (some := each.recv(65536)):
                    return
                ends[each].sendall(some)


# ------------------------------------------------------------------------------------------------------------- inside
def keep(folder: Path) -> None:
    """Start the service, and again when it was killed, until it ends by itself or is asked to."""
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    driver = subprocess.Popen([sys.executable, "-m", "hippo.serve.demo", str(folder), "drive"])
    try:
        while not asked.is_set():
            with subprocess.Popen([sys.executable, "-m", "hippo.serve.demo", str(folder), "serve"]) as service:
                while service.poll() is None and not asked.wait(0.1):
                    pass
                if asked.is_set():
                    service.terminate()
                elif service.returncode == 0:
                    return
    finally:
        driver.kill()
        for state in (folder / "runs").glob("*/state.json"):
            with suppress(OSError, ValueError):
                os.killpg(int(json.loads(state.read_text())["pid"]), signal.SIGTERM)


def serve(folder: Path) -> None:
    """The service of the demo, behind a socket in its folder."""
    from hippo.serve.actuators.own import Own
    from hippo.serve.server import Service, ServiceTerms
    from hippo.serve.steering import OFF

    path = folder / "http"
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(128)
    store = f"sqlite:///{folder / 'hippo.db'}"
    terms = ServiceTerms(store=store, mode="act", policy="srpt", restart_s=1.0, steering=OFF)  # the queue moves jobs
    actuator = Own(folder / "runs", folder / "demo.yaml")
    Service.of(load_cluster(folder / "demo.yaml"), terms, actuators=[actuator], listening=listening).run()


def drive(folder: Path) -> None:
    """Submit the jobs, move the links, tell the service what they carry."""
    inside = emulation()
    assert inside is not None, "inside the demo's emulation"
    pairs = [(one, two) for one in DOMAINS for two in DOMAINS if one != two]
    began_s, moved_s = time.monotonic(), 0.0
    under: tuple[str, str] | None = None  # the link that has collapsed
    since_s, back = math.inf, False
    client = Client("http://service", token=_token(folder), uds=folder / "http")
    while True:
        now_s = time.monotonic() - began_s
        with suppress(HippoError):
            for at, job in enumerate(JOBS):
                spec = {"model": str(folder / "small.json"), "batch": BATCH, "seq": SEQ, "actuator": "own", **job}
                client.submit(spec, key=f"demo-{at}")
            first = client.job("j1")
            if under is None and first["step_s"] and first["place"] and len(first["place"]["domains"]) > 1:
                since_s = min(since_s, now_s)
                if now_s - since_s > COLLAPSES_AFTER_S:
                    under = tuple(first["place"]["domains"][:2])
                    moved_s = now_s
        back = back or (under is not None and now_s - moved_s > COMES_BACK_AFTER_S)
        rows = []
        for at, (one, two) in enumerate(pairs):
            share = 1.0 - SWING * (0.5 + 0.5 * math.sin(now_s / 40.0 + at))
            if under is not None and not back and {one, two} == set(under):
                share = COLLAPSE
            share = round(share, 2)
            with suppress(HippoError):
                inside.set_link(one, two, gbps=GBPS * share, latency_ms=LATENCY_MS)
            rows.append({"from": one, "to": two, "gbps": GBPS * share, "latency_ms": LATENCY_MS})
        with suppress(HippoError):
            client.push(rows)
        time.sleep(TELL_EVERY_S)


def _token(folder: Path) -> str:
    while not (found := folder / "hippo.db.token").exists():
        time.sleep(0.1)
    return found.read_text().strip()


if __name__ == "__main__":
    where, part = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "keep"
    with suppress(KeyboardInterrupt):  # of a terminal, which all of them hear
        {"keep": keep, "serve": serve, "drive": drive}[part](where)
