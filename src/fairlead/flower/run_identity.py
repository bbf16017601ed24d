"""The servers that were started for a run on Flower one after another, as its folder tells of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from fairlead.checkpoint.durable_files import write_durably
from fairlead.diagnostics.consistency import ConsistencyReport, measured_consistency
from fairlead.errors import RunFolderError
from fairlead.experiments.run_folder import RunFolder
from fairlead.flower.roster import Member, Roster
from fairlead.flower.world import RunIdentity

MEMBERS = "flower.json"
"""The file in which a run notes who its clients are."""


def consistency_of(folder: Path) -> ConsistencyReport:
    """ω against Ω of a run on Flower, from its folder."""
    if not (folder / MEMBERS).exists():
        raise RunFolderError(f"{folder} holds no run on Flower: {MEMBERS} is missing.")
    store = RunFolder(folder)
    clients = store.clients()
    if clients is None:
        raise RunFolderError(f"{folder} holds no run on Flower: {store.clients_file.name} is missing.")
    weights = torch.tensor(clients.weights, dtype=torch.float64)
    return measured_consistency(store.records(), weights, algorithm=store.experiment().algorithm)


@dataclass(frozen=True)
class EarlierStarts:
    """What the servers before have left behind."""

    next_start: RunIdentity
    members: dict[int, Member]
    """The clients that they knew."""
    repeated: tuple[int, ...]
    """Rounds that they did again, each for every time."""
    num_records: int
    """Rounds of which there is a record."""

    @staticmethod
    def of(folder: Path) -> EarlierStarts:
        """Of the run in a folder; none for a run that is new."""
        file, store = folder / MEMBERS, RunFolder(folder)
        if not file.exists():
            return EarlierStarts(RunIdentity(secrets.token_hex(8), 1), {}, (), 0)
        try:
            kept = json.loads(file.read_bytes())
            members = [Member(**each) for each in kept["clients"]]
            identity, repeated = RunIdentity(kept["run"], kept["attempt"] + 1), tuple(kept["repeated"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{file} is damaged or of another version of fairlead ({type(error).__name__}: {error}): start a new "
                "run in another folder."
            ) from error
        num_records = len(store.log()) if store.rounds_file.exists() else 0
        return EarlierStarts(identity, {member.client: member for member in members}, repeated, num_records)

    def repeated_from(self, round: int, last: int) -> tuple[int, ...]:
        """Rounds done again, each for every time, once a run of `last` rounds goes on from one of them.

        The server before was at most in the round after its last record when it ended. It may have shown that
        round's model already, to be evaluated, and has shown those of earlier rounds, which are done again where
        a damaged checkpoint was passed over.
        """
        if self.next_start.attempt == 1:
            return ()
        return (*self.repeated, *range(round, min(self.num_records + 1, last)))


def note_start(folder: Path, identity: RunIdentity, roster: Roster, repeated: Sequence[int]) -> None:
    """Tell later servers of this one, before it does anything."""
    members = [asdict(roster.members[client]) for client in sorted(roster.members)]
    content = {**identity._asdict(), "repeated": list(repeated), "clients": members}
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / MEMBERS, json.dumps(content, indent=2).encode())
