"""The page's spec of texts, a tokenizer and a model with LoRA, from the command line to the exported model."""

from __future__ import annotations

import csv
import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import FairleadError

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")
ROOT = Path(__file__).parents[2]
(SPEC,) = (
    block
    for block in re.findall(
        r"^```toml\n(.*?)^```$",
        (ROOT / "docs/models.md").read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    if "HuggingFaceModel" in block
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the spec of the page, and the model and reviews of the example."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.delitem(sys.modules, "lora", raising=False)
    lora = importlib.import_module("lora")
    lora.save_model(tmp_path / "model")
    lora.write_reviews(tmp_path / "reviews.csv")
    (tmp_path / "spec.toml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fairlead(*arguments: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output


def test_the_pool_has_the_tokens_of_the_words(folder: Path) -> None:
    """By a look-up in the list of words that the tokenizer was made of."""
    lora = importlib.import_module("lora")
    words = ("[PAD]", "[UNK]", *lora.GOOD, *lora.BAD, *lora.NEUTRAL)
    source = fl.load_experiment("spec.toml").clients
    assert isinstance(source, fl.CsvTable)
    pool = source.pool()
    with (folder / "reviews.csv").open(encoding="utf-8") as file:
        texts = [row["text"].split() for row in csv.DictReader(file)]
    by_hand = [[words.index(word) for word in text] + [0] * (12 - len(text)) for text in texts]
    assert pool.inputs.tolist() == by_hand
    tokenizer = fl.HuggingFaceTokenizer("model", length=3)
    assert tokenizer.encode(["fine parcel", "the box was late"]).tolist() == [[2, 1, 0], [10, 11, 12]]
    assert (tokenizer.vocabulary, tokenizer.padding) == (len(words), 0)


def test_a_spec_runs_and_its_model_is_exported_in_full(folder: Path) -> None:
    fairlead("run", "spec.toml", "--rounds", "2", "-o", "run", "--quiet")
    kept, model = load_file("run/model.safetensors"), fl.load_model("run").eval()
    assert 0 < len(kept) < len(model.state_dict())
    fairlead("export", "run", "-o", "whole.safetensors")
    fairlead("export", "run", "-o", "whole.pt")
    whole = load_file("whole.safetensors")
    assert whole.keys() == model.state_dict().keys()
    for name, value in torch.load("whole.pt").items():
        assert torch.equal(whole[name], value)
        assert torch.equal(whole[name], kept.get(name, value))
    # The exported numbers make a module that computes the same.
    rebuilt = fl.load_experiment("run/spec.toml").build().model().eval()
    tokens = fl.HuggingFaceTokenizer("model", length=12).encode(["the box was broken", "lovely and quick"])
    before = rebuilt(tokens)
    rebuilt.load_state_dict(whole)
    assert torch.equal(rebuilt(tokens), model(tokens))
    assert not torch.equal(before, model(tokens))
    assert "LoRA" in Path("whole.safetensors.md").read_text(encoding="utf-8")


def test_a_spec_with_a_name_of_the_hub_is_refused_in_a_sentence(folder: Path) -> None:
    for field in ("task.model.path", "clients.tokens.path"):
        with pytest.raises(FairleadError, match="a local folder of save_pretrained"):
            fl.load_experiment("spec.toml", [f"{field}=bert-base-uncased"]).build()
