"""The layers of each pipeline stage of a published recipe, by its layout or its software's rule."""

import re

from trainwright.errors import BadInput
from trainwright.plan.stages import even_counts, stage_counts
from trainwright.search.published_recipe import PublishedRecipe

_GROUP = re.compile(r"\(([^()]*)\)\*(\d{1,6})")
_LAYER = re.compile(r"([A-Za-z])\*(\d{1,6})")
_PLAIN = re.compile(r"[EtmL|]*")
_LONGEST = 100_000  # letters of a layout that is written out


def parse_layout(text: str) -> tuple[str, ...]:
    """The stages of a layout of Megatron-Core: `Et*2|(t|)*2mL` is `Ett`, `t`, `t`, `mL`."""
    whole = text.replace(",", "")
    for pattern in (_LAYER, _GROUP):
        while (match := pattern.search(whole)) is not None:
            part, count = match[1], int(match[2])
            if len(whole) + len(part) * count > _LONGEST:
                rule = f"is longer than {_LONGEST:,} letters"
                raise BadInput("pipeline layout", text, rule, "write fewer layers")
            whole = whole[: match.start()] + part * count + whole[match.end() :]
    if not _PLAIN.fullmatch(whole) or not whole.startswith("E") or not whole.endswith("L"):
        rule = "is not stages of t and m from E to L"
        raise BadInput("pipeline layout", text, rule, "write it like Et*4|(t*4|)*14tmL")
    return tuple(whole.split("|"))


def recipe_chunks(recipe: PublishedRecipe) -> int:
    """Stages on each pipeline rank; a layout has the last word, as it has in Megatron-Core."""
    if recipe.layout and recipe.pp > 1:
        stages = len(parse_layout(recipe.layout))
        if stages % recipe.pp:
            rule = f"{stages} stages do not divide by pp = {recipe.pp}"
            raise BadInput(f'recipe "{recipe.name}": layout', recipe.layout, rule, "correct one of them")
        return stages // recipe.pp
    return (recipe.vpp or 1) if recipe.pp > 1 else 1


def recipe_stage_layers(recipe: PublishedRecipe, layers: int) -> tuple[int, ...]:
    """Layers of each stage in the order of the model; empty if the recipe does not say how they divide."""
    chunks = recipe.pp * recipe_chunks(recipe)
    if recipe.pp == 1:
        return (layers,)
    if recipe.layout:
        return tuple(stage.count("t") for stage in parse_layout(recipe.layout))
    if recipe.stage_rule == "embedding+loss":
        each, rest = divmod(layers + 2, chunks)
        return () if rest else (each - 1, *[each] * (chunks - 2), each - 1)
    if recipe.stage_rule == "first-full":  # as many as the fullest needs, from the first stage on
        each = -(-layers // chunks)
        return tuple(min(each, max(layers - each * stage, 0)) for stage in range(chunks))
    if recipe.stage_rule:
        return _with_ends(recipe, layers)
    each, rest = divmod(layers, chunks)
    return () if rest else (each,) * chunks


def _with_ends(recipe: PublishedRecipe, layers: int) -> tuple[int, ...]:
    """Layers where those of the first and the last stage are stated, without interleaving."""
    first, last = (int(text) for text in recipe.stage_rule.split("/"))
    middle = recipe.pp - 2
    each, rest = divmod(layers - first - last, middle) if middle else (0, layers - first - last)
    return () if rest or recipe_chunks(recipe) > 1 else (first, *[each] * middle, last)


def strategy_stage_layers(pp: int, vpp: int, layers: int) -> tuple[int, ...]:
    """Layers of each stage as a `Strategy` divides them."""
    return tuple(stage_counts(even_counts(layers, pp, vpp), tuple(range(pp)) * vpp))
