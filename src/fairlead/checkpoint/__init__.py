"""Checkpoints: server states as safetensors beside small manifests, the last few of them, each whole or refused."""

from fairlead.checkpoint.durable_files import make_folder as make_folder
from fairlead.checkpoint.durable_files import write_durably as write_durably
from fairlead.checkpoint.manifest import FORMAT as FORMAT
from fairlead.checkpoint.state_tensors import tables_of as tables_of
from fairlead.checkpoint.store import KEPT as KEPT
from fairlead.checkpoint.store import checkpointed_rounds as checkpointed_rounds
from fairlead.checkpoint.store import has_checkpoint as has_checkpoint
from fairlead.checkpoint.store import load_state as load_state
from fairlead.checkpoint.store import save_state as save_state
from fairlead.checkpoint.store import warn as warn
