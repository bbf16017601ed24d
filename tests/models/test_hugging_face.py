"""Models of Hugging Face from tiny local folders, LoRA, and frozen parameters of any module."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fairlead as fl
from fairlead.client_table import ClientTable
from fairlead.clients.data import ClientData
from fairlead.errors import FairleadError
from fairlead.models.base import ExampleShape
from fairlead.parameters import FlatModule

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

SHAPE = ExampleShape((8,), 3, 64)
SMALL = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of `save_pretrained`, with drawn weights."""
    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("pretrained")
    longest = {"max_position_embeddings": 16}
    bert = transformers.BertConfig(**SMALL, **longest, intermediate_size=32)
    transformers.BertModel(bert).save_pretrained(root / "bert")
    gpt2 = transformers.GPT2Config(
        vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=16, eos_token_id=0, bos_token_id=0
    )
    transformers.GPT2LMHeadModel(gpt2).save_pretrained(root / "gpt2")
    return root


def clients() -> ClientData:
    draw = torch.Generator().manual_seed(1)
    inputs = [torch.randint(1, 64, (8 + i, 8), generator=draw) for i in range(4)]
    for rows in inputs:
        rows[::2, 5:] = 0
    return ClientData.from_lists(inputs, [rows[:, 0] % 3 for rows in inputs])


def lora(folders: Path, kind: str = "bert") -> fl.HuggingFaceModel:
    return fl.HuggingFaceModel(str(folders / kind), lora=fl.LoRA(r=2, alpha=4.0), padding=0)


def trained(world: fl.SimulatedWorld, algorithm: fl.Algorithm, rounds: int = 2) -> fl.Federation:
    run = fl.Federation(algorithm, world)
    for _ in run.train(rounds):
        pass
    return run


def test_adapters_compute_the_published_sum(folders: Path) -> None:
    """W x + (alpha/r) B A x, by hand in one layer, with B drawn instead of 0."""
    module = lora(folders).build(SHAPE)
    layer = next(part for part in module.modules() if isinstance(part, peft.tuners.lora.Linear))
    up, down = layer.lora_B["default"].weight, layer.lora_A["default"].weight
    nn.init.normal_(up)
    x = torch.randn(5, 16)
    by_hand = layer.base_layer(x) + 4.0 / 2 * x @ down.T @ up.T
    torch.testing.assert_close(layer(x), by_hand)


def test_only_adapters_and_head_are_trained(folders: Path) -> None:
    """Two layers, queries and values: 4 adapters of 2·(16 + 16) numbers, and a head of 16·3 + 3."""
    # In float64, since A moves by less than float32 can tell while B is still small.
    world = fl.SimulatedWorld(fl.Task(lora(folders)), clients(), dtype=torch.float64)
    assert world.population.num_parameters == 4 * 2 * 32 + 51
    start = fl.Federation(fl.presets.fedavg(lr=0.5), world).model().state_dict()
    end = trained(world, fl.presets.fedavg(lr=0.5)).model().state_dict()
    changed = {name for name in start if not torch.equal(start[name], end[name])}
    assert changed == set(world.objective.model.names)
    assert all("lora_" in name or "classifier.modules_to_save" in name for name in changed)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("adapted", [True, False])
def test_lanes_and_loop_agree(folders: Path, kind: str, adapted: bool) -> None:
    model = lora(folders, kind) if adapted else fl.HuggingFaceModel(str(folders / kind), padding=0)
    found = [
        trained(fl.SimulatedWorld(fl.Task(model), clients(), engine=engine), fl.presets.fedavg(lr=0.1)).params
        for engine in ("loop", "batched")
    ]
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


def test_a_mask_that_hides_nothing_changes_no_number(folders: Path) -> None:
    module = fl.HuggingFaceModel(str(folders / "bert"), padding=0).build(SHAPE).eval()
    assert isinstance(module.model, nn.Module)
    tokens = torch.randint(1, 64, (3, 8), generator=torch.Generator().manual_seed(2))
    plain = module.model(input_ids=tokens, attention_mask=None).logits
    assert torch.equal(module(tokens), plain)


def test_padding_does_not_reach_the_outputs(folders: Path) -> None:
    module = fl.HuggingFaceModel(str(folders / "bert"), padding=0).build(SHAPE).eval()
    tokens = torch.randint(1, 64, (3, 5), generator=torch.Generator().manual_seed(2))
    padded = torch.cat([tokens, torch.zeros(3, 3, dtype=torch.int64)], 1)
    torch.testing.assert_close(module(padded), module(tokens))


def test_frozen_parameters_are_read_from_the_folder(folders: Path) -> None:
    saved = transformers.BertModel.from_pretrained(folders / "bert").state_dict()
    built = dict(lora(folders).build(SHAPE).named_parameters())
    name = "model.base_model.model.bert.encoder.layer.0.intermediate.dense.weight"
    assert torch.equal(built[name], saved["encoder.layer.0.intermediate.dense.weight"])
    assert not built[name].requires_grad


@pytest.mark.parametrize(
    "algorithm",
    [
        fl.presets.fedaware(lr=0.1),
        fl.presets.scaffold(lr=0.1),
        fl.presets.fedper(lr=0.1),
        fl.presets.ditto(lr=0.1, mu=0.1),
    ],
    ids=["fedaware", "scaffold", "fedper", "ditto"],
)
def test_memory_holds_trained_parameters_alone(folders: Path, algorithm: fl.Algorithm) -> None:
    world = fl.SimulatedWorld(fl.Task(lora(folders)), clients())
    run = trained(world, algorithm)
    dim = world.population.num_parameters
    parts = [run.state.memory, run.state.aggregator, *run.state.transforms]
    widths = {part.dim for state in parts for part in state.values() if isinstance(part, ClientTable)}
    assert dim in widths
    # FedAWARE also keeps the products of the clients' rows, one for each pair.
    assert widths <= {1, dim, world.population.num_clients}
    assert bool(run.params.isfinite().all())


class TestAnyFrozenModule:
    """A user's backbone, frozen by `requires_grad_(False)`."""

    def module(self) -> nn.Sequential:
        torch.manual_seed(3)
        module = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
        module[0].requires_grad_(False)
        return module

    def data(self) -> ClientData:
        draw = torch.Generator().manual_seed(4)
        inputs = [torch.randn(10, 6, generator=draw) for _ in range(3)]
        return ClientData.from_lists(inputs, [rows[:, 0].gt(0).long() for rows in inputs])

    def test_training_is_that_of_the_head_on_features(self) -> None:
        """The oracle: the head alone, trained on the outputs of the backbone."""
        module, data = self.module(), self.data()
        features = ClientData(module[1](module[0](data.inputs)).detach(), data.targets, data.offsets)
        for engine in ("loop", "auto", "batched"):
            world = fl.SimulatedWorld(fl.Task(module), data, engine=engine)
            of_head = fl.SimulatedWorld(fl.Task(module[2]), features, engine="loop")
            whole, head = (trained(each, fl.presets.fedavg(lr=0.3)) for each in (world, of_head))
            torch.testing.assert_close(whole.params, head.params)
            assert world.payload(whole.algorithm.solver) == of_head.payload(head.algorithm.solver)

    def test_the_digest_tells_frozen_numbers_apart(self) -> None:
        flat, other = FlatModule(self.module()), self.module()
        nn.init.zeros_(next(other.parameters()))
        digest = flat.frozen_digest(torch.float32)
        assert digest == FlatModule(self.module()).frozen_digest(torch.float32)
        assert digest != FlatModule(other).frozen_digest(torch.float32)
        assert FlatModule(nn.Linear(2, 2)).frozen_digest(torch.float32) == ""


def experiment(folders: Path) -> fl.Experiment:
    data = clients()
    return fl.Experiment(
        clients=fl.InMemory(data), task=fl.Task(lora(folders)), algorithm=fl.presets.fedavg(lr=0.1), rounds=3
    )


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def test_kept_models_leave_frozen_parameters_out_and_load_in_full(folders: Path, tmp_path: Path) -> None:
    run = fl.run_experiment(experiment(folders), tmp_path / "run")
    from safetensors.torch import load_file

    kept: dict[str, Tensor] = load_file(tmp_path / "run" / "model.safetensors")
    model = run.federation.model()
    assert kept.keys() == {name for name, p in model.named_parameters() if p.requires_grad}
    assert same(fl.load_model(tmp_path / "run"), model)
    exported = fl.export_model(tmp_path / "run", tmp_path / "model.safetensors")
    assert load_file(exported.file).keys() == model.state_dict().keys()


def test_an_interrupted_run_resumes_to_the_same_bits(folders: Path, tmp_path: Path) -> None:
    def stop(record: fl.RoundRecord) -> None:
        if record.round == 1:
            raise KeyboardInterrupt

    whole = fl.run_experiment(experiment(folders), tmp_path / "whole").federation
    with pytest.raises(KeyboardInterrupt):
        fl.run_experiment(experiment(folders), tmp_path / "cut", checkpoint_every=1, on_round=stop)
    resumed = fl.run_experiment(experiment(folders), tmp_path / "cut", resume=True).federation
    assert torch.equal(resumed.params, whole.params)
    assert same(fl.load_model(tmp_path / "cut"), fl.load_model(tmp_path / "whole"))


def test_changed_frozen_parameters_are_refused(folders: Path, tmp_path: Path) -> None:
    copied = tmp_path / "pretrained"
    shutil.copytree(folders, copied)
    fl.run_experiment(experiment(copied), tmp_path / "run")
    model = transformers.BertModel.from_pretrained(copied / "bert")
    nn.init.zeros_(model.encoder.layer[0].intermediate.dense.weight)
    model.save_pretrained(copied / "bert")
    with pytest.raises(FairleadError, match="not those of the run"):
        fl.load_model(tmp_path / "run")


def test_bad_paths_and_targets_are_refused_in_one_sentence(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(FairleadError, match="nothing is downloaded"):
        fl.HuggingFaceModel("bert-base-uncased").build(SHAPE)
    with pytest.raises(FairleadError, match=r"LoRA\.target_modules do not fit"):
        fl.HuggingFaceModel(str(folders / "bert"), lora=fl.LoRA(target_modules=("nothing",))).build(SHAPE)
    with pytest.raises(FairleadError, match="vocab_size = 64, and the data need 65"):
        lora(folders).build(ExampleShape((8,), 3, 65))
    with pytest.raises(FairleadError, match="needs tokens"):
        lora(folders).build(ExampleShape((8,), 3, None))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(FairleadError, match="cannot be read by transformers"):
        fl.HuggingFaceModel(str(tmp_path)).build(SHAPE)
