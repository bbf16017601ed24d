"""A language model of Hugging Face, fine-tuned by LoRA on reviews that five shops keep (needs the extra `hf`).

The model here is a tiny BERT with drawn weights, so that nothing is downloaded. For a real one, save it once where
there is a network:

    AutoModel.from_pretrained("bert-base-uncased").save_pretrained("model")
    AutoTokenizer.from_pretrained("bert-base-uncased").save_pretrained("model")
"""

import csv
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import fairlead as fl

GOOD, BAD = ("fine", "lovely", "sturdy", "quick"), ("broken", "late", "dull", "torn")
NEUTRAL = ("the", "box", "was", "and", "it", "came", "today", "again")


def save_model(folder: Path) -> None:
    """A tiny BERT and a tokenizer of whole words, in the form of `save_pretrained`."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ("[PAD]", "[UNK]", *GOOD, *BAD, *NEUTRAL)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(
        folder
    )
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=16, pad_token_id=0, **size)
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)


def write_reviews(file: Path) -> None:
    """Reviews of eight words, two of which tell; shops differ in their share of good ones."""
    draw = random.Random(0)
    with file.open("w", newline="", encoding="utf-8") as open_file:
        table = csv.writer(open_file)
        table.writerow(["shop", "text", "opinion"])
        for shop in range(5):
            for _ in range(60):
                is_good = draw.random() < 0.3 + 0.1 * shop
                words = draw.choices(NEUTRAL, k=6) + draw.choices(GOOD if is_good else BAD, k=2)
                draw.shuffle(words)
                table.writerow([f"shop {shop}", " ".join(words), "good" if is_good else "bad"])


def main(rounds: int = 30) -> float:
    with TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder / "model")
        write_reviews(folder / "reviews.csv")
        model = fl.HuggingFaceModel(str(folder / "model"), lora=fl.LoRA(r=4, alpha=8.0))
        tokens = fl.HuggingFaceTokenizer(str(folder / "model"), length=12)
        reviews = fl.CsvTable(
            str(folder / "reviews.csv"), features=["text"], target="opinion", client="shop", tokens=tokens
        )
        method = fl.Algorithm(fl.LocalSolver(fl.Adam(0.01), batch_size=16))
        experiment = fl.Experiment(reviews, method, rounds, fl.Task(model), evaluate_every=rounds)
        run = experiment.build()
        *_, record = run.train()
        trained = run.world.population.num_parameters
        everything = sum(value.numel() for value in run.model().parameters())
        print(
            f"{trained} of {everything} parameters are trained and sent, {record.bytes_up // 5} bytes by a client."
        )
        assert record.evaluation is not None
        accuracy = record.evaluation.metrics["accuracy"]
        print(f"round {rounds}: accuracy {accuracy:.3f}")
        return accuracy


if __name__ == "__main__":
    main()
