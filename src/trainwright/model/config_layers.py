"""Which layers of a decoder attend to a window only, as a list of layer types says."""

from trainwright.errors import BadInput
from trainwright.model.config_fields import Config, Fields

_WHOLE = ("full_attention", "attention", "global_attention", "global")
_WINDOWED = ("sliding_attention", "chunked_attention", "local_attention", "local", "sliding_window")


def with_layer_types(config: Config, fields: Fields) -> Fields:
    """The fields of a decoder, with the window of each layer as `layer_types` has it, if that is there."""
    types = config.values.get("layer_types")
    config.seen.add("layer_types")
    if types is None or "layers" not in fields:
        return fields
    thing = f"{config.source}: layer_types"
    layers = fields["layers"]
    texts = isinstance(types, list | tuple) and all(isinstance(each, str) for each in types)
    if not texts or len(types) < layers:
        raise BadInput(thing, str(types)[:80], f"must be a list of {layers} types", "correct it")
    for each in types[:layers]:
        if each not in (*_WHOLE, *_WINDOWED):
            raise BadInput(thing, each, "is a layer that is not modelled", "describe the model in TOML")
    whole = [index for index, each in enumerate(types[:layers]) if each in _WHOLE]
    config.seen.add("sliding_window")
    if len(whole) == layers:
        return fields | {"window": 0, "global_every": 0}
    window = fields.get("window") or config.whole("sliding_window", 0)
    if not window:
        raise BadInput(thing, "sliding_attention", "needs a sliding_window", "add sliding_window")
    return fields | {"window": window, "global_every": _every(whole, layers, thing)}


def _every(whole: list[int], layers: int, thing: str) -> int:
    """Of which layers every nth attends to everything; 0 if none does."""
    if not whole:
        return 0
    every = whole[0] + 1
    if whole != [index for index in range(layers) if (index + 1) % every == 0]:
        rule = "is no pattern in which every nth layer attends to everything"
        raise BadInput(thing, f"layers {whole}"[:80], rule, "describe the model in TOML")
    return every
