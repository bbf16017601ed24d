"""The command line. Heavy modules are imported inside the commands that need them."""

import inspect
import io
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from fairlead import __version__
from fairlead.cli import flower
from fairlead.cli.doctor import doctor
from fairlead.cli.exploring import cite, clients, demo, diagnose, export, init, list_parts, show
from fairlead.cli.options import import_modules
from fairlead.cli.running import benchmark, compare, report, reproduce, run, sweep
from fairlead.errors import FairleadError, one_line


class _Commands(TyperGroup):
    """Commands that print errors of fairlead and of the system as one sentence; other errors keep their traceback."""

    def get_params(self, ctx: Any) -> Any:
        return _without_flag_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        out = sys.stdout
        if isinstance(out, io.TextIOWrapper) and out.errors == "strict":
            # The name of a file may hold bytes that are no text, and a terminal may lack the signs of charts.
            out.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except (FairleadError, OSError, MemoryError) as error:
            if isinstance(error, BrokenPipeError):
                # Whoever reads the output has read enough, which typer knows how to end.
                raise
            if isinstance(error, OSError):
                error = FairleadError(f"{error.filename or 'A file'} cannot be used: {one_line(error)}.")
            elif not isinstance(error, FairleadError):
                error = FairleadError(f"The memory does not suffice: {one_line(error)}.")
            typer.echo(f"fairlead: {error}", err=True)
            raise typer.Exit(2) from None


class _Command(TyperCommand):
    """A command whose help shows flags without a type and required arguments without braces."""

    def get_params(self, ctx: Any) -> Any:
        return _without_flag_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        # Some versions of typer add the dots of a repeated argument twice.
        return [piece.replace("{", "").replace("}", "").replace("......", "...") for piece in pieces]


def _without_flag_types(params: Any) -> Any:
    """Flags take no value, so their help shows no type."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


def _documented(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose arguments and options have the help that its docstring gives them below "Options:"."""
    command.__doc__, _, below = (inspect.getdoc(command) or "").partition("\n\nOptions:\n")
    hints, parameters = get_type_hints(command, include_extras=True), inspect.signature(command).parameters
    for name, text in re.findall(r"^    (\w+): (.*(?:\n        .*)*)", below, re.MULTILINE):
        is_argument = parameters[name].default is inspect.Parameter.empty
        if get_origin(hints[name]) is not Annotated:
            hints[name] = Annotated[hints[name], typer.Argument() if is_argument else typer.Option()]
        hints[name].__metadata__[0].help = " ".join(text.split())
    command.__annotations__ = hints
    return command


_command: Callable[..., None]

app = typer.Typer(
    cls=_Commands,
    help="Federated optimization when clients differ: in data, in work, in links.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (run, compare, sweep, benchmark, report, export, reproduce, demo, clients, diagnose):
    app.command(cls=_Command)(_documented(_command))
app.command("list", cls=_Command)(_documented(list_parts))
for _command in (show, cite, init, doctor):
    app.command(cls=_Command)(_documented(_command))

on_flower = typer.Typer(cls=_Commands, help="Run real federations on Flower.", no_args_is_help=True)
for _command in (flower.init, flower.credentials, flower.up, flower.weights):
    on_flower.command(cls=_Command)(_documented(_command))
app.add_typer(on_flower, name="flower")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
@_documented
def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version)] = False,
    modules: Annotated[list[str] | None, typer.Option("--import", metavar="MODULE")] = None,
) -> None:
    """Take the options of all commands.

    Options:
        version: Print the version and exit.
        modules: Import a Python module, so that specs can name its parts; may be repeated.
    """
    if modules:
        import_modules(modules)


def main() -> None:
    """The console script `fairlead`."""
    app()
