"""``hippo run``: what it refuses before a process starts, and one run from plan file to page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.dispatch.drawn_draws import lazy_weights

from hippo.cli.run import _words_inside
from hippo.dispatch.guard import followed
from hippo.plan.codec import load_plan
from hippo.run import checkpoint, fits
from hippo.run.learned_order import with_learned_order
from hippo.schedule.schedule import letters_of, order_of, split
from hippo.simulate.ordering import ordering

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "two-domains.json"
HIPPO = (sys.executable, "-c", "from hippo.cli.main import main; main()")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--steps", "0"), "--steps: must be from 1"),
        (("--timeout", "0"), "--timeout: must be from 1"),
        (("--order", "random"), "unknown order 'random'"),
        (("--backward", "late"), "unknown backward 'late'"),
        (("--precision", "fp4"), "unknown precision 'fp4'"),
        (("--resume",), "--resume: there is nothing to go on from"),
        (("--resume", "--checkpoint", "nowhere"), "holds no whole checkpoint"),
        (("--out", str(EXAMPLE)), "is a file, not a folder"),
        (("--trace", "net.csv"), "--trace: moves no link of this run (got 'net.csv'). To fix: add --emulate"),
        (("--congestion", "cubic"), "--congestion: changes no link of this run"),
        (("--emulate", "--stand-in", "--congestion", "pigeon"), "the kernel has no such congestion control"),
        (("--checkpoint", "new", "--stand-in"), "--checkpoint: stand-ins have no layers to save"),
        (
            ("--lanes",),
            "--lanes: every device has a process of its own already. To fix: leave it out, or add --stand-in",
        ),
        (("--runtime", "torch", "--stand-in", "--lanes"), "--lanes: torch's runtime has its own way"),
        (("--runtime", "torch", "--order", "ready"), "--order: torch's runtime has its own way"),
        (("--runtime", "torch", "--order", "learned"), "--runtime: does not go with --order learned"),
        (("--then", "b.json@2", "--order", "learned-ready"), "--then: does not go with --order learned-ready"),
        (("--then", f"{EXAMPLE}@2"), "is the plan that runs before it"),
        (("--dispatch", "random"), "unknown dispatcher 'random'. To fix: use one of fixed, hint, learned, or a FILE"),
        (("--dispatch", "hint", "--patience", "-1"), "--patience: must be from 0 to 100"),
        (("--patience", "1"), "--patience: is of a hint alone"),
        (("--noise", "wild"), "--noise: level: is no noise (got 'wild')"),
        (("--noise", "0.2,wild=1"), "--noise: is no figure of noise (got 'wild')"),
        (("--dispatch", "learned", "--order", "ready"), "--order: goes through a list without asking"),
        (("--play-links", "--emulate"), "--play-links: does not go with an emulated WAN"),
        (("--runtime", "torch", "--backward", "whole"), "--backward: torch's runtime has its own way"),
    ],
)
def test_what_is_refused(hippo, words: tuple[str, ...], told: str):
    answer = hippo("run", EXAMPLE, *words)
    assert answer.code == 2
    assert told in answer.err
    assert "To fix:" in answer.err


def test_what_is_refused_says_nothing_of_who_made_the_order(refused, slow_policy):
    assert "unknown precision 'fp4'" in refused("run", EXAMPLE, "--order", "learned", "--precision", "fp4")


def test_a_folder_with_checkpoints_takes_no_new_run(hippo, tmp_path: Path):
    problem, _ = load_plan(EXAMPLE)
    for step in (90, 100):
        checkpoint.commit(checkpoint.begin(tmp_path, step), problem.model, step, [1.0], seed=1)
    answer = hippo("run", EXAMPLE, "--checkpoint", tmp_path)
    assert answer.code == 2
    assert "holds checkpoints already" in answer.err
    assert "--resume, or name another folder" in answer.err
    other = hippo("run", EXAMPLE, "--checkpoint", tmp_path, "--resume", "--seed", "2")
    assert other.code == 2
    assert "To fix: give --seed 1" in other.err
    meta = tmp_path / "step-00000100" / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"model": []}))
    broken = hippo("run", EXAMPLE, "--checkpoint", tmp_path, "--resume", "--seed", "1")
    assert broken.code == 2
    assert "remove that folder" in broken.err


def test_without_torch_or_a_gpu(hippo, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fits, "_gpus", lambda: 1)
    answer = hippo("run", EXAMPLE, "--device", "cuda")
    assert answer.code == 2
    assert "--device: needs a GPU per process: 2, and this machine has 1" in answer.err
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = hippo("run", EXAMPLE, "--stand-in")
    assert answer.code == 2
    assert "pip install -e '" in answer.err


def test_a_plan_of_other_domains_than_the_emulation_around(hippo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    domains = {name: {"namespace": name, "address": "10.77.0.1"} for name in ("paris", "oslo")}
    around = {"cluster": "c.yaml", "control": "socket", "domains": domains, "started_s": 0.0}
    (tmp_path / "emulation.json").write_text(json.dumps(around))
    monkeypatch.setenv("HIPPO_EMULATION", str(tmp_path / "emulation.json"))
    answer = hippo("run", EXAMPLE, "--stand-in")
    assert answer.code == 2
    assert "stages[0].domain: is no domain of the emulation around (got 'east')" in answer.err
    assert "paris, oslo" in answer.err
    answer = hippo("run", EXAMPLE, "--emulate", "--congestion", "bbr")
    assert answer.code == 2
    assert "give --congestion to the hippo emulate around" in answer.err


def test_what_the_emulation_around_takes_care_of_is_not_said_inside():
    words = ["run", "p.json", "--emulate", "--trace", "net.csv", "--steps", "2", "--congestion=bbr", "--json"]
    assert _words_inside(words) == ["run", "p.json", "--steps", "2", "--json"]


def test_a_plan_that_is_none(hippo, tmp_path: Path):
    document = json.loads(EXAMPLE.read_text())
    document["pipelines"][0]["stages"][1]["layers"] = [3, 5]
    broken = tmp_path / "plan.json"
    broken.write_text(json.dumps(document))
    answer = hippo("run", broken)
    assert answer.code == 2
    assert "the model has 6 layers" in answer.err


def test_a_run_from_the_plan_to_the_page_in_the_order_of_the_policy(hippo, slow_policy, tmp_path: Path):
    """What every process ran is what the policy makes of the plan, and another order than the plan's own."""
    problem, plan = load_plan(EXAMPLE)
    own = with_learned_order(problem, plan, source="plan.json")
    words = ("--stand-in", "--steps", "2", "--order", "learned", "--json", "--out", tmp_path)
    result = hippo("run", EXAMPLE, *words)
    document = result.document
    assert len(document["measured_step_s"]) == 2
    assert document["loss"] is None
    assert document["predicted_step_s"] > 0
    assert [each["rank"] for each in document["timeline"]] == [0, 1]
    assert json.loads((tmp_path / "run.json").read_text()) == document
    assert "Step times</h2>" in (tmp_path / "run.html").read_text()
    base = followed(ordering(problem, plan), lazy_weights())
    assert f"pipeline 1: the policy was slower in trial plays: its base, {base}, is followed" in result.err
    ran = tuple("".join("FBW"[row[0]] for row in worker["operations"] if row[0] < 3) for worker in document["timeline"])
    assert ran == own.pipelines[0].order
    assert ran != letters_of(split(order_of(plan, plan.pipelines[0])))


@pytest.mark.slow
def test_a_run_that_goes_on_under_another_plan(hippo, tmp_path: Path):
    document = json.loads(EXAMPLE.read_text())
    document["problem"]["workload"] |= {"global_batch": 4, "seq": 16}
    document["micro_batch"], document["pipelines"][0]["num_micro_batches"] = 1, 4
    (tmp_path / "one.json").write_text(json.dumps(document))
    for stage, layers in zip(document["pipelines"][0]["stages"], ([0, 2], [2, 6]), strict=True):
        stage["layers"] = layers
    (tmp_path / "two.json").write_text(json.dumps(document))
    words = ("--steps", "2", "--then", f"{tmp_path / 'two.json'}@1", "--reference", "--json")
    told = hippo("run", tmp_path / "one.json", *words).document
    assert told["loss"] == pytest.approx(told["reference_loss"], abs=1e-5)
    assert len(told["loss"]) == 2
    assert told["move"]["after_step"] == 1
    assert told["move"]["wan_bytes"].keys() == {"east->west"}
    assert told["move"]["sent_bytes"] >= told["move"]["wan_bytes"]["east->west"] > 0


def test_a_run_in_the_emulation_of_its_plan(namespaces: None):
    words = [str(EXAMPLE), "--emulate", "--stand-in", "--steps", "1", "--json"]
    done = subprocess.run([*HIPPO, "run", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["emulated"]
    assert document["measured_step_s"][0] >= 2 * 0.02  # an activation goes over, its gradient comes back


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_leaves_nothing(tmp_path: Path, number: signal.Signals):
    words = ["run", str(EXAMPLE), "--stand-in", "--steps", "100000"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([*HIPPO, *words], env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        until = time.monotonic() + 60
        while not list(tmp_path.glob("hippo-run-*/log-1")) and time.monotonic() < until:
            time.sleep(0.01)
        assert list(tmp_path.glob("hippo-run-*"))
        running.send_signal(number)
        said = running.stderr.read()
        assert running.wait(60) == 128 + number
    assert list(tmp_path.iterdir()) == []
    assert f"ended: {signal.strsignal(number)}" in said
    assert "Traceback" not in said


def test_rules_of_batch_and_rate_that_are_none_or_do_not_go_together(hippo):
    for words, told in (
        (("--batch-rule", "folow"), "unknown rule 'folow'"),
        (("--rate-rule", "cube"), "--rate-rule: unknown rule 'cube'"),
        (("--batch-rule", "follow", "--reference"), "one process keeps its batch"),
    ):
        answer = hippo("run", EXAMPLE, *words)
        assert answer.code == 2
        assert told in answer.err
