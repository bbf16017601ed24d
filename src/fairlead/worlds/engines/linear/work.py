"""What a run of local steps of softmax regression needs, whichever kernel takes them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class LinearWork:
    """The local work of m clients whose model is one linear layer, as flat arrays.

    Step k of job j uses the rows `rows[starts[j] + k·batch_sizes[j]:][:batch_sizes[j]]`, and descends

        mean of −log softmax(W x/scale + b)[y] + ½ λ‖(W, b)‖² + ½ μ‖(W, b) − anchor‖².
    """

    inputs: Tensor
    """(examples, width), in the type of `anchor` or as bytes."""
    input_scale: float
    """What inputs are divided by: 255 for bytes, else 1."""
    targets: Tensor
    """(examples,) classes."""
    rows: Tensor
    """All jobs' row numbers one after the other, -1 for padding."""
    starts: Tensor
    """(m,) where each job's row numbers begin."""
    batch_sizes: Tensor
    """(m,), padding included."""
    num_steps: Tensor
    """(m,)."""
    lrs: Tensor
    """(longest,) float64."""
    anchor: Tensor
    """(d,): W row by row, then b if there is one."""
    num_classes: int
    weight_decay: float
    """λ."""
    mu: float
    """μ."""
