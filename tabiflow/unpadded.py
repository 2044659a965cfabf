"""Encoders that compute a batch's real tokens alone, its rows one behind the other as one long row.

All but attention treats tokens apart, so only attention must know where rows end. Where a head
looks at rows' first tokens alone, so does the last layer once it has attended. Knows
architectures, neither tasks nor training.
"""

from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_MAPPING,
    AttentionInterface,
    PreTrainedConfig,
    PreTrainedModel,
)

from tabiflow.encoding import OFFSET_POSITIONS

ATTENTION = "sdpa_unpadded"
"""What transformers and a run's tag `attention` call it."""
KNOWN = frozenset({"bert", "camembert", "electra", "modernbert", "roberta", "xlm-roberta"})
"""Model types that were compared with what they compute of padded rows."""
FIRST = KNOWN - {"modernbert"}
"""Those of them whose classifiers look at rows' first tokens alone, and whose layers are done with
the others once they have attended: ModernBERT's add up whole rows after that."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Where a batch's real tokens are."""

    shape: torch.Size
    """[rows, longest]"""
    places: Tensor
    """[tokens], in the padded batch laid flat."""
    lengths: list[int]
    firsts: Tensor | None = None
    """[rows], where each begins in the long row, once only first tokens are looked at."""

    @classmethod
    def of(cls, mask: Tensor) -> "Rows":
        return cls(mask.shape, mask.flatten().nonzero().squeeze(1), mask.sum(dim=1).tolist())

    def first_tokens(self) -> "Rows":
        lengths = torch.tensor(self.lengths, device=self.places.device)
        return replace(self, firsts=lengths.cumsum(dim=0) - lengths)

    def behind(self, padded: Tensor) -> Tensor:
        """[rows, longest] -> [1, tokens]"""
        return padded.flatten()[self.places][None]

    def padded(self, states: Tensor) -> Tensor:
        """[1, tokens looked at, width] -> [rows, longest, width], zero where there is none."""
        width = states.shape[-1]
        places = self.places if self.firsts is None else self.places[self.firsts]
        flat = states.new_zeros(self.shape.numel(), width).index_copy(0, places, states[0])
        return flat.view(*self.shape, width)


def unpad(model: Module) -> bool:
    """Makes the encoder compute real tokens alone, for good, where its architecture allows it;
    says whether. What the model takes and gives is as before, but for hidden states that no head
    looks at, which are what its layers' end makes of zeros."""
    encoder = _encoder(model)
    if encoder is None or not _is_known(encoder):
        return False
    AttentionInterface.register(ATTENTION, _attention)
    encoder.set_attn_implementation(ATTENTION)
    encoder.register_forward_pre_hook(_without_padding, with_kwargs=True)
    last = _layers(encoder)[-1]
    if _looks_at_firsts(model, encoder):
        last.register_forward_pre_hook(_with_first_tokens, with_kwargs=True)
        last.get_submodule("attention").register_forward_hook(_first_states, with_kwargs=True)
    last.register_forward_hook(_with_padding, with_kwargs=True)
    return True


def is_unpadded(model: Module) -> bool:
    encoder = _encoder(model)
    return encoder is not None and encoder.config._attn_implementation == ATTENTION


def _encoder(model: Module) -> PreTrainedModel | None:
    found = (each for each in model.modules() if isinstance(each, PreTrainedModel))
    return next((each.base_model for each in found), None)


def _is_known(encoder: PreTrainedModel) -> bool:
    """The library's own code, not a repository's of the same name, and no decoder: those tokens
    see only what is before them."""
    config = encoder.config
    own = type(encoder) is MODEL_MAPPING.get(type(config), None)
    encodes = config.model_type in KNOWN and not getattr(config, "is_decoder", False)
    return own and encodes and config._attn_implementation == "sdpa"


def _looks_at_firsts(model: Module, encoder: PreTrainedModel) -> bool:
    """The library's own classifier alone: another's head may look at more."""
    classifier = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING.get(type(encoder.config), None)
    return type(model) is classifier and encoder.config.model_type in FIRST


def _layers(encoder: PreTrainedModel) -> ModuleList:
    wanted = encoder.config.num_hidden_layers
    lists = (each for each in encoder.modules() if isinstance(each, ModuleList))
    return next(each for each in lists if len(each) == wanted)


def _without_padding(
    encoder: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[()], dict[str, Any]]:
    """The same call over one long row. `rows` reaches layers and attention as an argument that
    encoders pass on."""
    told = signature(encoder.forward).bind_partial(*args).arguments | kwargs
    ids, rows = told["input_ids"], Rows.of(told.pop("attention_mask"))
    by_token = {**told, "position_ids": _positions(ids, encoder.config)}
    names = ("input_ids", "token_type_ids", "position_ids")
    found = {name: rows.behind(by_token[name]) for name in names if by_token.get(name) is not None}
    return (), {**told, **found, "rows": rows}


def _positions(ids: Tensor, config: PreTrainedConfig) -> Tensor:
    """What each token's position is in its own, padded row."""
    if config.model_type not in OFFSET_POSITIONS:
        return torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    # The padding id has no place of its own, wherever it stands.
    padding: int = config.pad_token_id
    counted = ids.ne(padding).long()
    return counted.cumsum(dim=1) * counted + padding


def _with_first_tokens(
    layer: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    rows: Rows = kwargs["rows"]
    return args, {**kwargs, "rows": rows.first_tokens()}


def _first_states(
    attention: Module, args: tuple[Any, ...], kwargs: dict[str, Any], found: tuple[Tensor, None]
) -> tuple[Tensor, None]:
    rows: Rows = kwargs["rows"]
    return found[0][:, rows.firsts], None


def _with_padding(
    layer: Module, args: tuple[Any, ...], kwargs: dict[str, Any], states: Tensor
) -> Tensor:
    rows: Rows = kwargs["rows"]
    return rows.padded(states)


def _attention(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    rows: Rows,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Each row by itself: [1, heads, tokens, width] each -> [1, tokens, heads, width], zero for
    tokens that are not looked at."""
    asking = None if rows.firsts is None else 1
    parts = (torch.split(states, rows.lengths, dim=2) for states in (query, key, value))
    found = [
        scaled_dot_product_attention(
            q[:, :, :asking], k, v, _window(q, sliding_window), dropout, scale=scaling
        )
        for q, k, v in zip(*parts, strict=True)
    ]
    states = torch.cat([each.transpose(1, 2) for each in found], dim=1)
    if rows.firsts is not None:
        states = torch.zeros_like(query.transpose(1, 2)).index_copy(1, rows.firsts, states)
    return states, None


def _window(states: Tensor, size: int | None) -> Tensor | None:
    """Which tokens see each other, fewer than `size` apart; None where all of a row do."""
    tokens = states.shape[2]
    if size is None or tokens <= size:
        return None
    place = torch.arange(tokens, device=states.device)
    return (place[:, None] - place).abs() < size
