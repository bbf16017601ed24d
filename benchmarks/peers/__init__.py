"""fairlead against its peers on the same work, in one run that anyone can repeat.

    pip install . 'pfl[pytorch]==0.6.0' fedlab==1.3.0 'flwr[simulation]==1.41.0'
    python -m benchmarks.peers --workload mlp
    python -m benchmarks.peers --workload all --device cuda --precision tf32 --rounds 10 --repeats 5
    python -m benchmarks.peers --workload pfl-cifar10 --data FOLDER --rounds 100 --device cuda --world lanes=50

**The same work.** Every system starts from the same model and trains the same cohorts; every client goes through
its examples in the same order, drawn beforehand; the new model is the plain mean of the cohort's models, which
the stock servers of all of them can compute. After one round from the same start the models must agree: the
distance between a peer's model and fairlead's, in units of how far the round moved fairlead's, must be below the
tolerance of the precision (`comparison.TOLERANCES`). The run fails if one does not.
Where a model drops out at random, that round is run without dropout.

**The same measure.** The first pass over all rounds is not timed, so that kernels are tuned, graphs captured
and workers started. Then come `--repeats` timed passes, the systems one after another in each of them. A time is
the seconds of a pass over its rounds; a ratio is taken within a pass, and shown as median (least to most).

**Every peer at its best.** Data are resident on the device; no peer shuffles, collates or copies in the timed part,
since each gets a client's epoch as one gathered tensor and slices it. See the docstring of each `*_system`
module for the choices made there. All systems use the same number of threads; Flower and pfl-workers, which work in
processes of their own, get as many of them with one thread each. `--world` passes arguments to fairlead's world, and
the result says which.

**Without installation.** On a machine where nothing can be installed, unpack the wheels of the peers into a
folder and give it as `--path FOLDER` (or as PYTHONPATH). pfl needs `pfl`, `multiprocess`, `dill`; FedLab needs
`fedlab`. Other packages that they import but that a round never calls (privacy accounting, image files,
readers of data sets; see `stand_ins`) are replaced by empty ones where they are missing, and the result says so.
Flower needs compiled packages and is reported as missing there.
"""
