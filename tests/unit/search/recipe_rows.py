"""Published recipes by hand, and by name from the catalog."""

from dataclasses import replace

from trainwright.search.published_recipe import PublishedRecipe, load_recipes, parse_recipe, render_row


def named(name: str) -> PublishedRecipe:
    """The catalog's recipe of this name; of several, the tuned one."""
    return max((each for each in load_recipes() if each.name == name), key=lambda each: each.tuned)


def recipe(**changes: object) -> PublishedRecipe:
    """A small recipe of Megatron-Bridge that states nothing but degrees, with some fields changed."""
    cells = render_row(
        {
            "name": "mine", "model": "llama3-8b", "workload": "pretrain", "tuned": True,
            "stack": "megatron-bridge", "device": "h100", "devices": 8, "ranks_per_device": 1, "seq": 8192,
            "global_batch": 128, "micro_batch": 1.0, "precision": "bf16", "tp": 1, "cp": 1, "pp": 1, "ep": 1,
            "replicas": 1, "date": "2026-08-22",
        }
    )  # fmt: skip
    return replace(parse_recipe(cells), **changes)  # type: ignore[arg-type]
