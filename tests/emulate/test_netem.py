"""Command lines of netem: as they should be, and understood by the real tc where there is one."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hippo.emulate.emulate import setting_of
from hippo.emulate.netem import discipline, tc_words
from hippo.problem.load import load_cluster


def test_words_of_a_link(cluster_file: Path):
    setting = setting_of(load_cluster(str(cluster_file)), ["true"], source=str(cluster_file))
    words = "-netns east qdisc add dev to1 root netem rate 100000000bit 4 delay 20000us limit 659 loss 0%"
    assert " ".join(tc_words(setting, setting.links[0], "add")) == words  # (20 + 60) ms of 12.5 MB/s in 1518s
    outage = replace(setting.links[0], rate_bytes_per_s=0.0)
    assert tc_words(setting, outage, "change")[-4:] == ["limit", "173", "loss", "100%"]


def test_tc_understands_them(namespaces: None):
    if shutil.which("tc") is None:
        pytest.skip("tc is not installed")
    line = f"tc qdisc add dev lo root {' '.join(discipline(12.5e6, 0.02))}"
    done = subprocess.run(["unshare", "-Urn", "sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "qdisc kind is unknown" in done.stderr  # the kernel's word, not the parser's
