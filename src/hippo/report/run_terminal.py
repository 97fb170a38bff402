"""A run in the terminal: measured and predicted step times side by side, and the loss curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hippo.decide.wording import between, number, percent
from hippo.decide.wording import seconds as duration
from hippo.score.interval import LEVEL

ROWS, COLUMNS = 10, 60
MOST_STEPS = 12


def run_view(document: Mapping[str, Any]) -> RenderableType:
    """Table of the steps, a sentence, and the loss curve where there is one."""
    parts: list[RenderableType] = [_table(document), Text(), Text(sentence(document))]
    if unsaved := document.get("unsaved"):
        steps = ", ".join(str(each["step"]) for each in unsaved)
        told = f"Not saved: the checkpoint after step {steps} ({unsaved[-1]['why']}); what was saved before stays."
        parts.append(Text(told, style="bold"))
    parts += [Text(f"The plan of --then was not taken: {why}", style="bold") for why in document.get("not_made", ())]
    parts += [Text(f"{each.at} {each.what}{'. ' if each.took else ''}{each.took}.") for each in happened(document)]
    if document["loss"]:
        parts += [Text(), *_curve(document)]
    return Group(*parts)


def control_view(answer: Mapping[str, Any]) -> RenderableType:
    """What a running job answered: to an order, or about itself."""
    if "accepted" in answer:
        follows = f", after order {answer['follows']}" if "follows" in answer else ""
        return Text(f"order {answer['accepted']} is accepted{follows}{_expected_move(answer.get('move'))}")
    if "link" in answer:
        one, two, gbps, latency_ms = answer["link"]
        return Text(f"{one} -> {two} is set to {number(1e3 * gbps, 3)} Mbit/s and {number(latency_ms, 3)} ms")
    if "step" not in answer:
        return Text(_order_told(answer))
    step = "" if answer["step_s"] is None else f", {number(answer['step_s'])} s"
    loss = "" if answer["loss"] is None else f", loss {answer['loss']:.6g}"
    head = Text(f"{answer['model']}: step {answer['step']} of {answer['last_step']}{step}{loss}\n{answer['plan']}")
    return Group(head, *(Text(_order_told(each)) for each in answer["orders"]))


def _expected_move(move: Mapping[str, Any] | None) -> str:
    """What a move should take."""
    if move is None:
        return ""
    size, seconds = number(move["sent_bytes"] / 1e6, 3), number(move["predicted_s"], 3)
    told = f": {size} MB should move in {seconds} s"
    if not move["background"]:
        return f"{told}, while training stands still"
    steps = f"{move['steps']} step{'' if move['steps'] == 1 else 's'}"
    return f"{told}, beside {steps} and {number(move['predicted_stopped_s'], 3)} s in which training stands still"


def _order_told(order: Mapping[str, Any]) -> str:
    asked = order.get("asked", order["kind"])  # journals of before have the kind alone
    if "stopped_s" not in order:
        why = f": {order['why']}" if "why" in order else ""
        return f"order {order['order']} ({asked}) is {order['state']}{why}"
    sent = f", {order['sent_bytes'] / 1e6:.1f} MB handed over" if order["sent_bytes"] else ""
    if warmed := order.get("warmed_bytes", 0):  # journals of before say nothing of it
        sent += f", {warmed / 1e6:.1f} MB to warm new connections"
    ready, stopped = number(order["prepared_s"]), number(order["stopped_s"])
    told = f"after step {order['after_step']}: made ready in {ready} s, stood still for {stopped} s{sent}"
    return f"order {order['order']} ({asked}) {told}"


def sentence(document: Mapping[str, Any]) -> str:
    """Median and prediction in a sentence."""
    measured, predicted = document["median_step_s"], document["predicted_step_s"]
    network = "over the emulated WAN" if document["emulated"] else "on this machine's loopback, no WAN between domains"
    found = document.get("step_time_interval_s")
    around = "" if found is None else f" ({percent(LEVEL)}: {between(*found)})"
    processes = f"{document['processes']} {'process' if document['processes'] == 1 else 'processes'}"
    if happened(document):
        errors = sorted(
            seconds / expected_s(document, step) - 1
            for step, seconds in enumerate(document["measured_step_s"][1:], start=document["first_step"] + 1)
        )
        low, middle, high = (errors[round(share * (len(errors) - 1))] for share in (0.05, 0.5, 0.95))
        return (
            f"{processes} at the end under {document['runtime_is']} {network}: each step against what was predicted "
            f"for it, under its plan and over links as they were then, {middle:+.1%} in the median, nine of ten from "
            f"{low:+.1%} to {high:+.1%}."
        )
    steps = "median without the first" if len(document["measured_step_s"]) > 1 else "the first, on cold connections"
    return (
        f"{processes} under {document['runtime_is']} {network}: {number(measured, 4)} s a step ({steps}), predicted "
        f"for this machine {number(predicted, 4)} s{around}, {measured / predicted - 1:+.1%}."
    )


@dataclass(frozen=True)
class Happened:
    """What a run met, in words."""

    after_step: int
    what: str
    took: str = ""  # beside what it should have taken

    @property
    def at(self) -> str:
        """When."""
        return f"After step {self.after_step}:"


def happened(document: Mapping[str, Any]) -> list[Happened]:
    """What changed in a run, in turn: links that were moved by hand, orders, processes that were lost."""
    links = [
        Happened(
            each["after_step"],
            f"{each['from']} -> {each['to']} is set to {number(1e3 * each['bandwidth_gbps'], 3)} Mbit/s and "
            f"{number(each['latency_ms'], 3)} ms",
        )
        for each in document.get("links_moved", ())
    ]
    changes = document.get("changes", ())
    counts = [document.get("began_with"), *(each["processes"] for each in changes)]
    told = [_change(each, before) for each, before in zip(changes, counts, strict=False)]
    return sorted([*links, *told], key=lambda each: each.after_step)


def _change(move: Mapping[str, Any], before: int | None) -> Happened:
    """An order that was carried out, or replicas that go on without one that was lost."""
    processes = "" if before in (None, move["processes"]) else f"; {before} processes became {move['processes']}"
    what = f"{move['lost'].partition(' (most often')[0]}: the others go on" if move["lost"] else move["asked"]
    if not move["sent_bytes"]:
        return Happened(move["after_step"], what + processes, f"Training stood still for {duration(move['stopped_s'])}")
    predicted = "" if move["predicted_s"] is None else f" (predicted {number(move['predicted_s'], 3)} s)"
    still = "" if move["predicted_s"] is None else f" (predicted {number(move['predicted_stopped_s'], 3)} s)"
    how = " beside the training" if move["background"] else ""
    took = (
        f"{number(move['sent_bytes'] / 1e6, 3)} MB went over{how} in {number(move['measured_s'], 3)} s{predicted}, "
        f"training stood still for {number(move['stopped_s'], 3)} s{still}"
    )
    return Happened(move["after_step"], what + processes, took)


def expected_s(document: Mapping[str, Any], step: int) -> float:
    """What a step was predicted to take, the first on cold connections."""
    each: Sequence[float] = document.get("predicted_each_s") or ()
    usual: float = each[step - document["first_step"]] if each else document["predicted_step_s"]
    return document.get("predicted_first_step_s", usual) if step == document["first_step"] else usual


def _table(document: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    reference = document["reference_loss"]
    titles = ["step", "measured, s", "predicted, s", "error"]
    titles += ["loss"] if document["loss"] else []
    titles += ["in one process", "difference"] if reference else []
    for title in titles:
        table.add_column(title, justify="right")
    steps, before = document["measured_step_s"], -1
    for index in _shown(len(steps)):
        if index > before + 1:
            table.add_row("..")
        before = index
        seconds, predicted = steps[index], expected_s(document, document["first_step"] + index)
        row = [
            str(document["first_step"] + index),
            f"{seconds:.3f}",
            f"{predicted:.3f}",
            f"{seconds / predicted - 1:+.1%}",
        ]
        if document["loss"]:
            row.append(f"{document['loss'][index]:.6f}")
        if reference:
            row += [f"{reference[index]:.6f}", f"{document['loss'][index] - reference[index]:+.1e}"]
        table.add_row(*row)
    return table


def _shown(steps: int) -> list[int]:
    """First and last steps where there are many."""
    if steps <= MOST_STEPS:
        return list(range(steps))
    half = MOST_STEPS // 2
    return [*range(half), *range(steps - half, steps)]


def _curve(document: Mapping[str, Any]) -> list[RenderableType]:
    """The loss as dots, ``ROWS`` high; ``o``: the reference, where it differs by a row."""
    loss: Sequence[float] = document["loss"]
    reference, first = document["reference_loss"], document["first_step"]
    width = min(COLUMNS, len(loss))
    places = [round(column * (len(loss) - 1) / max(width - 1, 1)) for column in range(width)]
    low, high = min(loss), max(loss)
    span = (high - low) or 1.0
    lines = []
    for row in range(ROWS):
        cells = ""
        for place in places:
            mine = round((high - loss[place]) / span * (ROWS - 1)) == row
            other = bool(reference) and round((high - (reference or loss)[place]) / span * (ROWS - 1)) == row
            cells += "*" if mine else "o" if other else " "
        lines.append(f"{high - span * row / (ROWS - 1):9.4f} |{cells}")
    lines.append(f"{'loss':>9s} +{'-' * width}")
    lines.append(
        f"{'':9s}  step {first} to {first + len(loss) - 1}"
        + ("; o: in one process, where it differs" if reference else "")
    )
    return [Text(line, no_wrap=True) for line in lines]


# ----------------------------------------------------------------------------------------------------------------- top
MOST_RANKS, MOST_ORDERS, BAR = 32, 6, 24


def top_view(status: Mapping[str, Any]) -> RenderableType:
    """A running job at a glance, of ``Desk.status`` with the record of its last step."""
    record, seconds = status["record"], status["step_s"]
    head = f"{status['model']}: step {status['step']} of {status['last_step']}"
    if record is None:
        return Group(Text(f"{head}, no step has been made yet"), Text(status["plan"]))
    loss = "" if not status["loss"] else f", loss {status['loss']:.6g}"
    predicted = status["predicted_step_s"]
    expected = "" if predicted is None else f" (predicted {number(predicted)} s)"
    parts: list[RenderableType] = [
        Text(f"{head}, {number(seconds)} s{expected}{loss}", style="bold"),
        Text(status["plan"]),
        Text(),
    ]
    parts.append(_ranks_table(record["ranks"], seconds))
    if more := len(record["ranks"]) - MOST_RANKS:
        parts += [Text(f"and {more} ranks more", style="dim")] if more > 0 else []
    if record["links"]:
        parts += [Text(), _links_table(record["links"], seconds)]
    if status["orders"]:
        parts += [Text(), *(Text(_order_told(each)) for each in status["orders"][-MOST_ORDERS:])]
    return Group(*parts)


def _ranks_table(ranks: Sequence[Mapping[str, Any]], seconds: float) -> Table:
    """How each rank spent the step; the bar: computed, agreed, waited."""
    table = Table(box=None, pad_edge=False)
    for name in ("rank", "domain", "stage"):
        table.add_column(name, justify="left" if name == "domain" else "right")
    table.add_column("computed =  agreed +  waited ·", no_wrap=True)
    for name in ("computed", "agreed", "waited", "memory"):
        table.add_column(name, justify="right")
    for one in ranks[:MOST_RANKS]:
        shares = [one[f"{name}_s"] / seconds for name in ("computed", "agreed", "waited")]
        memory = "" if one["memory_bytes"] is None else f"{one['memory_bytes'] / 1e6:.0f} MB"
        place = (str(one["rank"]), one["domain"], str(one["stage"]))
        table.add_row(*place, _bar(shares), *(f"{share:.0%}" for share in shares), memory)
    return table


def _bar(shares: Sequence[float]) -> str:
    ends = [round(BAR * min(1.0, sum(shares[: at + 1]))) for at in range(3)]
    return "=" * ends[0] + "+" * (ends[1] - ends[0]) + "·" * (ends[2] - ends[1])


def _links_table(links: Sequence[Mapping[str, Any]], seconds: float) -> Table:
    """What each link carried in the step."""
    table = Table(box=None, pad_edge=False)
    table.add_column("link")
    for name in ("MB a step", "Mbit/s while used", "used"):
        table.add_column(name, justify="right")
    for one in links:
        used = min(1.0, one["under_way_s"] / seconds)
        rate = number(one["bytes_per_s"] * 8 / 1e6)
        table.add_row(f"{one['from']} -> {one['to']}", number(one["bytes"] / 1e6), rate, f"{used:.0%}")
    return table
