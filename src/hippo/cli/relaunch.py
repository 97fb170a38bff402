"""``hippo relaunch``: a run under somebody else's runtime goes on under another plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import check_folder, mention, print_document
from hippo.cli.plan_file import PlanFile, read_plan


@dataclass(frozen=True)
class Choice:
    """From which plan to which, and whose checkpoint."""

    old: PlanFile
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="The plan under which it goes on.")]
    to: Annotated[str, typer.Option(metavar="torchtitan|megatron", help="The runtime.")]
    checkpoint: Annotated[Path, typer.Option(metavar="DIR", help="Where it left its checkpoints.")]
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the launch; made when it is missing.")]
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that no export wrote.")] = False
    json: Json = False


@takes(Choice)
def relaunch(choice: Choice) -> None:
    """A run of torchtitan or Megatron-LM goes on under another plan.

    The checkpoint is held against the model: every block, both moments, whole files. The launch that is written begins
    from all of it, under other cuts, tp, pp and replicas.
    """
    from hippo.export.folder import listing, write_export
    from hippo.export.relaunch import relaunch as files_of

    check_folder(choice.out)
    plans, told = (read_plan(choice.old), read_plan(choice.new)), str(choice.new)
    found = files_of(*plans, choice.to, choice.checkpoint, source=told)
    write_export(choice.out, found.files, force=choice.force)
    files = [str(choice.out / name) for name in listing(found.files)]
    if choice.json:
        print_document({"to": choice.to, "files": files, "command": found.command, "notes": list(found.notes)})
        return
    print(found.command)
    for note in found.notes:
        mention(note)
    mention(f"wrote {', '.join(files)}")
