"""Typed reading of a Hugging Face configuration, with errors that name the field and the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.errors import BadInput

Fields = dict[str, Any]  # of Architecture
_MOST_RATE = 1e9  # what is not below it is a mistake, or not a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The values of one configuration and where they came from; `seen` are the keys that were read."""

    values: Mapping[str, Any]
    source: str
    seen: set[str] = field(default_factory=set, compare=False, repr=False)
    parts: "dict[str, Config]" = field(default_factory=dict, compare=False, repr=False)

    def _find(self, name: str) -> Any:
        self.seen.add(name)
        return self.values.get(name)

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number; `null` and absent mean the default, and without one are an error."""
        value = self._find(name)
        if value is None:
            value = default
        if value is None:
            raise BadInput(f"{self.source}: field", name, "is missing", f"add {name} to the configuration")
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadInput(f"{self.source}: {name}", value, "must be a whole number", "correct it")
        return value

    def first(self, *names: str) -> int:
        """A whole number under the first of several names that is present."""
        present = [name for name in names if self.values.get(name) is not None]
        return self.whole(present[0] if present else names[0])

    def flag(self, name: str, default: bool) -> bool:
        """True or false; `null` and absent mean the default."""
        value = self._find(name)
        if value is not None and not isinstance(value, bool):
            raise BadInput(f"{self.source}: {name}", value, "must be true or false", "correct it")
        return default if value is None else value

    def rate(self, name: str, default: float) -> float:
        """A number such as a dropout probability; `null` and absent mean the default."""
        value = self._find(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise BadInput(f"{self.source}: {name}", value, "must be a number", "correct it")
        if value is not None and not abs(value) < _MOST_RATE:
            raise BadInput(f"{self.source}: {name}", value, "is no such rate", "correct it")
        return default if value is None else float(value)

    def word(self, name: str, default: str) -> str:
        """A text; `null` and absent mean the default."""
        value = self._find(name)
        if value is not None and not isinstance(value, str):
            raise BadInput(f"{self.source}: {name}", value, "must be text", "correct it")
        return default if value is None else value

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, at least one."""
        value = self._find(name)
        if value is None:
            raise BadInput(f"{self.source}: field", name, "is missing", f"add {name} to the configuration")
        if not isinstance(value, list | tuple) or not value or any(type(each) is not int for each in value):
            raise BadInput(f"{self.source}: {name}", str(value), "must be whole numbers", "correct it")
        return tuple(value)

    def part(self, name: str) -> "Config":
        """A nested configuration."""
        value = self._find(name)
        if value is None:
            raise BadInput(f"{self.source}: field", name, "is missing", f"add {name} to the configuration")
        if not isinstance(value, Mapping):
            rule = "must be a table of settings"
            raise BadInput(f"{self.source}: {name}", str(value)[:80], rule, "correct it")
        if name not in self.parts:
            self.parts[name] = Config(values=value, source=f"{self.source}: {name}")
        return self.parts[name]


def text_part(config: Config) -> Config:
    """The text model of a multimodal configuration, whose embeddings may be said to be tied outside of it."""
    part = config.part("text_config")
    outer = config.values.get("tie_word_embeddings")
    config.seen.add("tie_word_embeddings")
    if outer is None:
        return part
    if part.flag("tie_word_embeddings", outer) != outer:
        rule = "differs from that of text_config"
        raise BadInput(f"{config.source}: tie_word_embeddings", outer, rule, "correct one of them")
    values = {**part.values, "tie_word_embeddings": outer}
    config.parts["text_config"] = Config(values=values, source=part.source)
    return config.parts["text_config"]


# Long contexts come in a short last phase of training; before it, sequences have at most this many tokens.
PLANNED_SEQ = 8192


def sizes(config: Config, *, ffn: bool = True) -> Fields:
    """The sizes that most configurations name alike."""
    fields: Fields = {
        "layers": config.whole("num_hidden_layers"),
        "hidden": config.whole("hidden_size"),
        "heads": config.whole("num_attention_heads"),
        "vocab": config.whole("vocab_size"),
        "max_seq": min(config.whole("max_position_embeddings", PLANNED_SEQ), PLANNED_SEQ),
    }
    return fields | ({"ffn": config.whole("intermediate_size")} if ffn else {})


def llama_like(config: Config, *, tied: bool = False) -> Fields:
    """Sizes of a decoder with RMS norm, rotary positions, grouped queries and a gated ffn."""
    return sizes(config) | {
        "kv_heads": config.whole("num_key_value_heads", config.whole("num_attention_heads")),
        "head_dim": config.whole("head_dim", 0),
        "gated": True,
        "tied": config.flag("tie_word_embeddings", tied),
    }


def biased(with_bias: bool = True) -> Fields:
    """Layer norms, and biases on every matmul of a layer if `with_bias`."""
    return {"norm": "layer", "qkv_bias": with_bias, "output_bias": with_bias, "mlp_bias": with_bias}
