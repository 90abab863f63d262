"""What a block repeats in its backward under a set of modules, and what it keeps for that."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainwright.model.graph import Block, Op, Tensor
from trainwright.model.totals import saved_tensors
from trainwright.plan.recompute_modules import MODULE

SPLIT_REGIONS = ("attention", "ffn", "shared")  # whose matmuls read hidden states whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedRun:
    """Neighbouring operators that run again together, and what they make again for backward."""

    ops: tuple[Op, ...]
    remade: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedWork:
    """Of one block. `freed` has, by operator of the set, the results that are not kept."""

    block: Block
    kept: tuple[Tensor, ...]
    runs: tuple[RepeatedRun, ...]
    freed: Mapping[str, frozenset[str]]

    @property
    def ops(self) -> list[Op]:
        """All operators that run again."""
        return [op for run in self.runs for op in run.ops]

    @property
    def names(self) -> set[str]:
        """Theirs."""
        return {op.name for op in self.ops}

    def gathered(self) -> list[Tensor]:
        """Parts of the sequence that are gathered again over tensor-parallel ranks: read by a matmul that is
        repeated, or made by an operator that is.
        """
        makers = {tensor.name: op for op in self.block.ops for tensor in results(op)}
        found: dict[str, Tensor] = {}
        for op in self.block.ops:
            for tensor in op.inputs if op.kind == "matmul" and op.region in SPLIT_REGIONS else ():
                maker = makers.get(tensor.name)
                made_again = maker is not None and maker.name in self.names
                in_parts = maker is None or maker.region == "sequence"
                if in_parts and (op.name in self.names or made_again):
                    found[tensor.name] = tensor
        return list(found.values())

    def sums(self, split_dims: set[str]) -> int:
        """Partial sums over `split_dims` that are made again and read again where hidden states are whole."""
        partial = [
            op.output.name for op in self.ops if op.kind == "matmul" and split_dims & set(op.contracted)
        ]
        readers = [op for op in self.ops if op.region == "sequence" or op.kind == "permute"]
        return sum(any(name == each.name for op in readers for each in op.inputs) for name in set(partial))

    def routes(self) -> int:
        """Exchanges with experts: before their first matmul, and by the permutation after their last."""
        return sum(
            (op.kind == "grouped_matmul" and op.contracted == ("hidden",))
            or (op.kind == "permute" and op.name != "dispatch")
            for op in self.ops
        )

    def attention_share(self) -> float:
        """Of the block's attention."""
        attention = [op.name for op in self.block.ops if op.kind == "attention"]
        return sum(name in self.names for name in attention) / max(len(attention), 1)


def results(op: Op) -> tuple[Tensor, ...]:
    """All that an operator makes."""
    return (op.output, *op.extra_outputs)


def repeated_work(block: Block, recompute: str) -> RepeatedWork:
    """What is kept, found by asking for all that backward reads: what is freed is made again by its run,
    which asks for its own inputs; the rest is kept. Of keys and values, a rank saves its part.
    """
    freed = freed_results(block, recompute)
    runs = list(neighbours(block, freed))
    freed_by_run = [{tensor.name for op in run for tensor in freed_of(block, freed, op)} for run in runs]
    asked = list(saved_tensors(block))
    needed: dict[str, Tensor] = {}
    kept: list[Tensor] = []
    repeated: set[int] = set()
    while asked:
        tensor = asked.pop(0)
        if tensor.name in needed:
            continue
        needed[tensor.name] = tensor
        made_by = [at for at, names in enumerate(freed_by_run) if tensor.name in names]
        if not made_by:
            kept.append(tensor)
        for at in set(made_by) - repeated:
            repeated.add(at)
            asked += [each for op in runs[at] for each in op.inputs if each.name not in freed_by_run[at]]
    return RepeatedWork(
        block=block,
        kept=tuple(kept),
        runs=tuple(
            RepeatedRun(ops=runs[at], remade=tuple(needed[name] for name in freed_by_run[at] & needed.keys()))
            for at in sorted(repeated)
        ),
        freed=freed,
    )


def freed_results(block: Block, recompute: str) -> dict[str, frozenset[str]]:
    """By operator of the set, the results that are discarded; of some modules the operators' results stay."""
    found: dict[str, frozenset[str]] = {}
    for name in () if recompute in ("none", "full") else recompute.split("+"):
        module = MODULE[name]
        own: Mapping[str, frozenset[str]]
        if module.frees_results:
            own = module.frees_results(block.ops)
        else:
            own = {
                op.name: frozenset(() if module.keeps_result else (each.name for each in results(op)))
                for op in block.ops
                if module.runs(op)
            }
        found |= {op: found.get(op, frozenset()) | freed for op, freed in own.items()}
    return found


def neighbours(block: Block, freed: Mapping[str, object]) -> Iterator[tuple[Op, ...]]:
    """The longest runs of operators of the set with no other between them."""
    start = 0
    for at in range(len(block.ops) + 1):
        if at == len(block.ops) or block.ops[at].name not in freed:
            if at > start:
                yield tuple(block.ops[start:at])
            start = at + 1


def freed_of(block: Block, freed: Mapping[str, frozenset[str]], op: Op) -> list[Tensor]:
    """Of an operator of the set: discarded results, and what nobody but operators of the set saves, if it is
    neither read nor made (statistics of attention).
    """
    known = {tensor.name for tensor in (*op.inputs, *results(op))}
    saved_by_others: Sequence[Tensor] = [
        tensor for other in block.ops if other.name not in freed for tensor in other.saved
    ]
    inside = [each for each in op.saved if each.name not in known and each not in saved_by_others]
    return [each for each in results(op) if each.name in freed[op.name]] + inside
