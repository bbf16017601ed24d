"""`fairlead init`: a spec to start from."""

import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.console import say
from fairlead.errors import FieldError


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("fairlead.toml"),
) -> None:
    """Write a commented spec that is ready to run."""
    text = files("fairlead.experiments").joinpath("starter.toml").read_text(encoding="utf-8")
    name = shlex.quote(str(path))
    if path.exists():
        raise FieldError(f"{path} already exists: choose another name.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("THIS_FILE", name))
    except OSError as error:
        raise FieldError(f"{path} cannot be written: {error.strerror}.") from error
    say(f"Wrote {path}. Run it with: fairlead run {name}")
