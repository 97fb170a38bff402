"""The timeline in the terminal, as golden text (made by printing it at the width named, then read)."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hippo.report.gantt import gantt_view, slow_links
from hippo.schedule.methods import generate
from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.replay import Replay, replay


def played(method: str, problem: ScheduleProblem) -> Replay:
    return replay(problem, generate(method, problem))


def printed(found: Replay, width: int = 80, *, window: tuple[float, float] | None = None) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(gantt_view(found, window=window))
    assert not any(line.endswith(" ") for line in stream.getvalue().splitlines())
    return stream.getvalue()


SMALL = """\
       0              5              10           live  busy
rank 0 F0-F1-F2-......B0=W0~F3-B1=W1~B2=W2~B3=W3~    3   86%
rank 1 ...F0-F1-...B0=F2-B1=W0~F3-B2=W1~B3=W2~W3~    3   86%
rank 2 ......F0-B0=F1-B1=F2-B2=W0~F3-B3=W1~W2~W3~    3   86%
F0- forward  B0= backward  W0~ weight gradient  . idle
"""


def test_every_operation() -> None:
    """ZB-H1, p 3, m 4, all times 1: 14 long, three cells to an operation."""
    assert printed(played("zb-h1", ScheduleProblem.uniform(3, 4)), 64) == SMALL


AGREES = """\
       0              5              10             15        live  busy
rank 0 F0-F1-F2-......B0=W0~F3-B1=W1~B2=W2~B3=W3~............    3   67%
rank 1 ...F0-F1-...B0=F2-B1=W0~F3-B2=W1~B3=W2~W3~//////......    3   67%
rank 2 ......F0-B0=F1-B1=F2-B2=W0~F3-B3=W1~W2~W3~////////////    3   67%
F0- forward  B0= backward  W0~ weight gradient  . idle  / agreeing
"""


AGREES_LONG = """\
       0               50               100             150   live  busy
rank 0 F:************************************W*..............    3   72%
rank 1 F*************************************BW//////........    3   72%
rank 2 :B*************************************W//////////////    3   72%
F forward  B backward  W weight gradient  . idle  / agreeing  : less
than half busy  * several kinds  a column: 3.07
"""


def test_reductions_after_the_last_operation() -> None:
    """As above, 14 long; rank 1 agrees its gradients in 2, rank 2 in 4. Many micro-batches: in 20 and in 44."""
    problem = replace(ScheduleProblem.uniform(3, 4), reduction=(0.0, 2.0, 4.0))
    assert printed(played("zb-h1", problem), 72) == AGREES
    many = replace(ScheduleProblem.uniform(3, 40), reduction=(0.0, 20.0, 44.0))
    assert printed(played("zb-h1", many), 72) == AGREES_LONG
    early = printed(played("zb-h1", problem), 72, window=(0.0, 14.0)).splitlines()
    assert not any("/" in row.rpartition("    ")[0] for row in early[1:4])


SLOW = """\
       0            10           20           30           40           50        live  busy
rank 0 FF1FF.....................B0=FB1=F.............B2..B3..............B4=.B5=  4/4   31%
rank 1 .F0FF..................B0=FB1=F.............B2=FB3=..............B4..B5...  3/4   31%
       ~~~ link, delay 5 ~~~
rank 2 .........FF1..B0=FB1=.............FB2=FB3=............F5B4..B5............  2/4   31%
rank 3 ..........F0B0F1B1F2B2.............FB3=FB4=.............FB5=..............  1/4   31%
F0- forward  B0= backward with weight gradient  . idle
"""


def test_a_slow_link_and_fused_backwards() -> None:
    problem = ScheduleProblem.uniform(4, 6, comm=[0.05, 5, 0.05], live_limit=4)
    assert printed(played("1f1b", problem), 92) == SLOW


CHUNKS = """\
       0          2         4          6          8         10         12       live  busy
rank 0 F0-F1f0-f1-F2...b0===F3-b1===f2-B0===f3-B1===...b2===...b3===B2====B3===  2.5   89%
rank 1 ...F0F1-f0-b0===f1-b1===F2-B0===F3-B1===f2-b2===f3-b3===B2===B3====.....  1.5   89%
F0- forward  B0= backward with weight gradient  . idle  small letters: chunk 1
"""


def test_chunks() -> None:
    assert printed(played("interleaved", ScheduleProblem.uniform(2, 4).placed("looped")), 90) == CHUNKS


LONG = """\
        0       50      100     150      200     250     300     350  live  busy
rank 0  FFFFF:********************************************B*B*B*B*B*:   31   96%
rank 1  FFFFF**********************************************B*B*B*B*B:   31   96%
rank 2  FFFFF**********************************************BBBBBBBBW:   31   96%
rank 3  :FFFFBB*********************************************B*B*B*BW:   31   96%
rank 4  :FFF*BB*********************************************BBBBBBBW:   31   96%
rank 5  :FFF*BBB*********************************************B*B*B*W:   31   96%
rank 6  .FFF*BBB*********************************************BBBBBBW:   31   96%
rank 7  .FFF*BBBB*********************************************B*B*WWW   31   96%
rank 8  .FFFBBBBB**********************************************B*BWWW   31   96%
rank 9  .:FFBBBBBB********************************************BBBBWWW   31   96%
rank 10 .:FFBBBBBB**********************************************B*WWW   31   96%
rank 11 ..FFBBBBBBB********************************************BBBWWW   31   96%
rank 12 ..FFBBBBBBB***********************************************WWW   31   96%
rank 13 ..F*BBBBBBBB********************************************BWWWW   31   96%
rank 14 ..:BBBBBBBBBB********************************************WWWW   31   96%
rank 15 ..:BBBBBBBBBB********************************************WWWW   31   96%
F forward  B backward  W weight gradient  . idle  : less than half busy  *
several kinds  a column: 6.15
"""


def test_a_long_schedule_shows_what_fills_half_of_each_column() -> None:
    """6144 operations: forwards run ahead, then all kinds in turn, then backwards and weight gradients are left."""
    assert printed(played("zb-h2", ScheduleProblem.uniform(16, 128, (1.0, 1.05, 0.75), comm=0.1)), 80) == LONG


WINDOW = """\
        290            295             300            305             live  busy
rank 0  B=W~F--B92W92F--B93W~F--B94W94F--B95W~F--B96=W~F--B97W~B98=W~   31   96%
rank 1  B=W90F--B93W~F--B94W92F--B95W~F--B96W94F--B97W~F--B98=W~F--B=   31   96%
rank 2  B93W~F--B94W90F--B95W~F--B96W92F--B97W~F--B98W94F--B99W~F--B=   31   96%
"""


def test_a_window_shows_operations_again() -> None:
    problem = ScheduleProblem.uniform(16, 128, (1.0, 1.05, 0.75), comm=0.1)
    told = printed(played("zb-h2", problem), 80, window=(290.0, 310.0))
    assert "".join(told.splitlines(keepends=True)[:4]) == WINDOW


def test_memory_in_another_unit_stands_apart() -> None:
    problem = replace(ScheduleProblem.uniform(2, 4), memory=(MicroBatchMemory(10.0, 4.0),) * 2, limit=(40.0, 20.0))
    told = printed(played("zb-h1", problem), 70).splitlines()
    assert told[0].endswith("live  memory  busy")
    assert told[1].endswith("2   50.0%   92%")
    assert told[2].endswith("2   80.0%   92%")


def test_without_colour_nothing_is_lost() -> None:
    """The same letters with colours and without."""
    found, stream = played("zb-h1", ScheduleProblem.uniform(3, 4)), io.StringIO()
    Console(file=stream, width=64, force_terminal=True, color_system="truecolor").print(gantt_view(found))
    assert "\x1b[" in stream.getvalue()
    plain = Console(file=io.StringIO(), width=64, record=True)
    plain.print(gantt_view(found))
    assert plain.export_text() == printed(found, 64)


def test_slow_links_are_those_far_above_the_quickest() -> None:
    assert slow_links(ScheduleProblem.uniform(4, 4, comm=5.0)) == {}  # all alike
    assert slow_links(ScheduleProblem.uniform(4, 4, comm=[0.0, 0.05, 0.0])) == {}  # next to nothing
    assert slow_links(ScheduleProblem.uniform(4, 4, comm=[0.1, 2.0, 0.1])) == {1: "delay 2"}
    problem = ScheduleProblem.uniform(3, 4)
    problem = replace(problem, down=(RankLink(), RankLink(3.0, 0.5)), up=(RankLink(), RankLink(4.0)))
    assert slow_links(problem) == {1: "delay 3 + 0.5 of sending down, 4 up"}


@given(
    ranks=st.integers(1, 12),
    micro_batches=st.integers(1, 40),
    times=st.tuples(*[st.floats(0.01, 100.0)] * 3),
    comm=st.floats(0.0, 50.0),
    width=st.integers(30, 240),
)
def test_any_schedule_fits_the_width(
    ranks: int, micro_batches: int, times: tuple[float, float, float], comm: float, width: int
) -> None:
    found = played("zb-h1", ScheduleProblem.uniform(ranks, micro_batches, times, comm=comm))
    lines = printed(found, max(width, 50)).splitlines()
    assert max(map(len, lines)) <= max(width, 50)
    assert sum(line.startswith("rank ") for line in lines) == ranks


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_unit_of_time_does_not_matter(scale: float) -> None:
    found = printed(played("zb-h1", ScheduleProblem.uniform(3, 4, (scale, scale, scale))), 64)
    assert found.splitlines()[1:] == SMALL.splitlines()[1:]
