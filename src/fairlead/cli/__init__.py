"""The command line. Nothing heavy is imported here: each command loads what it needs when it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlead import __version__
from fairlead.cli.clients import clients
from fairlead.cli.compare import compare
from fairlead.cli.demo import demo
from fairlead.cli.diagnose import diagnose
from fairlead.cli.parts import cite, list_parts, show
from fairlead.cli.report import report
from fairlead.cli.reproduce import reproduce
from fairlead.cli.run import run
from fairlead.cli.setup import doctor, init
from fairlead.cli.sweep import sweep
from fairlead.errors import FairleadError


class _Commands(TyperGroup):
    """Commands whose deliberate errors end in one sentence; any other keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FairleadError as error:
            typer.echo(f"fairlead: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Commands,
    help="Federated optimization when clients differ: in data, in work, in links.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command()(compare)
app.command()(sweep)
app.command()(report)
app.command()(reproduce)
app.command()(demo)
app.command()(clients)
app.command()(diagnose)
app.command("list")(list_parts)
app.command()(show)
app.command()(cite)
app.command()(init)
app.command()(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    pass


def main() -> None:
    """The console script `fairlead`."""
    app()
