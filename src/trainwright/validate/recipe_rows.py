"""Published recipes that were tuned for speed, as rows of runs: what they state fits on their devices.

They have no measured step and no measured peak. That they were run bounds the memory of their stack from
above, on devices and at sizes for which no peak was published.
"""

from trainwright.errors import TrainwrightError
from trainwright.model.load import load_entry
from trainwright.search.published_recipe import PRECISION_OF, PublishedRecipe, load_recipes
from trainwright.search.recipe_defaults import fill_defaults
from trainwright.search.recipe_state import optimizer_name
from trainwright.search.recipe_strategy import strategy_of
from trainwright.validate.dataset import RAN
from trainwright.validate.rows import Row


def tuned_recipe_rows() -> tuple[Row, ...]:
    """A row for each tuned recipe that is a strategy on the devices that it states."""
    rows: list[Row] = []
    for recipe in load_recipes():
        if not recipe.tuned or recipe.workload == "lora" or recipe.offload_layers or not recipe.devices:
            continue
        try:
            rows.append(_row(recipe))
        except TrainwrightError:
            continue
    return tuple(rows)


def _row(recipe: PublishedRecipe) -> Row:
    model = load_entry(recipe.model).architecture
    found, filled = strategy_of(recipe), fill_defaults(recipe, model)[0]
    strategy = found.strategy
    if strategy.offload != "none":
        raise TrainwrightError(f"{recipe.name} offloads")
    knobs = ("dp", "tp", "pp", "vpp", "cp", "ep", "micro_batch", "zero")
    return {
        "id": recipe.name,
        "source": f"{recipe.stack} recipes",
        "outcome": RAN,
        "framework": recipe.stack,
        "hardware": recipe.device,
        "gpus": str(recipe.devices),
        "model": recipe.model,
        "layers": str(model.layers),
        "hidden": str(model.hidden),
        "heads": str(model.heads),
        "vocab": str(model.vocab),
        "seq_len": str(found.seq or model.max_seq),
        "global_batch": str(found.global_batch),
        **{name: str(getattr(strategy, name)) for name in knobs},
        "sequence_parallel": str(int(strategy.sp)),
        "recompute": strategy.recompute,
        "recompute_detail": _layers(strategy.recompute_layers),
        "precision": PRECISION_OF[filled.precision],
        "optimizer": optimizer_name(filled),
        "grad_dtype": filled.grad_dtype,
        "other_knobs": "fused cross entropy" if filled.other.get("cross_entropy") == "te" else "",
    }


def _layers(count: int) -> str:
    return f"num_layers={count}" if count else ""
