"""Models of Hugging Face from a local folder, trained in full or by LoRA adapters."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from fairlead.component import BelowOne, Component, NaturalNumber, Positive, PositiveCount
from fairlead.errors import (
    ClashError,
    DataError,
    FieldError,
    field_error,
    one_line,
    optional_package,
    require_instance,
)
from fairlead.models.base import ExampleShape, Model

LanguageTask = Literal["sequence classification", "token classification", "causal language model"]
_KINDS = {
    "sequence classification": ("AutoModelForSequenceClassification", "SEQ_CLS"),
    "token classification": ("AutoModelForTokenClassification", "TOKEN_CLS"),
    "causal language model": ("AutoModelForCausalLM", "CAUSAL_LM"),
}
"""The classes of transformers, and the names of peft."""
_HEADS = ("classifier", "score")
"""Modules that peft trains in full for classification."""

_LIBRARY_ERRORS = (OSError, ValueError, LookupError, RuntimeError, TypeError, AttributeError, ImportError)
"""What transformers raises for a folder with damaged or missing files."""


@dataclass(frozen=True)
class LoRA(Component):
    """Low-rank adapters beside frozen weights.

        W x + (alpha/r) B A x,   A ∈ ℝ^(r×inputs), B ∈ ℝ^(outputs×r), of which B starts at 0

    Symbols: W a frozen weight of each of the `target_modules`, by the last part of their names (empty: those that peft
    knows for the architecture, in BERT the queries and values of attention); x goes through `dropout` first.
    """

    r: PositiveCount = 8
    alpha: Positive = 16.0
    target_modules: tuple[str, ...] = ()
    _: KW_ONLY
    dropout: BelowOne = 0.0

    references = ("hu2022lora",)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.target_modules
        if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
            raise field_error(self, "target_modules", "a list of names", names)


@dataclass(frozen=True)
class HuggingFaceModel(Model):
    """A model of Hugging Face from a folder of `save_pretrained`; needs transformers and peft (the extra `hf`).

    Nothing is downloaded: `AutoModel.from_pretrained(name).save_pretrained(path)` once makes the folder, with weights
    as safetensors. `task` chooses the head: one output per class of the data for a sequence or for each token, or the
    logits of the next token. With `lora`, only the adapters, the head of a classifier and parameters that the folder
    lacks are trained, sent, averaged and stored; all others are frozen, and loaded once. Without it everything is.
    `padding` is the token that attention ignores (None: that of the model's config, else its end-of-text token). With
    `pretrained=False` only the config is read, and weights are drawn: frozen ones are the same for every seed.

    The forward pass uses plain attention, whose dropout can be replayed and which runs in lanes.
    """

    path: str
    task: LanguageTask = "sequence classification"
    lora: LoRA | None = None
    _: KW_ONLY
    padding: NaturalNumber | None = None
    pretrained: bool = True

    @property
    def copies(self) -> int:
        # Reading the folder registers every parameter twice; frozen ones are copied once.
        return 1 if self.lora else super().copies // 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_instance(self, "path", self.path, str)

    def build(self, shape: ExampleShape) -> nn.Module:
        folder, name = saved_folder(self, self.path, "config.json"), type(self).__name__
        transformers = hugging_face("transformers", name)
        if len(shape.inputs) != 1 or shape.tokens is None:
            raise ClashError(
                f"{name} needs tokens, whole numbers of shape (length,), got shape {shape.inputs}."
            )
        classes = {} if self.task == "causal language model" else {"num_labels": shape.outputs}
        with quiet_reading(folder, transformers):
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, **classes)
        limits = {"vocab_size": shape.tokens, "max_position_embeddings": shape.inputs[0]}
        for field, needed in limits.items():
            if isinstance(most := getattr(config, field, None), int) and most < needed:
                raise ClashError(
                    f"{name}.path: the model has {field} = {most}, and the data need {needed}: use the tokenizer of "
                    "the model, with a smaller length."
                )
        ids = (self.padding, config.pad_token_id, config.eos_token_id)
        padding = next((id for id in ids if isinstance(id, int)), None)
        config.pad_token_id = padding
        with quiet_reading(folder, transformers):
            model, fresh = self._loaded(transformers, folder, config)
        if self.lora is not None:
            model = self._with_adapters(self.lora, model, fresh)
        return TokenLogits(model, padding)

    def _loaded(self, transformers: Any, folder: Path, config: Any) -> tuple[nn.Module, set[str]]:
        """The model, and its modules of which the folder has no weights, or weights for other classes."""
        how = {"attn_implementation": "eager", "dtype": torch.float32}
        # The library skips a mask that hides nothing, which it finds by reading values: lanes cannot do that.
        transformers.AttentionMaskInterface.register("eager", _mask)
        source = getattr(transformers, _KINDS[self.task][0])
        if not self.pretrained:
            return source.from_config(config, **how), {*_HEADS}
        model, found = source.from_pretrained(
            folder,
            config=config,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **how,
        )
        names = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
        return model, {name.rpartition(".")[0] for name in names}

    def _with_adapters(self, lora: LoRA, model: nn.Module, fresh: set[str]) -> nn.Module:
        peft = hugging_face("peft", type(self).__name__)
        under_heads = {name for name in fresh if name.split(".")[0] in _HEADS}
        config = peft.LoraConfig(
            task_type=_KINDS[self.task][1],
            r=lora.r,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=list(lora.target_modules) or None,
            modules_to_save=sorted(fresh - under_heads) or None,
        )
        with warnings.catch_warnings():
            # Transposed weights, as in GPT-2, are found by themselves.
            warnings.filterwarnings("ignore", message="fan_in_fan_out")
            try:
                adapted: nn.Module = peft.get_peft_model(model, config)
            except ValueError as error:
                raise FieldError(f"LoRA.target_modules do not fit {self.path}: {one_line(error)}.") from error
        for part in adapted.modules() if fresh else ():
            if isinstance(part, peft.utils.ModulesToSaveWrapper):
                # The unused original of a drawn head, which would differ between machines.
                for parameter in part.original_module.parameters():
                    nn.init.zeros_(parameter)
        return adapted


class TokenLogits(nn.Module):
    """Tokens (batch, length) to the logits of a model of Hugging Face, which attends to all tokens but padding."""

    def __init__(self, model: nn.Module, padding: int | None) -> None:
        super().__init__()
        self.model, self.padding = model, padding

    def forward(self, tokens: Tensor) -> Tensor:
        mask = None if self.padding is None else (tokens != self.padding).to(tokens.dtype)
        logits: Tensor = self.model(input_ids=tokens, attention_mask=mask).logits
        return logits


def _mask(**facts: Any) -> Tensor:
    """The library's own mask, written out even where it is zero: adding it changes no number."""
    masks = import_module("transformers.masking_utils")
    mask: Tensor = masks.eager_mask(**{**facts, "allow_is_bidirectional_skip": False})
    return mask


def hugging_face(library: str, user: str) -> Any:
    """A library of Hugging Face, imported on use."""
    install = "pip install 'transformers>=5,<6' 'peft>=0.18,<1'"
    return optional_package(library, f"{user} needs the package {library}: {install}.")


def saved_folder(part: Component, path: str, file: str) -> Path:
    """A local folder of `save_pretrained` that holds this file; the name of a model on the Hub is refused."""
    folder = Path(path).expanduser()
    if not (folder / file).is_file():
        raise field_error(
            part,
            "path",
            f"a local folder of save_pretrained, with {file} (nothing is downloaded: run from_pretrained(NAME)"
            ".save_pretrained(FOLDER) once where there is a network)",
            path,
        )
    return folder


@contextmanager
def quiet_reading(folder: Path, transformers: Any) -> Iterator[None]:
    """Without the library's progress bars and reports; errors of damaged files as one sentence."""
    logs = transformers.utils.logging
    verbosity, had_bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        yield
    except (*_LIBRARY_ERRORS, SafetensorError) as error:
        raise DataError(f"{folder} cannot be read by transformers: {one_line(error)}.") from error
    finally:
        logs.set_verbosity(verbosity)
        if had_bars:
            logs.enable_progress_bar()
