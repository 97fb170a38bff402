"""The CSV of torch's runtime: read back by torch's own loader, refused where torch would go wrong."""

from __future__ import annotations

import csv
import re
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules as torch_schedules

from hippo.errors import InexpressibleError, InputError
from hippo.schedule.check import violations
from hippo.schedule.methods import METHODS, generate
from hippo.schedule.problem import ScheduleProblem, chains
from hippo.schedule.replay import makespan
from hippo.schedule.schedule import Schedule, Shape
from hippo.schedule.text import schedule_of_rows
from hippo.schedule.torch_csv import parse_torch_csv, torch_makespan, torch_schedule

from .orders import legal_order, scheduled

TIMES = (1.0, 1.05, 0.75)


class Stage:
    """What torch's schedule asks of a stage before anything runs."""

    def __init__(self, problem: ScheduleProblem) -> None:
        self.num_stages, self.group_size, self.group_rank = len(chains(problem)[0]), problem.ranks, 0
        self.stage_index, self.is_last = 0, False
        self.stage_index_to_group_rank: dict[int, int] = {}
        self.submod = torch.nn.Identity()


def loaded(problem: ScheduleProblem, text: str, path) -> torch_schedules._PipelineScheduleRuntime:
    """Torch's runtime with the schedule of the file, lowered to sends and receives."""
    path.write_text(text)
    runtime = torch_schedules._PipelineScheduleRuntime([Stage(problem)], problem.micro_batches)
    runtime._load_csv(str(path))
    return runtime


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.placement != "bidirectional"])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 3), (4, 8)])
def test_torch_reads_what_is_written(tmp_path, name, ranks, micro_batches):
    problem = ScheduleProblem.uniform(ranks, micro_batches, TIMES, comm=0.1).placed(METHODS[name].placement)
    schedule = generate(name, problem)
    written = torch_schedule(problem, schedule)
    runtime = loaded(problem, written.text, tmp_path / "order.csv")

    assert [[str(action) for action in runtime.pipeline_order[rank]] for rank in range(ranks)] == [
        list(row) for row in written.cells
    ]
    stage_rank = {stage: slot // problem.chunks for stage, slot in enumerate(chains(problem)[0])}
    assert runtime.stage_index_to_group_rank == stage_rank
    # torch's own dry run of the lowered order (trap 4: without what moves parameters)
    moving = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
    lowered = {
        rank: [action for action in actions if action.computation_type.name not in moving]
        for rank, actions in runtime.pipeline_order_with_comms.items()
    }
    torch_schedules._simulate_comms_compute(lowered, lambda stage: stage_rank[stage], len(stage_rank))


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(text.splitlines()))


@settings(deadline=None)
@given(scheduled(("plain", "looped", "v")))
def test_every_legal_order_is_read_by_torch_and_by_us(tmp_path_factory, pair: tuple[ScheduleProblem, Schedule]):
    problem, schedule = pair
    written = torch_schedule(problem, schedule)
    runtime = loaded(problem, written.text, tmp_path_factory.mktemp("torch") / "order.csv")
    read = [[str(action) for action in runtime.pipeline_order[rank]] for rank in range(problem.ranks)]
    assert read == rows_of(written.text)

    again = parse_torch_csv(written.text, problem, source="order.csv")
    assert violations(problem, again) == ()
    assert torch_schedule(problem, again).cells == written.cells
    assert torch_schedule(problem, again).makespan == pytest.approx(written.makespan)


@settings(deadline=None)
@given(scheduled(("plain", "looped", "v")))
def test_traps_of_the_runtime_are_avoided(pair: tuple[ScheduleProblem, Schedule]):
    problem, schedule = pair
    written = torch_schedule(problem, schedule)
    for row in written.cells:
        assert not [cell for cell in row if cell.startswith(("0I", "0W"))]
    last = len(chains(problem)[0]) - 1
    forwards = [cell for row in written.cells for cell in row if cell.startswith(f"{last}F")]
    assert forwards == [f"{last}F{index}" for index in range(problem.micro_batches)]
    assert written.fused + written.split == problem.micro_batches * (last + 1)


def test_a_merged_backward_sends_its_gradient_at_its_end():
    """Two ranks, F = B = W = 1: merged, rank 1 ends B0 at 4 instead of 3, and all that follows waits for it."""
    problem = ScheduleProblem.uniform(2, 1)
    split = schedule_of_rows("mine", Shape(2, 1), [[(0, 0, 0), (1, 0, 0), (2, 0, 0)]] * 2, fused=False)
    assert makespan(problem, split) == 5.0  # F F B on the way down and up, then B W
    written = torch_schedule(problem, split)
    assert torch_makespan(problem, split) == 6.0
    assert written.text == "0F0,0B0\n1F0,1I0,1W0\n"  # so it stays split, where nobody has to wait for it
    assert written.makespan == 5.0
    assert (written.fused, written.split) == (1, 1)


def test_what_nobody_waits_for_is_merged():
    """Rank 0 is busy with its forwards until 12; the gradient of micro-batch 0 is there at 9, or at 10 with W."""
    problem = ScheduleProblem.uniform(2, 3, (4, 1, 1))
    rows = [[(0, 0, 0), (0, 0, 1), (0, 0, 2)] + [(kind, 0, nth) for nth in range(3) for kind in (1, 2)]]
    rows += [[(kind, 0, nth) for nth in range(3) for kind in (0, 1, 2)]]
    split = schedule_of_rows("mine", Shape(2, 3), rows, fused=False)
    written = torch_schedule(problem, split)
    assert written.text.splitlines()[1] == "1F0,1B0,1F1,1B1,1F2,1I2,1W2"
    assert written.makespan == makespan(problem, split)


@settings(deadline=None)
@given(scheduled(("plain", "looped", "v")))
def test_merging_never_makes_it_shorter_than_a_split_order(pair: tuple[ScheduleProblem, Schedule]):
    problem, schedule = pair
    assert torch_makespan(problem, schedule) >= makespan(problem, schedule) * (1 - 1e-9)


def test_the_first_stage_runs_its_backward_late_where_that_is_shorter():
    """Rank 0 has F2 between B0 and W0: B before F2 would hold up rank 1, B behind it does not."""
    problem = ScheduleProblem.uniform(2, 3, (1, 1, 3))
    text = [[(0, 0, 0), (0, 0, 1), (1, 0, 0), (0, 0, 2), (2, 0, 0), (1, 0, 1), (1, 0, 2), (2, 0, 1), (2, 0, 2)]]
    text += [[(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1), (0, 0, 2), (1, 0, 2), (2, 0, 0), (2, 0, 1), (2, 0, 2)]]
    schedule = schedule_of_rows("mine", Shape(2, 3), text, fused=False)
    assert violations(problem, schedule) == ()
    assert torch_schedule(problem, schedule).cells[0] == ("0F0", "0F1", "0F2", "0B0", "0B1", "0B2")


def test_a_bidirectional_order_is_refused():
    problem = ScheduleProblem.uniform(2, 2).placed("bidirectional")
    schedule = legal_order(problem, 0)
    with pytest.raises(InexpressibleError, match="To fix: take --placement v"):
        torch_schedule(problem, schedule)
    with pytest.raises(InputError, match="bidirectional"):
        parse_torch_csv("", problem, source="order.csv")


def test_forwards_out_of_order_on_the_last_stage_are_refused():
    rows = [[(0, 0, i) for i in (1, 0)] + [(k, 0, i) for i in (1, 0) for k in (1, 2)]] * 2
    problem, schedule = ScheduleProblem.uniform(2, 2), schedule_of_rows("mine", Shape(2, 2), rows, fused=False)
    assert violations(problem, schedule) == ()
    with pytest.raises(InexpressibleError, match="losses"):
        torch_schedule(problem, schedule)


def test_torchs_own_schedules_are_read(tmp_path):
    problem = ScheduleProblem.uniform(2, 4).placed("looped")
    stages = [Stage(problem), Stage(problem)]
    own = torch_schedules.ScheduleInterleavedZeroBubble(stages, 4, loss_fn=lambda output, target: output)
    own._dump_csv = torch_schedules._PipelineScheduleRuntime._dump_csv.__get__(own)
    own._dump_csv(str(tmp_path / "own.csv"), format="compute_only")
    schedule = parse_torch_csv((tmp_path / "own.csv").read_text(), problem, source="own.csv")
    assert violations(problem, schedule) == ()


def test_what_torch_lowers_an_order_to_is_read_as_the_order(tmp_path):
    problem = ScheduleProblem.uniform(3, 5).placed("v")
    schedule = generate("zb-v", problem)
    written = torch_schedule(problem, schedule)
    runtime = loaded(problem, written.text, tmp_path / "order.csv")
    runtime._dump_csv(str(tmp_path / "lowered.csv"))  # compute_comms: sends, receives, UNSHARD, REDUCE_GRAD
    lowered = (tmp_path / "lowered.csv").read_text()
    assert {"SEND_F", "RECV_B", "UNSHARD", "REDUCE_GRAD"} <= set(re.findall("[A-Z_]{5,}", lowered))
    again = parse_torch_csv(lowered, problem, source="lowered.csv")
    assert torch_schedule(problem, again).cells == written.cells


def test_idle_and_compound_cells():
    problem = ScheduleProblem.uniform(1, 2)
    schedule = parse_torch_csv("0F0,, (0F1;0I0)OVERLAP_F_B,0W0,0B1\n\n", problem, source="order.csv")
    assert schedule.order.tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [2, 0, 0], [1, 0, 1], [2, 0, 1]]
    assert not schedule.fused
    assert parse_torch_csv("0F0,0F1,0B0,0B1", problem, source="order.csv").fused


GOOD = "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1W0,1I1,1W1\n"


@pytest.mark.parametrize(
    ("old", "new", "where", "said"),
    [
        ("1I0,1F1", "1I0", "row 2 (rank 1)", "1F1"),
        ("0B1", "", "row 1 (rank 0)", "'0B1'"),
        ("1F0,1I0", "1I0,1F0", "row 2 (rank 1), cell 1", "runs before 1F0 (got '1I0')"),
        ("1F1,1W0", "1W0,1W0", "row 2 (rank 1), cell 4", "runs again"),
        ("1W0,1I1", "1B0,1I1", "row 2 (rank 1), cell 4", "runs again"),
        ("0B0", "0X0", "row 1 (rank 0), cell 3", "0X0"),
        ("0B0", "0B9", "row 1 (rank 0), cell 3", "no such micro-batch"),
        ("0B0", "7B0", "row 1 (rank 0), cell 3", "no such stage"),
        ("0B0", "1B0", "row 1 (rank 0), cell 3", "wrong rank"),
        ("0F1", "0SEND_F0", "row 1 (rank 0), cell 4", "runs before 0F1"),
        ("0F1", "0SEND_X0", "row 1 (rank 0), cell 2", "is no operation"),
        ("1F0,1I0,1F1,1W0,1I1,1W1", "1F1,1F0,1B0,1B1", "row 2 (rank 1), cell 2", "losses"),
        (GOOD, "0F0,0F1,0B0,0B1", "holds 1 rows", "give 2 rows"),
        (GOOD, "", "holds 0 rows", "give 2 rows"),
    ],
)
def test_an_illegal_file_is_refused(old, new, where, said):
    with pytest.raises(InputError) as caught:
        parse_torch_csv(GOOD.replace(old, new, 1), ScheduleProblem.uniform(2, 2), source="order.csv")
    message = str(caught.value)
    assert message.startswith("order.csv: ")
    assert where in message
    assert said in message
    assert "To fix: " in message


@settings(deadline=None)
@given(st.text(alphabet="01FIBW,;()\n", max_size=60))
def test_any_text_is_read_or_refused(text: str):
    problem = ScheduleProblem.uniform(2, 2)
    with suppress(InputError):
        assert parse_torch_csv(text, problem, source="order.csv").order.shape == (12, 3)


def test_weights_without_a_row_of_their_own_change_nothing():
    problem = ScheduleProblem.uniform(3, 6, TIMES)
    fused = generate("1f1b", problem)
    written = torch_schedule(problem, fused)
    assert (written.makespan, written.split) == (makespan(problem, fused), 0)
    assert np.array_equal(parse_torch_csv(written.text, problem, source="order.csv").order, fused.order)
