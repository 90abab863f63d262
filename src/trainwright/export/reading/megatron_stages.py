"""How Megatron-LM's flags cut the layers of a model into pipeline stages and their chunks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.errors import BadInput
from trainwright.export.pipeline_layout import PipelineLayout, parse_layout, render_layers
from trainwright.export.reading.launch_flags import Flags
from trainwright.export.stage_layers import predicted_layers

_MOST_CHUNKS = 4096
ACCOUNTED = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
ENDS = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSplit:
    """Chunks per stage, and the layers of each chunk in the order of the model if they are known."""

    vpp: int
    layers: tuple[int, ...] = ()
    layout: PipelineLayout | None = None


def read_split(flags: Flags, pp: int, layers: int | None) -> PipelineSplit:
    """The split that the flags state; counts that do not divide are left out, and the rules name them."""
    name = "pipeline-model-parallel-layout"
    if flags.has(name):
        layout = parse_layout(flags.word(name, ""), f"{flags.source}: --{name}")
        if len(layout.chunks) % pp:
            rule = f"has {len(layout.chunks)} chunks, which {pp} stages do not divide"
            raise BadInput(f"{flags.source}: --{name}", flags.word(name, ""), rule, "correct it")
        return PipelineSplit(vpp=len(layout.chunks) // pp, layers=layout.layers, layout=layout)
    vpp = _chunks(flags, pp, layers)
    if vpp < 1:
        raise BadInput(f"{flags.source}: chunks of a stage", vpp, "degrees start at 1", "use 1 or more")
    if vpp * pp > _MOST_CHUNKS:
        rule = f"makes more than {_MOST_CHUNKS} chunks"
        raise BadInput(f"{flags.source}: chunks of the pipeline", vpp * pp, rule, "correct it")
    return PipelineSplit(vpp=vpp, layers=_stated_layers(flags, pp, vpp, layers) if layers else ())


def _chunks(flags: Flags, pp: int, layers: int | None) -> int:
    if flags.has("num-virtual-stages-per-pipeline-rank"):
        return flags.whole("num-virtual-stages-per-pipeline-rank")
    name = "num-layers-per-virtual-pipeline-stage"
    if not flags.has(name):
        return 1
    each = flags.whole(name)
    total = layers + sum(flags.has(one) for one in ACCOUNTED) if layers else 0
    if not total or not each or total % (pp * each):
        rule = "does not divide the layers of a stage, or --num-layers is missing"
        raise BadInput(f"{flags.source}: --{name}", each, rule, "correct it")
    return total // (pp * each)


def _stated_layers(flags: Flags, pp: int, vpp: int, layers: int) -> tuple[int, ...]:
    """Layers of each chunk where flags make ends differ; none if they do not divide."""
    first, last = (flags.whole(name, 0) if flags.has(name) else None for name in ENDS)
    embedding, loss = (int(flags.has(name)) for name in ACCOUNTED)
    rows = [0] * pp
    if first is not None or last is not None:
        rest = layers - (first or 0) - (last or 0)
        middle = pp - (first is not None) - (last is not None)
        if rest < 0 or (middle and rest % middle) or (not middle and rest):
            return ()
        rows = [rest // middle if middle else 0] * pp
        rows[0] = rows[0] if first is None else first
        rows[-1] = rows[-1] if last is None else last
    elif (layers + embedding + loss) % pp == 0:
        rows = [(layers + embedding + loss) // pp] * pp
    if not any(rows) or any(each % vpp for each in rows):
        return ()
    counts = [rows[stage] // vpp for _ in range(vpp) for stage in range(pp)]
    counts[0] -= embedding
    counts[-1] -= loss
    return tuple(counts) if min(counts) >= 0 else ()


def split_notes(split: PipelineSplit, pp: int, what: str = "flags") -> Iterator[str]:
    """What to say where chunks are predicted with other numbers of layers than they are stated with."""
    if pp == 1 or not split.layers:
        return
    yield from layer_notes(split.layers, pp, split.vpp, what)


def layer_notes(stated: Sequence[int], pp: int, vpp: int, what: str) -> Iterator[str]:
    """The same for the layers of each chunk, in the order of the model."""
    predicted = predicted_layers(sum(stated), pp, vpp)
    if tuple(stated) != predicted:
        yield (
            f"Layers per chunk are {render_layers(stated)} by the {what}: "
            f"predicted with {render_layers(predicted)}."
        )
