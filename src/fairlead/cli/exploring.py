"""Commands to look around and begin with: `init`, `demo`, `clients`, `diagnose`, `list`, `show`, `cite` and `export`.

The modules `show_*` need torch. Commands import them when they start, so that `--help` does not wait for it.
"""

import shlex
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import fairlead.cli.options as opt
from fairlead.cli.console import print_json, print_table, say
from fairlead.errors import FieldError, disk_errors
from fairlead.text import counted


def init(
    path: Annotated[Path, Argument()] = Path("fairlead.toml"),
) -> None:
    """Write a commented spec that is ready to run.

    Options:
        path: The file to write.
    """
    text = files("fairlead.experiments").joinpath("starter.toml").read_text(encoding="utf-8")
    name = shlex.quote(str(path))
    if path.exists():
        raise FieldError(f"{path} already exists: choose another name.")
    with disk_errors(path, "written", FieldError):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text.replace("THIS_FILE", name).encode()
        with path.open("xb") as file:
            file.write(content)
    say(f"Wrote {path}. Run it with: fairlead run {name}")


_SCENE = (
    "Twenty clients learn to read handwritten digits; each has only a few of the ten classes. Five clients do\n"
    "eight epochs a round, and all their updates arrive. Fifteen do one epoch, and six of ten of their updates\n"
    "are lost. The objective weights clients by their data size; every method gets the same batches, work and\n"
    "losses. The example is chosen to show the effect; your own clients may differ less.\n"
)


def demo(
    rounds: Annotated[int, Option(min=1, max=10**9)] = 120,
    seed: Annotated[int, Option(min=0, max=2**63 - 1)] = 0,
    device: str | None = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Compare methods on embedded data with unequal work and lossy links (takes seconds).

    Options:
        rounds: Rounds of each method.
        seed: Seed of data, model, batches and links.
        device: Device to train on: cpu, cuda, cuda:<number> or mps.
    """
    import torch

    from fairlead.cli.progress import RoundProgress
    from fairlead.cli.show_results import demo_facts, say_demo
    from fairlead.experiments.demo import demo_algorithms, demo_experiment
    from fairlead.results.compared_method import compare

    # The matrices are so small that a second thread costs more than it gains.
    torch.set_num_threads(1)
    experiment = demo_experiment(rounds, seed)
    experiment = replace(experiment, device=device or experiment.device)
    experiment.require_device()
    if not as_json:
        say(_SCENE)
    with RoundProgress(quiet=as_json) as progress:
        methods = compare(
            experiment,
            demo_algorithms(experiment),
            on_round=lambda name, record: progress.show(name, record, rounds, evaluating=True),
        )
    if as_json:
        print_json({"seed": seed, "rounds": rounds, **demo_facts(methods)})
    else:
        say_demo(methods)


def clients(
    spec: opt.SpecArgument,
    overrides: opt.OverridesOption = None,
    seed: opt.SeedOption = None,
    rounds: Annotated[int, Option(min=1, max=10**6)] = 20,
    plot: Path | None = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Show data, work and arrival rates of all clients before training.

    Options:
        rounds: Number of rounds to average work and links over.
        plot: Also draw a figure into this .svg, .png or .pdf file.
    """
    from fairlead.cli.show_clients import clients_facts, say_clients
    from fairlead.diagnostics.plots import SUFFIXES, plot_overview

    if plot is not None and plot.suffix.lower().removeprefix(".") not in SUFFIXES:
        raise FieldError(f"--plot must be a .svg, .png or .pdf file, got {str(plot)!r}.")
    found = opt.read_spec(spec, overrides or [], seed).overview(rounds)
    if as_json:
        print_json(clients_facts(found))
    else:
        say_clients(found)
    if plot is not None:
        plot_overview(found, plot)
        if not as_json:
            say(f"Drawn in {plot}")


def diagnose(
    subject: Annotated[Path, Argument(metavar="SUBJECT")],
    overrides: opt.OverridesOption = None,
    seed: opt.SeedOption = None,
    rounds: Annotated[int | None, Option(min=1, max=10**6)] = None,
    device: opt.DeviceOption = None,
    quick: Annotated[bool, Option("--quick")] = False,
    against: Annotated[str | None, Option(metavar="PRESETS")] = None,
    try_out: Annotated[bool, Option("--try")] = False,
    output: Annotated[Path | None, Option("--output", "-o")] = None,
    jobs: opt.JobsOption = None,
    figures: Annotated[Path | None, Option(metavar="FOLDER")] = None,
    figure_format: Annotated[str, Option("--format")] = "svg",
    as_json: opt.JsonOption = False,
) -> None:
    """Measure how clients differ and which objective is really optimized, and recommend a method.

    Options:
        subject: A spec (TOML), the folder of a run, or the records (.jsonl) of a real federation.
        rounds: Rounds of the probe. \\[default: 20, or 10 with --quick]
        quick: Run a shorter probe and skip the consensus test.
        against: Presets whose predicted effect to compare, such as fedavg,fednova,scaffold.
        try_out: Run a short, fair comparison of the present method, FedAvg, the advised method and other
            candidates, and recommend by its result. Re-running the command resumes it.
        output: Folder of --try. Default: runs/NAME-try.
        figures: Write figures to a folder.
        figure_format: Format of the figures: svg, png or pdf.
    """
    import fairlead.cli.show_study as show
    import fairlead.experiments.diagnose as probe
    from fairlead.cli.progress import RoundProgress
    from fairlead.cli.show_clients import print_presets
    from fairlead.diagnostics.plots import SUFFIXES, draw_diagnosis
    from fairlead.experiments.experiment import Experiment
    from fairlead.experiments.study import planned_comparison

    suffix = next((known for known in SUFFIXES if known == figure_format.lstrip(".")), None)
    if suffix is None:
        raise FieldError(f"--format must be one of {', '.join(SUFFIXES)}, got {figure_format!r}.")
    if subject.is_file() and subject.suffix not in (".toml", ".jsonl"):
        raise FieldError(f"diagnose takes a spec (.toml), a run folder or records (.jsonl), got {subject}.")
    is_spec = subject.suffix == ".toml" and not subject.is_dir()
    if try_out and subject.suffix == ".jsonl":
        raise FieldError(
            "--try needs a spec or the folder of a simulated run; records have no clients to train."
        )
    if output is not None and not try_out:
        raise FieldError("--output is the folder of --try, which is missing.")
    changes = opt.all_overrides(overrides, None, device)
    if not is_spec and (changes or seed is not None):
        raise FieldError(
            "--set, --seed and --device only apply to a spec file; a finished run cannot be changed."
        )
    if not is_spec and rounds is not None:
        raise FieldError("--rounds only applies to a spec; a finished run is diagnosed from all its rounds.")
    opt.find_modules()
    judged: Experiment | Path = opt.read_spec(subject, changes, seed) if is_spec else subject
    presets = [name.strip() for name in (against or "").split(",") if name.strip()]
    total = rounds or (probe.QUICK_ROUNDS if quick else probe.PROBE_ROUNDS)
    with RoundProgress(quiet=as_json) as progress:
        found = probe.diagnose(
            judged,
            rounds=rounds,
            quick=quick,
            against=presets,
            on_round=lambda record: progress.show("probe", record, total),
        )
    file = probe.spec_file(subject, changes) if is_spec else found.spec
    found = replace(found, source=str(subject), spec=file)
    if not as_json:
        say(str(found))
        if found.against:
            say()
            print_presets(found)
    drawn = [] if figures is None else draw_diagnosis(found, figures, suffix)
    if drawn and not as_json:
        say("\n".join(["", *(f"Figure: {path}" for path in drawn)]))
    trial, outcomes = {}, {}
    if try_out:
        planned = planned_comparison(probe.trial_methods(found), probe.TRIAL_SEEDS)
        study = show.study_folder(output, subject, "try", planned, [])
        outcomes = show.run_and_show(study, planned, jobs, 10, quiet=as_json)
        trial = {"trial": show.show_trial(study, planned, outcomes, quiet=as_json)}
    if as_json:
        print_json({**found.to_dict(), **trial, "figures": [str(path) for path in drawn]})
    show.leave(outcomes, quiet=as_json)


def list_parts(
    kind: Annotated[str | None, Argument(metavar="KIND")] = None,
    as_json: opt.JsonOption = False,
) -> None:
    """List parts, presets, published settings, methods or reproductions.

    Options:
        kind: samplers, optimizers, corrections, aggregators, transforms, clients, partitioners, skews,
            tokenizers, augmentations, work, links, devices, models, losses, metrics, schedules, tables, presets,
            settings, methods or reproductions; all parts by default.
    """
    from fairlead.cli.show_parts import part_list

    found = part_list(kind)
    if as_json:
        print_json(found.facts)
        return
    print_table(found.columns, found.rows)
    if found.after:
        say(found.after)


def show(
    name: str,
    as_json: opt.JsonOption = False,
) -> None:
    """Explain a part, preset or setting: its purpose, fields and papers.

    Options:
        name: A part, preset or setting, such as FedNova or fednova.
    """
    from fairlead.cli.show_parts import entry_facts, say_entry
    from fairlead.experiments.catalog import entry

    if as_json:
        print_json(entry_facts(entry(name)))
    else:
        say_entry(entry(name))


def cite(
    name: str,
    as_json: opt.JsonOption = False,
) -> None:
    """Print the papers behind a part, preset or setting as BibTeX.

    Options:
        name: A part, preset, setting or the key of a paper.
    """
    from fairlead.experiments.catalog import citations

    found = citations(name)
    if as_json:
        print_json([asdict(reference) for reference in found])
    else:
        say("\n\n".join(reference.bibtex() for reference in found))


def export(
    folder: Annotated[Path, Argument(metavar="RUN")],
    output: Annotated[Path, Option("--output", "-o")],
    best: Annotated[bool, Option("--best")] = False,
    model: Annotated[str | None, Option(metavar="MODULE:FUNCTION")] = None,
    input_shape: Annotated[str | None, Option(metavar="SHAPE")] = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Write the model of a run to a file, and a model card beside it.

    Options:
        folder: The folder of a run.
        output: The file: model.safetensors, model.pt or model.onnx; the model card is written beside it.
        best: Export the best model instead of the last one; the run needs keep_best.
        model: A function that builds the model, for runs of real clients.
        input_shape: Shape of one input, such as 1,28,28, for ONNX with --model.
    """
    from fairlead.models.base import ExampleShape
    from fairlead.models.imported import ImportedModel
    from fairlead.reports.model_export import export_model

    opt.find_modules(folder.resolve())
    shape = None
    if input_shape is not None:
        shape = tuple(int(size) for size in input_shape.split(",") if size.strip().isdecimal())
        if not shape or 0 in shape or len(shape) != input_shape.count(",") + 1:
            raise FieldError(f"--input-shape must be whole numbers such as 1,28,28, got {input_shape!r}.")
    module = None if model is None else ImportedModel(model).build(ExampleShape(shape or (), 0))
    made = export_model(folder, output, "best" if best else "last", module=module, input_shape=shape)
    if as_json:
        facts = {"file": str(made.file), "card": str(made.card), "rounds": made.rounds}
        print_json({**facts, "caveat": made.caveat or None})
    else:
        say(f"Wrote {made.file} (the model after {counted(made.rounds, 'round')}) and its card {made.card}.")
        if made.caveat:
            say(made.caveat)
