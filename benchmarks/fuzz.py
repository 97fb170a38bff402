"""The service under requests that nobody would send: schemathesis on its OpenAPI document, with jobs and decisions that
are there, and no answer of the service's own fault.

    python -m benchmarks.fuzz [--examples N] [--schemathesis PROGRAM]

schemathesis is installed apart (`pipx install schemathesis`): it brings a plugin for pytest that this project's tests
cannot have. The stream of events is left out, as it does not end.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from benchmarks.service import SITE

JOB = {"devices": 64, "duration_s": 6000.0}
PORT = 8477
ENOUGH = 1200
"""Examples of each address that make the requests that were asked for."""
ODD = (r'"\ud800"', "NaN", "-Infinity", "1e999", r'"\u0000"', "[" * 90_000 + "]" * 90_000)
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
KNOWN = """
[[operations]]
include-path = "/v1/jobs/{name}"
parameters = { name = "j3" }

[[operations]]
include-path = "/v1/decisions/{name}/{verdict}"
parameters = { name = "d2" }
"""


def fuzzed(program: str, folder: Path, token: str, examples: int, known: bool) -> tuple[int, str]:
    """Requests that were sent, and what it says of them at the end."""
    (folder / "schemathesis.toml").write_text(KNOWN if known else "")
    words = ["--config-file", str(folder / "schemathesis.toml"), "run", f"http://127.0.0.1:{PORT}/openapi.json"]
    words += ["-H", f"Authorization: Bearer {token}", "--exclude-path", "/v1/events", "--checks", CHECKS, "--no-color"]
    words += ["--phases", "examples,coverage,fuzzing", "--max-examples", str(examples), "--continue-on-failure"]
    ran = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, check=False)
    sent = re.search(r"([\d,]+) generated", ran.stdout)
    begin = ran.stdout.find("= FAILURES") if ran.returncode else ran.stdout.find("= SUMMARY")
    return int(sent[1].replace(",", "")) if sent else 0, ran.stdout[begin:] + ran.stderr


def main() -> int:
    """Prints what was found; 1: something was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1200, help="of each address, twice")
    parser.add_argument("--schemathesis", default="schemathesis")
    asked = parser.parse_args()
    program = shutil.which(asked.schemathesis)
    if program is None:
        sys.stderr.write("fuzz: schemathesis is not installed. To fix: pipx install schemathesis\n")
        return 2
    with TemporaryDirectory(prefix="hippo-fuzz-") as name:
        folder, sent, wrong, bare = Path(name), 0, "", False
        words = ["--cluster", str(SITE), "--store", f"sqlite:///{folder / 'store.db'}", "--mode", "advise"]
        words += ["--policy", "srpt", "--port", str(PORT), "-q"]
        log = open(folder / "log", "w")  # noqa: SIM115 - as long as the process
        process = subprocess.Popen([sys.executable, "-m", "hippo", "serve", *words], stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", trust_env=False) as http:
                while not _answers(http):
                    time.sleep(0.1)
                token = (folder / "store.db.token").read_text().strip()
                for number in range(8):
                    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f"k{number}"}
                    http.post("/v1/jobs", json=JOB, headers=headers).raise_for_status()
                for known in (False, True):
                    count, told = fuzzed(program, folder, token, asked.examples, known)
                    sent, wrong = sent + count, wrong + told
                    bare = bare or not count
                odd = [_odd(http, token, text) for text in ODD]
                pages = http.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code
                lives = http.get("/readyz").status_code == 200
        finally:
            process.terminate()
            process.wait(30.0)
        log.close()
        broken = [line for line in (folder / "log").read_text().splitlines() if "Traceback" in line]
    sys.stdout.write(wrong)
    sys.stdout.write(f"{sent} requests; ready afterwards: {lives}; tracebacks in its log: {len(broken)}\n")
    sys.stdout.write(f"what no generator makes: {odd}; a page of jobs after it: {pages}\n")
    few = bare or (asked.examples >= ENOUGH and sent < 20_000)
    return int("FAILURES" in wrong or not lives or bool(broken) or few or max(odd) >= 500 or pages != 200)


def _odd(http: httpx.Client, token: str, text: str) -> int:
    """How a submission with this in it is answered."""
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "odd", "Content-Type": "application/json"}
    body = f'{{"devices": 8, "duration_s": 60, "run": {{"x": {text}}}}}'
    return http.post("/v1/jobs", content=body, headers=headers).status_code


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").status_code == 200
    except httpx.HTTPError:
        return False


if __name__ == "__main__":
    sys.exit(main())
