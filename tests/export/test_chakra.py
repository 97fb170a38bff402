"""``--to chakra``: the folder plays to the step time that hippo says, and is what Chakra's own schema reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hippo.decide.wording import seconds
from hippo.problem.runtimes import Messages
from hippo.score.judge import evaluate
from hippo.simulate.astra.configuration import MEMORY, NETWORK, SYSTEM
from hippo.simulate.fast import step_time
from hippo.simulate.lower import lower

from .conftest import Asked, Written
from .examples import example

PLAYER = Path(__file__).parents[1] / "simulate" / "astra" / "player.py"

READ = """
from pathlib import Path
from chakra.schema.protobuf import et_def_pb2 as schema

def length(data, at):
    value = shift = 0
    while True:
        value, shift, at, more = value | (data[at] & 127) << shift, shift + 7, at + 1, data[at] & 128
        if not more:
            return value, at

for path in sorted(Path("traces").glob("step.*.et")):
    data, at, kind = path.read_bytes(), 0, schema.GlobalMetadata
    while at < len(data):
        size, at = length(data, at)
        message = kind.FromString(data[at : at + size])
        assert message.SerializeToString() == data[at : at + size], path
        at, kind = at + size, schema.Node
    print(path.name, message.id)
"""


def test_the_files(written: Written) -> None:
    folder = written("chakra")
    roles = json.loads((folder / "ranks.json").read_text())
    assert roles[:4] == [f"pipeline 0 stage {stage}" for stage in range(4)]
    assert {"link 0", "link 1"} <= set(roles)
    assert {path.name for path in (folder / "traces").iterdir()} == {f"step.{rank}.et" for rank in range(len(roles))}
    assert {SYSTEM, NETWORK, MEMORY} <= {path.name for path in folder.iterdir()}
    assert f"npus_count: [ {len(roles)} ]" in (folder / NETWORK).read_text()
    assert "Ranks 0 to 3 are the stages" in (folder / "README.md").read_text()


def test_the_command_of_the_readme_plays_the_step(written: Written) -> None:
    assert played_s(written("chakra")) == pytest.approx(evaluate(*example()).step_time_s, rel=1e-8)


def test_what_a_runtime_adds_to_messages_is_not_in_traces(written: Written) -> None:
    problem, plan = example()
    folder = written("chakra", replace(problem, runtime="deepspeed"), plan)
    text = (folder / "README.md").read_text()
    assert "DeepSpeed makes sender and receiver wait for each other, which ASTRA-sim cannot play" in text
    free = replace(lower(replace(problem, runtime="deepspeed"), plan), messages=Messages())
    assert played_s(folder) == pytest.approx(step_time(free), rel=1e-8)
    assert f"says {seconds(step_time(free))}." in text


def played_s(folder: Path) -> float:
    """Seconds of the step, as the command in the folder's README plays it."""
    text = (folder / "README.md").read_text()
    command = re.search(r"```bash\n(.*?)```", text, re.DOTALL)
    assert command is not None
    words = command[1].replace("\\\n", " ").split()
    assert words[0] == "AstraSim_Analytical_Congestion_Aware"
    done = subprocess.run(
        [sys.executable, "-S", PLAYER, *words[1:]], cwd=folder, capture_output=True, text=True, check=True
    )
    finished = [int(tick) for tick in re.findall(r"finished, (\d+) cycles", done.stdout)]
    assert len(finished) == len(json.loads((folder / "ranks.json").read_text()))
    return max(finished) / 1e9


def test_as_the_schema_reads_them(written: Written, ask: Asked) -> None:
    done = ask("chakra", written("chakra"), READ)
    assert done.returncode == 0, done.stderr
    assert "step.0.et" in done.stdout
