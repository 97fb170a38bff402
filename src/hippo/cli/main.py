"""``hippo``: the table of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

import hippo
from hippo.cli.output import DONE, INFEASIBLE, INTERRUPTED, WRONG_INPUT, Loudness, say, set_loudness, silence_stdout
from hippo.errors import InexpressibleError, InfeasibleError, InputError

COMMANDS: Mapping[str, str] = {
    "plan": "The best plan, how far from the optimum it can be, and why.",
    "compare": "All planners side by side, scored by one judge.",
    "pareto": "Plans that none beats in time, utilisation and egress cost.",
    "explain": "What sets the pace of a plan, and what would change it.",
    "simulate": "A plan played again: under noise, or along a network trace.",
    "estimate": "One layout in one data centre: time, memory, MFU.",
    "validate": "Published training runs against predictions.",
    "schedule": "The best schedule of micro-batches, and how good it can be.",
    "export": "Files that launch a plan with the tools people already have.",
    "relaunch": "A run of torchtitan or Megatron-LM goes on under another plan.",
    "run": "A plan trained for real, beside what was predicted.",
    "ctl": "Orders to a running job: levers, other plans, what it measures.",
    "top": "A running job at a glance: ranks, links and orders as they are.",
    "train": "Train Hi-PPO, or the learner that --config names.",
    "evaluate": "How near methods come to perfect hindsight on a moving network.",
    "watch": "A network trace replayed: decisions as they are taken, and why.",
    "emulate": "A command inside an emulated WAN, whose links may move.",
    "probe": "Links as they are: measured, or read from iperf3 or Prometheus.",
    "profile": "Seconds and bytes of a model's layers, measured with torch.",
    "catalogue": "Names that other commands take; JSON schemas of input files.",
    "prepare": "Compile what commands need, once, before they need it.",
    "bench": "The figures of results/figures.md, one table each.",
    "jobs": "Jobs over several data centres: replayed, or submitted.",
    "serve": "A service that watches links and jobs, decides and acts.",
    "decisions": "What a service decided, why, and what came of it.",
    "store": "The store of a service: backup and restore.",
}
"""Each lies in the file of its name, as the function of its name, and is imported when it is asked for."""

OTHERS: Mapping[str, str] = {
    **dict.fromkeys(("--global-batch-size", "--global_batch_size"), "--global-batch"),
    **dict.fromkeys(("--seq-length", "--seq_length", "--max_seq_length", "--max-seq-length"), "--seq"),
    **dict.fromkeys(("--micro-batch-size", "--per_device_train_batch_size"), "--micro-batch"),
    **dict.fromkeys(("--tensor-model-parallel-size", "--tensor-parallel-size"), "--tp"),
    **dict.fromkeys(("--pipeline-model-parallel-size", "--pipeline-parallel-size"), "--pp"),
    "--data-parallel-size": "--dp",
    "--context-parallel-size": "--cp",
    "--expert-model-parallel-size": "--ep",
    "--recompute-granularity": "--recompute",
    "--model_name_or_path": "--model",
}
"""Options as Megatron-LM and Hugging Face name them, and ours; help does not list them."""

TAKE_OTHERS = ("plan", "compare", "pareto", "estimate", "watch", "evaluate", "profile")
"""Commands that take those names too; others hand words on to programs that may know them."""

GARBAGE_EVERY = 100_000
"""New objects between two collections; with Python's own 700 a plan starts a tenth of a second later."""


def _print_version(asked: bool) -> None:
    if asked:
        print(f"hippo {hippo.__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Plans how one large language model is trained over several data centres, and says why."""


def app(words: Sequence[str], **how: Any) -> Any:
    """Runs a command line with typer. Of the commands that it does not name only the summaries are known, unless the
    shell asks for completions."""
    table = typer.Typer(
        callback=_top,
        add_completion=True,
        rich_markup_mode=None,  # plain help: rich would triple the time of `hippo --help`
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    for name, summary in COMMANDS.items():
        if name not in words and "_HIPPO_COMPLETE" not in os.environ:
            table.command(name, help=summary)(_elsewhere)
            continue
        found = getattr(import_module(f"hippo.cli.{name}"), name)
        if isinstance(found, typer.Typer):
            table.add_typer(found)
        else:
            table.command(name)(found)
    return table(words, **how)


def _elsewhere() -> None:
    """In the place of a command that is not asked for."""


def main() -> None:
    """Entry point of the ``hippo`` command."""
    gc.set_threshold(GARBAGE_EVERY, 50, 100)
    warnings.showwarning = lambda message, *where: say(str(message))
    try:
        code = run(sys.argv[1:])
    finally:
        sys.excepthook = _own_fault  # typer has put its own there
    # The process ends: to look for garbage among the modules once more would take a third of a second.
    gc.freeze()
    gc.disable()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line (without the program's name) and returns its exit code; errors are said on stderr."""
    set_loudness(Loudness.USUAL)
    try:
        code: Any = app(_as_ours(arguments), prog_name="hippo", standalone_mode=False)
        sys.stdout.flush()
        return _told(code) if isinstance(code, int) else DONE
    except InputError as error:
        return _refuse(str(error))
    except InexpressibleError as error:
        return _refuse(str(error))
    except InfeasibleError as error:
        say(f"infeasible: {error}")
        return INFEASIBLE
    except typer.Exit as ending:
        return ending.exit_code
    except typer.TyperException as error:
        return _refuse(_usage(error, arguments))
    except (KeyboardInterrupt, typer.Abort):
        return _told(INTERRUPTED)
    except SystemError as error:
        if not isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            raise
        return _told(INTERRUPTED)  # where Ctrl-C meets a kernel that is being compiled, Python makes this of it
    except OSError as error:
        return _broken_stream(error)
    except SystemExit:  # typer's own answer to a reader that has gone
        return _broken_stream(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))


def _as_ours(arguments: Sequence[str]) -> list[str]:
    """The command line with options of Megatron-LM and Hugging Face under our names, and ``help X`` as ``X --help``."""
    first, rest = (arguments[0], arguments[1:]) if arguments else ("help", ())
    if first == "help":
        return [*rest, "--help"]
    if first not in TAKE_OTHERS:
        return list(arguments)
    named = [argument.partition("=") for argument in rest]
    return [first, *(OTHERS.get(name, name) + sign + value for name, sign, value in named)]


def _told(code: int) -> int:
    """The exit code; typer makes one of an interruption without a word."""
    if code == INTERRUPTED:
        say("interrupted")
    return code


def _refuse(message: str) -> int:
    say(message)
    return WRONG_INPUT


def _usage(error: typer.TyperException, arguments: Sequence[str]) -> str:
    """Typer's complaint as one message with the value and a remedy."""
    context, names = getattr(error, "ctx", None), getattr(getattr(error, "param", None), "opts", ())
    path = context.command_path if context is not None else "hippo"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    value = next((_after(name, arguments) for name in names if _after(name, arguments) is not None), None)
    got = "" if value is None else f" (got {value!r})"
    told = f"{message.rstrip('.')}{got}"
    return f"{told}{'' if told.endswith('?') else '.'} To fix: see '{path} --help'."


def _after(option: str, arguments: Sequence[str]) -> str | None:
    """The value that the command line gives to an option."""
    for index, argument in enumerate(arguments):
        if argument == option:
            return arguments[index + 1] if index + 1 < len(arguments) else None
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None


def _broken_stream(error: OSError) -> int:
    """A reader that has gone (``| head``) is no error; a full disk behind stdout is."""
    silence_stdout()
    if error.errno == errno.EPIPE:
        return DONE
    where = f"{error.filename}: " if error.filename else ""
    return _refuse(f"{where}{error.strerror or error}. To fix: make room, or write elsewhere.")


def _own_fault(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Anything else is a fault of hippo's own: one line, and the trace for those who ask."""
    if os.environ.get("HIPPO_TRACE"):
        sys.__excepthook__(kind, error, trace)
    else:
        say(f"a fault of its own: {kind.__name__}: {error}. To fix: report it, with the output under HIPPO_TRACE=1.")


if __name__ == "__main__":
    main()
