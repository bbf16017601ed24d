"""Ten lines: unequal clients, one method, and whether it optimized what it was asked to."""

import fairlead as fl


def main(rounds: int = 30) -> fl.Federation:
    data = fl.Digits(num_clients=20, partition=fl.DirichletPartitioner(alpha=0.3)).load(fl.Key.from_seed(0))
    task, work, link = fl.Task(fl.MLP(hidden=(32,))), fl.RandomEpochs(1, 8), fl.UniformBernoulliLink(0.0, 0.6)
    world = fl.SimulatedWorld(task, data.train, test=data.test, work=work, link=link)
    run = fl.Federation(fl.presets.fednova(lr=0.1, cohort_size=10), world, seed=0)
    for record in run.train(rounds, evaluate_every=10):
        if record.evaluation:
            print(f"round {record.round + 1}: accuracy {record.evaluation.metrics['accuracy']:.3f}")
    print(run.consistency())
    return run


if __name__ == "__main__":
    main()
