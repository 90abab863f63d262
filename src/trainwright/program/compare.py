"""What a program gave beside what the unsplit model gives."""

from collections.abc import Iterator, Mapping

import numpy as np

from trainwright.program.holdings import Held, Holdings
from trainwright.program.interpret import Outcome
from trainwright.program.labelled import Array
from trainwright.program.reference import Answer, weight_key

TOLERANCE = 1e-9
_There = dict[tuple[str, str, bytes], Array]  # of each part of a weight: what of it is held


def differences(outcome: Outcome, answer: Answer) -> list[str]:
    """Where they differ: the loss, or a gradient or a new weight of an op on a device. Equal if empty."""
    found = []
    if not abs(outcome.loss - answer.loss) <= TOLERANCE:
        found.append(f"loss is {outcome.loss}, not {answer.loss}")
    there: _There = {}
    for held in outcome.holdings:
        found += _wrong(held, "gradient", held.gradients, answer.gradients, there)
        found += _wrong(held, "new weight", held.weights, answer.weights, there)
    found += [
        f"{what} of {key} is on no device as a whole" for (what, key, _), at in there.items() if not at.all()
    ]
    return found


def _wrong(
    held: Holdings, what: str, state: Held, right: Mapping[str, Array], there: _There
) -> Iterator[str]:
    """What devices hold that is not right; `there` gathers which parts of each weight are held at all."""
    sharded = _sharded(held, "gradients" if what == "gradient" else "weights")
    for weight, arrays in state.items():
        if held.owners[weight] != weight:
            continue
        instance = held.data.instances[weight[0]]
        tensor = next(each for each in instance.op.weights if each.name == weight[1])
        key = weight_key(held.data.graph, instance, tensor)
        for device, array in arrays.items():
            places = held.places[weight][device]
            wanted, absent = right[key][np.ix_(*places.values())], np.isnan(array)
            part = (what, key, b" ".join(each.tobytes() for each in places.values()))
            there[part] = there.get(part, np.zeros(array.shape, dtype=bool)) | ~absent
            wrong = ~absent & ~(np.abs(array - wanted) <= TOLERANCE)
            if wrong.any() or (absent.any() and weight not in sharded):
                yield f"{what} of {weight[1]} of {instance.name} is wrong on device {device}"


def _sharded(held: Holdings, what: str) -> set[tuple[int, str]]:
    """Weights of which no device need hold all of some state."""
    names = (what, "optimizer") if what == "gradients" else (what,)
    return {
        weight
        for bundle in held.program.routes[held.route].bundles
        for weight in bundle.weights
        if any(name in bundle.shards for name in names)
    }
