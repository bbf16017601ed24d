"""Runs become methods: found, named, repeated over seeds, or left out with a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fabricated import Made, experiment_of, fabricate

import fairlead as fl
from fairlead.errors import FieldError, RunFolderError
from fairlead.experiments.study import PlannedRun, StudyFolder
from fairlead.results.methods import Study, baseline_of, group_runs
from fairlead.results.runs import find_runs, read_run


def study_of(*paths: Path) -> Study:
    return group_runs([read_run(found) for found in find_runs(paths)])


def test_seeds_are_repetitions_of_one_method(tmp_path: Path) -> None:
    for method in ("fednova", "fedavg"):
        for seed in (2, 0, 1):
            fabricate(tmp_path / method / f"seed-{seed}", Made(method, seed))
    study = study_of(tmp_path)
    assert [method.label for method in study.methods] == ["fedavg", "fednova"]
    seeds = [[run.experiment.seed for run in method.runs if run.experiment] for method in study.methods]
    assert seeds == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("folder", "seed", "label"),
    [
        ("fedavg-3", 3, "fedavg"),
        ("fedavg-3-2", 3, "fedavg"),
        ("fedavg_seed3", 3, "fedavg"),
        ("fedavg/3", 3, "fedavg"),
        ("method_03/3", 3, "method_03"),
        ("fedavg/seed=003", 3, "fedavg"),
        ("lr 0.1/seed-1", 1, "lr 0.1"),
        ("dirichlet0.1", 1, "dirichlet0.1"),
        ("first try", 0, "first try"),
    ],
)
def test_a_run_is_called_by_its_folder_less_the_seed(
    tmp_path: Path, folder: str, seed: int, label: str
) -> None:
    fabricate(tmp_path / folder, Made(seed=seed))
    assert [method.label for method in study_of(tmp_path).methods] == [label]


def test_methods_of_one_name_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    """Only the fields that are needed: the learning rate tells all three."""
    for place, lr in enumerate((0.1, 0.2, 0.3)):
        fabricate(tmp_path / str(place) / "study-0", Made(lr=lr))
    assert [method.label for method in study_of(tmp_path).methods] == [
        "study (lr=0.1)", "study (lr=0.2)", "study (lr=0.3)",
    ]  # fmt: skip


def test_runs_of_one_method_in_folders_of_any_name_are_called_by_their_parts(tmp_path: Path) -> None:
    fabricate(tmp_path / "monday", Made("scaffold", 0))
    fabricate(tmp_path / "tuesday", Made("scaffold", 1))
    (method,) = study_of(tmp_path).methods
    assert (method.label, len(method.runs)) == ("WeightedMean + ControlVariates", 2)


def test_a_repetition_of_a_seed_is_left_out_and_the_finished_one_stays(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made(outcome="interrupted", planned=3))
    fabricate(tmp_path / "fedavg-0-2", Made(accuracy=(0.1, 0.2, 0.3)))
    study = study_of(tmp_path)
    (method,) = study.methods
    assert [run.path.name for run in method.runs] == ["fedavg-0-2"]
    assert [run.path.name for run in study.repeated] == ["fedavg-0"]


def test_runs_that_never_began_are_those_of_their_own_study(tmp_path: Path) -> None:
    """Two studies have a fedavg each, of 2 and 3 rounds: one finished both seeds, the other began one."""
    for name, rounds, done in (("whole", 2, (0, 1)), ("begun", 3, (0,))):
        made = [Made(seed=seed, accuracy=(0.1, 0.2, 0.3)[:rounds]) for seed in (0, 1)]
        StudyFolder(tmp_path / name).plan(
            [
                PlannedRun(
                    f"fedavg/seed-{one.seed}", {"method": "fedavg", "seed": one.seed}, experiment_of(one)
                )
                for one in made
            ]
        )
        for seed in done:
            fabricate(tmp_path / name / f"fedavg/seed-{seed}", made[seed])
    begun, whole = study_of(tmp_path).methods
    assert (len(whole.runs[0].records), whole.num_runs, whole.complete) == (2, 2, True)
    assert (len(begun.runs[0].records), begun.shortfall) == (3, "1 of 2 runs did not finish")


def test_the_same_folder_given_twice_counts_once(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0")
    assert len(find_runs([tmp_path, tmp_path / "fedavg-0"])) == 1


def test_only_finished_runs_are_counted_unless_none_is(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg" / "0", Made())
    fabricate(tmp_path / "fedavg" / "1", Made(seed=1, outcome="failed: NaN", accuracy=(0.1,), planned=2))
    fabricate(tmp_path / "fednova" / "0", Made("fednova", outcome="running", accuracy=(0.1,), planned=2))
    fedavg, fednova = study_of(tmp_path).methods
    assert [run.path.name for run in fedavg.counted] == ["0"]
    assert [run.state for run in fednova.counted] == ["running"]


@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [
        ("finished", "finished", ""),
        ("interrupted", "interrupted", "Stopped after 2 of 5 rounds; it can be resumed."),
        ("failed: it burst.", "failed", "Failed after 2 of 5 rounds: it burst."),
        ("running", "running", "Still running, or ended without notice, after 2 of 5 rounds."),
    ],
)
def test_how_a_run_ended(tmp_path: Path, outcome: str, state: str, reason: str) -> None:
    fabricate(tmp_path / "run", Made(outcome=outcome, planned=5))
    run = read_run(find_runs([tmp_path])[0])
    assert (run.state, run.reason) == (state, reason)


def test_a_run_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0")
    broken = fabricate(tmp_path / "fedavg-1", Made(seed=1))
    (broken / "spec.toml").write_text("rounds = 'many'")
    study = study_of(tmp_path)
    assert [run.path.name for run in study.unusable] == ["fedavg-1"]
    assert study.unusable[0].state == "unreadable"
    assert study.unusable[0].reason == "clients is missing: Experiment needs it."
    assert study.unusable[0].spec == "rounds = 'many'"


def test_weights_are_those_of_the_spec(tmp_path: Path) -> None:
    fabricate(tmp_path / "run")
    run = read_run(find_runs([tmp_path])[0])
    assert run.weights is not None
    assert run.weights.tolist() == [0.25, 0.75]


def test_a_run_without_the_facts_of_its_clients_is_read_without_weights(tmp_path: Path) -> None:
    (fabricate(tmp_path / "run") / "clients.json").unlink()
    run = read_run(find_runs([tmp_path])[0])
    assert (run.state, run.weights, len(run.records)) == ("finished", None, 2)


def test_a_study_names_its_methods_and_knows_runs_that_never_began(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    planned = [
        PlannedRun(
            f"{method}/seed-{seed}", {"method": label, "seed": seed}, experiment_of(Made(method, seed))
        )
        for method, label in (("fednova", "my method"), ("fedavg", "fedavg"))
        for seed in (0, 1)
    ]
    study.plan(planned)
    for run in planned[:3]:
        method, seed = run.folder.split("/seed-")
        fabricate(tmp_path / run.folder, Made(method, int(seed)))
    study.settle({planned[3].folder: "failed: no memory."})
    found = study_of(tmp_path)
    assert [method.label for method in found.methods] == ["my method", "fedavg"]
    assert [(run.state, run.reason) for run in found.unusable] == [("failed", "Failed: no memory.")]
    assert baseline_of(found, None).label == "my method"
    assert [(each.complete, each.num_runs, each.shortfall) for each in found.methods] == [
        (True, 2, ""),
        (False, 2, "1 of 2 runs failed"),
    ]


def test_methods_that_a_study_has_not_begun_are_named(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    planned = [
        PlannedRun(f"{method}-{seed}", {"method": method, "seed": seed}, experiment_of(Made(method, seed)))
        for seed in (0, 1)
        for method in ("fedavg", "fednova", "scaffold")
    ]
    study.plan(planned)
    fabricate(tmp_path / "fedavg-0", Made(outcome="interrupted"))
    found = study_of(tmp_path)
    assert [method.label for method in found.methods] == ["fedavg"]
    assert found.absent == ("fednova", "scaffold")
    assert found.shortfalls == (
        "Not every run finished: fedavg (2 of 2 runs did not finish). No run of fednova and scaffold has a "
        "readable round."
    )
    fabricate(tmp_path / "fednova-1", Made("fednova", 1))
    assert study_of(tmp_path).absent == ("scaffold",)


def test_a_method_that_another_study_has_not_begun_is_not_absent(tmp_path: Path) -> None:
    for name in ("begun", "other", "yet"):
        StudyFolder(tmp_path / name).plan(
            [PlannedRun("fedavg-0", {"method": "fedavg"}, experiment_of(Made()))]
        )
    fabricate(tmp_path / "begun/fedavg-0")
    found = study_of(tmp_path)
    assert (found.labels, found.absences) == (("fedavg",), "")
    fabricate(tmp_path / "other/fedavg-0", Made(lr=0.2))
    found = study_of(tmp_path)
    assert (found.labels, found.absences) == (("fedavg (lr=0.1)", "fedavg (lr=0.2)"), "")


def test_a_method_says_how_many_runs_failed_and_how_many_did_not_finish(tmp_path: Path) -> None:
    for seed, outcome in enumerate(("finished", "failed: NaN.", "interrupted", "running")):
        fabricate(tmp_path / f"fedavg-{seed}", Made(seed=seed, outcome=outcome))
    found = study_of(tmp_path)
    assert found.methods[0].shortfall == "1 of 4 runs failed and 2 did not finish"
    assert found.shortfalls == ("Not every run finished: fedavg (1 of 4 runs failed and 2 did not finish).")


def test_only_runs_of_the_same_clients_task_and_length_are_comparable(tmp_path: Path) -> None:
    """Another algorithm, learning rate or work is what reports compare."""
    (method,) = study_of(fabricate(tmp_path / "fedavg-0")).methods
    asked = method.runs[0].experiment
    assert asked is not None
    others = {
        "algorithm": replace(asked, algorithm=fl.presets.fednova(lr=0.5)),
        "work": replace(asked, work=fl.FixedSteps((2, 2))),
        "clients": replace(asked, clients=fl.Quadratics(linear=((0.0,), (2.0,)))),
        "rounds": replace(asked, rounds=9),
        "task": replace(asked, task=fl.Task(fl.MLP(hidden=(2,)))),
    }
    comparable = {
        name
        for name, other in others.items()
        if replace(method, runs=(replace(method.runs[0], experiment=other),)).comparable_with(method)
    }
    assert comparable == {"algorithm", "work"}


def test_the_baseline_of_loose_runs_is_fedavg(tmp_path: Path) -> None:
    for method, folder in (("fednova", "a"), ("fedavg", "FedAvg")):
        fabricate(tmp_path / folder / "0", Made(method))
    study = study_of(tmp_path / "a", tmp_path / "FedAvg")
    assert baseline_of(study, None).label == "FedAvg"
    assert baseline_of(study, "a").label == "a"
    with pytest.raises(FieldError, match=r"'b' is not a method of these runs"):
        baseline_of(study, "b")


def test_a_method_that_failed_is_no_baseline(tmp_path: Path) -> None:
    for method in ("fedavg", "fednova", "scaffold"):
        outcome = "failed: NaN." if method == "fedavg" else "finished"
        fabricate(tmp_path / f"{method}-0", Made(method, outcome=outcome))
    study = study_of(tmp_path / "fedavg-0", tmp_path / "scaffold-0", tmp_path / "fednova-0")
    assert baseline_of(study, None).label == "scaffold"
    message = r"^baseline must be a method that has not failed, got 'fedavg': 1 of 1 run failed\."
    with pytest.raises(FieldError, match=message):
        baseline_of(study, "fedavg")
    alone = study_of(tmp_path / "fedavg-0")
    assert baseline_of(alone, None).label == "fedavg"


def test_the_baseline_of_a_study_is_the_first_that_finished_a_run(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    outcomes = {"fedavg": "failed: NaN.", "fednova": "interrupted", "scaffold": "finished"}
    methods = [*outcomes, "fedaware"]
    study.plan([PlannedRun(method, {"method": method}, experiment_of(Made(method))) for method in methods])
    for method, outcome in outcomes.items():
        fabricate(tmp_path / method, Made(method, outcome=outcome))
    found = study_of(tmp_path)
    assert baseline_of(found, None).label == "scaffold"
    assert baseline_of(found, "fednova").label == "fednova"
    with pytest.raises(FieldError, match=r"'fedaware' is a method of which no run has a readable round"):
        baseline_of(found, "fedaware")


def test_conditions_that_differ_between_methods_are_named(tmp_path: Path) -> None:
    fabricate(tmp_path / "a-0", Made("fedavg"))
    fabricate(tmp_path / "b-0", Made("fednova", steps=(2, 2), accuracy=(0.1, 0.2, 0.3)))
    assert study_of(tmp_path).differing_conditions() == ("rounds", "work")


def test_where_a_run_was_computed_does_not_make_another_method(tmp_path: Path) -> None:
    ways = ('engine = "loop"', 'engine = "auto"', 'reproducible = true\ncompile = true\ndata_on = "host"')
    for seed, way in enumerate(ways):
        folder = fabricate(tmp_path / f"fedavg-{seed}", Made(seed=seed))
        text = (folder / "spec.toml").read_text()
        (folder / "spec.toml").write_text(f"{way}\n{text}")
    assert [len(method.runs) for method in study_of(tmp_path).methods] == [3]


def test_folders_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"is not the folder of a run, and there is none below it\.$"):
        find_runs([tmp_path])
    with pytest.raises(RunFolderError, match=r"absent does not exist\."):
        find_runs([tmp_path / "absent"])


def test_a_made_run_can_be_changed() -> None:
    """The fabricated experiments differ in the seed alone, which the tests above rely on."""
    first, second = experiment_of(Made(seed=0)), experiment_of(Made(seed=1))
    assert first != second
    assert replace(second, seed=0) == first
