"""A run in the terminal and as a page: every figure of the document stands there, nothing of a user's is code."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import pytest
from rich.console import Console

from hippo.report.charts import ticks
from hippo.report.run_html import run_html
from hippo.report.run_terminal import run_view

ROWS = [(0, 0, 0.0, 0.1), (1, 0, 0.2, 0.3), (2, 0, 0.3, 0.4), (3, -1, 0.4, 0.45), (4, -1, 0.45, 0.5)]
OPERATIONS = [[kind, 0, wave, start, end] for kind, wave, start, end in ROWS]
DOCUMENT = {
    "measured_step_s": [2.0, 0.5, 0.6],
    "median_step_s": 0.55,
    "predicted_step_s": 0.5,
    "first_step": 11,
    "loss": [3.0, 2.0, 1.5],
    "reference_loss": [3.0, 2.0, 1.5 + 1e-7],
    "model": "<b>model</b>",
    "cluster": "two",
    "runtime_is": "hippo's executor",
    "processes": 2,
    "emulated": True,
    "stand_in": False,
    "timeline": [{"rank": rank, "domain": "<i>east</i>", "stage": rank, "operations": OPERATIONS} for rank in (0, 1)],
}


def said(document: dict[str, object]) -> str:
    stream = io.StringIO()
    Console(file=stream, width=120).print(run_view(document))
    return stream.getvalue()


def test_measured_and_predicted_stand_side_by_side():
    lines = said(DOCUMENT).splitlines()
    assert lines[1].split() == ["11", "2.000", "0.500", "+300.0%", "3.000000", "3.000000", "+0.0e+00"]
    told = " ".join(said(DOCUMENT).split())
    assert "2 processes under hippo's executor over the emulated WAN: 0.5500 s a step (median without" in told
    assert "predicted for this machine 0.5000 s, +10.0%" in told
    assert "step 11 to 13" in said(DOCUMENT)


def test_where_measured_steps_are_expected_stands_beside_what_was_predicted():
    around = said(DOCUMENT | {"step_time_interval_s": [0.47, 0.53]})
    assert "predicted for this machine 0.5000 s (90 %: 470 to 530 ms), +10.0%" in " ".join(around.split())


def test_the_first_step_is_held_against_cold_connections_and_alone_is_called_so():
    cold = DOCUMENT | {"predicted_first_step_s": 1.6}
    assert said(cold).splitlines()[1].split()[:4] == ["11", "2.000", "1.600", "+25.0%"]
    alone = cold | {"measured_step_s": [2.0], "median_step_s": 2.0, "loss": None, "reference_loss": None}
    assert "2.000 s a step (the first, on cold connections)" in " ".join(said(alone).split())


def test_a_stand_in_has_no_loss():
    bare = DOCUMENT | {"loss": None, "reference_loss": None, "stand_in": True, "emulated": False}
    assert "loss" not in said(bare)
    assert "loopback" in said(bare)
    assert "Loss</h2>" not in run_html(bare)
    assert "Loss</h2>" in run_html(DOCUMENT)


def test_the_curve_falls():
    rows = [line for line in said(DOCUMENT).splitlines() if " |" in line]
    assert [line.index("*") for line in rows if "*" in line] == sorted(line.index("*") for line in rows if "*" in line)


def test_the_page_is_whole_and_escapes_what_users_wrote():
    page = run_html(DOCUMENT)
    assert "<b>model" not in page
    assert "<i>east" not in page
    assert "&lt;b&gt;model&lt;/b&gt; on two" in page
    assert "differs by at most 1.0e-07" in page
    assert page.count("<rect class=") == 2 * len(OPERATIONS)
    assert page.count('class="swatch"') == 5
    assert "://" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize("steps", [1, 2, 40])
def test_pictures_are_well_formed(steps: int):
    values = [1.0] * steps
    page = run_html(DOCUMENT | {"measured_step_s": values, "loss": values, "reference_loss": values})
    pictures = page.split("<svg")[1:]
    for picture in pictures:
        ElementTree.fromstring("<svg" + picture.split("</svg>")[0] + "</svg>")
    assert "nan" not in page
    assert said(DOCUMENT | {"measured_step_s": values, "loss": values, "reference_loss": None})


def test_axes_have_round_marks_and_end_where_the_lines_end():
    picture = run_html(DOCUMENT | {"measured_step_s": [2.0, 0.37, 0.39, 0.38], "predicted_step_s": 0.357}).split(
        "<svg"
    )[2]
    words = re.findall(r'<text class="small"[^>]*>(.*?)</text>', picture.split("</svg>")[0])
    assert words[:5] == ["0", "100 ms", "200 ms", "300 ms", "400 ms"]  # times begin at zero
    assert words[5:8] == ["12", "13", "14"]  # whole steps
    assert words[8:] == ["step time", "step"]
    assert "predicted</text>" in picture  # beside its line


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 7.0), (5.134, 5.746), (97.3, 161.0), (1e-7, 3e-7)])
def test_marks_are_round_and_inside(low: float, high: float):
    found = ticks(low, high)
    assert 3 <= len(found) <= 7
    assert low - 1e-9 <= found[0] < found[-1] <= high + 1e-9
    assert all(float(f"{mark:.3g}") == pytest.approx(mark) for mark in found)


CHANGED = DOCUMENT | {
    "measured_step_s": [2.0, 0.5, 1.1, 0.9],
    "predicted_each_s": [0.5, 0.5, 1.0, 1.0],
    "loss": None,
    "reference_loss": None,
    "began_with": 2,
    "links_moved": [{"after_step": 12, "from": "east", "to": "<i>west", "bandwidth_gbps": 0.01, "latency_ms": 20.0}],
    "changes": [
        {
            **{"order": 1, "asked": "another plan, beside the training", "lost": "", "background": True},
            **{"after_step": 12, "sent_bytes": 6e6, "wan_bytes": {}, "measured_s": 2.0, "predicted_s": 1.9},
            **{"stopped_s": 0.2, "predicted_stopped_s": 0.1, "processes": 3},
        },
        {
            **{"order": 0, "asked": "", "lost": "rank 2 was ended by signal 9 (most often ..)", "background": False},
            **{"after_step": 13, "sent_bytes": 0, "wan_bytes": {}, "measured_s": 0.0, "predicted_s": 0.0},
            **{"stopped_s": 0.3, "predicted_stopped_s": 0.0, "processes": 2},
        },
    ],
}


def test_what_changed_is_told_in_turn_and_marked_in_the_pictures():
    told = " ".join(said(CHANGED).split())
    assert "After step 12: east -> <i>west is set to 10.0 Mbit/s and 20.0 ms." in told
    assert "After step 12: another plan, beside the training; 2 processes became 3. 6.00 MB went over beside" in told
    assert "in 2.00 s (predicted 1.90 s), training stood still for 0.200 s (predicted 0.100 s)." in told
    assert "After step 13: rank 2 was ended by signal 9: the others go on; 3 processes became 2." in told
    page = run_html(CHANGED)
    assert "<i>west" not in page
    assert page.count('<th scope="row" class="n">') == 3
    assert ">1-2</text>" in page, "both happened between the same two steps"
    assert ">3</text>" in page


def test_of_a_run_that_changed_each_step_is_held_against_its_own_prediction():
    lines = said(CHANGED).splitlines()
    assert [line.split()[2] for line in lines[1:5]] == ["0.500", "0.500", "1.000", "1.000"]
    assert "+0.0% in the median, nine of ten from -10.0% to +10.0%" in " ".join(said(CHANGED).split())
