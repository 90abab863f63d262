"""The work, bytes and parameters of the model's blocks on one device, per microbatch."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from scalar_reference.operators import Compute, OpTime, attention_keys, size_of, tensor_bytes
from scalar_reference.recomputation import repeated_work, results
from trainwright.estimate.types import Job
from trainwright.model.graph import Block, Op, Segment, Tensor, query_dim, query_groups, segment_sizes
from trainwright.model.totals import saved_tensors
from trainwright.plan.strategy import Strategy

# What tensor parallelism splits.
TENSOR_DIMS = {"heads", "kv_heads", "ffn", "shared_ffn", "vocab", "pair_heads", "pair_ffn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWork:
    """Of one block, or the sum or mean of several."""

    matmul_forward_s: float = 0.0
    matmul_dgrad_s: float = 0.0
    matmul_wgrad_s: float = 0.0
    attention_forward_s: float = 0.0
    attention_backward_s: float = 0.0
    memory_bound_forward_s: float = 0.0
    memory_bound_backward_s: float = 0.0
    kernels: float = 0.0
    tp_sums: float = 0.0  # hidden states that tensor parallelism sums in a forward
    hidden_bytes: float = 0.0  # of what goes on to the next block, whole over tensor-parallel ranks
    kv_bytes: float = 0.0  # keys and values that a context-parallel rank contributes
    routed_bytes: float = 0.0  # tokens on their way to experts
    expert_blocks: float = 0.0
    saved_bytes: float = 0.0  # for backward, without recomputation
    kept_bytes: float = 0.0  # with it
    remade_bytes: float = 0.0  # the most that modules make again at a time
    repeated_s: float = 0.0  # by modules; full recomputation repeats the forward
    repeated_gathers: float = 0.0  # hidden states over tensor-parallel ranks
    repeated_sums: float = 0.0
    repeated_routes: float = 0.0  # exchanges with experts, one way
    repeated_attention: float = 0.0  # share of it
    repeated_kernels: float = 0.0  # launched again, if a matmul is
    dense_parameters: float = 0.0
    expert_parameters: float = 0.0

    @property
    def forward_s(self) -> float:
        """Of a forward, as often as the model passes."""
        return self.matmul_forward_s + self.attention_forward_s + self.memory_bound_forward_s

    @property
    def backward_s(self) -> float:
        """Of a backward, weight gradients included."""
        matmul_s = self.matmul_dgrad_s + self.matmul_wgrad_s
        return matmul_s + self.attention_backward_s + self.memory_bound_backward_s

    @property
    def compute_s(self) -> float:
        """Forward and backward."""
        return self.forward_s + self.backward_s

    @property
    def parameters(self) -> float:
        """Of a device, before ZeRO shards them."""
        return self.dense_parameters + self.expert_parameters

    def plus(self, other: "BlockWork", times: float = 1.0) -> "BlockWork":
        """The sum with `times` of another block."""
        return BlockWork(
            **{f.name: getattr(self, f.name) + times * getattr(other, f.name) for f in fields(self)}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """The mean layer, the model's first end (embeddings) and its last (the head), and the largest layer."""

    layers: int
    layer: BlockWork
    first: BlockWork
    last: BlockWork
    largest_saved_bytes: float
    largest_remade_bytes: float
    largest_hidden_bytes: float


def model_work(job: Job, strategy: Strategy) -> ModelWork:
    """The model's blocks under one strategy."""
    layers, total, first, last = 0, BlockWork(), BlockWork(), BlockWork()
    kinds: dict[str, BlockWork] = {}  # blocks of one name are equal, unless a segment has its own sizes
    for segment in job.graph.segments:
        kind = f"{segment.block.name} {segment.seq} {sorted(segment.sizes.items())}"
        work = kinds[kind] if kind in kinds else block_work(job, strategy, segment)
        if segment.block.name.endswith(("embedding", "encoder.end")):
            first = replace(first.plus(work), hidden_bytes=work.hidden_bytes)
        elif segment.block.name.endswith("head"):
            last = replace(last.plus(work), hidden_bytes=work.hidden_bytes)
        else:
            layers += segment.count
            total = total.plus(work, segment.count)
            kinds[kind] = work
    layer = BlockWork().plus(total, 1.0 / layers)
    # Layers of other widths differ much in size; others count as the mean layer.
    widths_differ = any(segment.sizes for segment in job.graph.segments)
    largest = kinds.values() if widths_differ else [layer]
    return ModelWork(
        layers=layers,
        layer=layer,
        first=first,
        last=last,
        largest_saved_bytes=max(each.saved_bytes for each in largest),
        largest_remade_bytes=max(each.remade_bytes for each in largest),
        largest_hidden_bytes=max(each.hidden_bytes for each in largest),
    )


def expert_slowdown(job: Job, strategy: Strategy) -> float:
    """Ranks that exchange tokens are slower or faster as a stated imbalance is to the stack's own."""
    if strategy.ep == 1 or not job.stack.stated_imbalance:
        return 1.0
    return job.stack.stated_imbalance / job.stack.expert_imbalance


def block_work(job: Job, strategy: Strategy, segment: Segment) -> BlockWork:
    """One block of a segment."""
    return _BlockOnDevice(
        job=job, strategy=strategy, segment=segment,
        compute=Compute(job=job, precision=strategy.precision),
    ).work()  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _BlockOnDevice:
    job: Job
    strategy: Strategy
    segment: Segment
    compute: Compute

    @property
    def block(self) -> Block:
        return self.segment.block

    def sizes(self, region: str) -> dict[str, float]:
        """Of all dims on one device: `sequence` (split by sequence parallelism), `experts`, or the others."""
        graph, s = self.job.graph, self.strategy
        tokens = float(self.segment.seq or self.job.seq)
        encoder_tokens = float(graph.sizes.get("seq_enc", self.job.seq))
        share = 1.0 / s.cp
        if region == "sequence" and s.sp:
            share /= s.tp
        if region == "experts":  # each rank sends its own tokens; ranks of one expert have each other's
            share *= s.etp / s.tp
        sizes = {dim: float(size) for dim, size in segment_sizes(graph, self.segment).items()}
        sizes |= {dim: max(sizes[dim] / s.tp, 1.0) for dim in TENSOR_DIMS & sizes.keys()}
        sizes |= {"batch": s.micro_batch, "seq": tokens * share, "seq_enc": encoder_tokens * share}
        sizes |= {"seq_kv": tokens, "seq_third": tokens, "seq_enc_kv": encoder_tokens}
        if region == "experts" and "experts" in sizes:
            sizes["expert_rows"] = s.micro_batch * sizes["seq"] * sizes["top_k"]
            sizes["experts"] /= s.ep
            sizes["expert_ffn"] /= s.etp
        return sizes

    def work(self) -> BlockWork:
        by_region = {name: self.sizes(name) for name in ("sequence", "experts", "others")}
        others, experts = by_region["others"], by_region["experts"]
        hidden = self._hidden_bytes(others)
        routed = any(op.name == "dispatch" for op in self.block.ops)
        width = self.compute.element_bytes
        return replace(
            self._times(by_region),
            tp_sums=self._tp_sums(others, hidden),
            hidden_bytes=hidden,
            kv_bytes=self._kv_bytes(others),
            routed_bytes=size_of(("batch", "seq", "top_k", "hidden"), experts) * width / self.strategy.etp
            if routed
            else 0.0,
            expert_blocks=float(routed),
            **self._recomputation(by_region, hidden),
            dense_parameters=self._parameters(others, "matmul"),
            expert_parameters=self._parameters(experts, "grouped_matmul"),
        )

    def _times(self, by_region: dict[str, dict[str, float]]) -> BlockWork:
        total, passes = BlockWork(), self.job.graph.passes
        for op in self.block.ops:
            sizes = by_region[op.region if op.region in ("sequence", "experts") else "others"]
            time = self._op_time(op, sizes)
            forward_s = passes * time.forward_s
            if op.kind == "attention":
                one = BlockWork(attention_forward_s=forward_s, attention_backward_s=time.dgrad_s)
            elif op.kind in ("matmul", "grouped_matmul", "product"):
                one = BlockWork(
                    matmul_forward_s=forward_s, matmul_dgrad_s=time.dgrad_s, matmul_wgrad_s=time.wgrad_s
                )
            else:
                one = BlockWork(memory_bound_forward_s=forward_s, memory_bound_backward_s=time.dgrad_s)
            total = total.plus(replace(one, kernels=time.kernels))
        return total

    def _op_time(self, op: Op, sizes: dict[str, float]) -> OpTime:
        """Of an operator; of experts, on the rank with most routed tokens, which permutes but its own."""
        time = self.compute.op_time(op, sizes)
        if op.region != "experts" or op.kind == "permute":
            return time
        slower = expert_slowdown(self.job, self.strategy)
        return OpTime(
            forward_s=slower * time.forward_s, dgrad_s=slower * time.dgrad_s, wgrad_s=slower * time.wgrad_s,
            kernels=time.kernels,
        )  # fmt: skip

    def _recomputation(self, by_region: dict[str, dict[str, float]], hidden: float) -> dict[str, float]:
        """What is kept for backward, and what modules repeat."""
        s, every = self.strategy, {op.name for op in self.block.ops}
        saved_bytes = self._kept_bytes(saved_tensors(self.block), every, set())
        if s.recompute == "full":
            return {"saved_bytes": saved_bytes, "kept_bytes": hidden / (s.tp if s.sp else 1)}
        work = repeated_work(self.block, s.recompute)
        gathered = [tensor_bytes(t, by_region["others"], self.compute.element_bytes) for t in work.gathered()]
        remade = [self._kept_bytes(run.remade, {op.name for op in run.ops}, work.names) for run in work.runs]
        return {
            "saved_bytes": saved_bytes,
            "kept_bytes": self._kept_bytes(work.kept, every - work.names, work.names),
            "remade_bytes": max(remade, default=0.0),
            "repeated_s": sum(self._repeated_s(op, work.freed[op.name], by_region) for op in work.ops),
            "repeated_gathers": sum(gathered) / hidden,
            "repeated_sums": work.sums(TENSOR_DIMS),
            "repeated_routes": work.routes(),
            "repeated_attention": work.attention_share(),
            "repeated_kernels": self._repeated_kernels(work.ops, by_region),
        }

    def _repeated_kernels(self, ops: Iterable[Op], by_region: dict[str, dict[str, float]]) -> float:
        launched, is_matmul = 0.0, False
        for op in ops:
            sizes = by_region[op.region if op.region in ("sequence", "experts") else "others"]
            launched += self.compute.op_time(op, sizes).kernels
            is_matmul |= op.kind in ("matmul", "grouped_matmul")
        return launched if is_matmul else 0.0

    def _repeated_s(self, op: Op, freed: frozenset[str], by_region: dict[str, dict[str, float]]) -> float:
        """Of an operator that makes some of its results again, their share of its forward."""
        sizes = by_region[op.region if op.region in ("sequence", "experts") else "others"]
        forward_s = self._op_time(op, sizes).forward_s
        elements = {each.name: tensor_bytes(each, sizes, 1.0) for each in results(op)}
        made = sum(elements[name] for name in freed) if freed else sum(elements.values())
        return forward_s * made / sum(elements.values())

    def _kept_bytes(self, tensors: Iterable[Tensor], scoring: set[str], repeated: set[str]) -> float:
        """Of tensors, and of the scores of operators named `scoring`, where some operators are repeated.
        Logits are counted apart.
        """
        total = sum(self._saved_bytes(each, repeated) for each in tensors if "vocab" not in each.dims)
        if self.job.stack.attention == "unfused":
            total += sum(self._score_bytes(op) for op in self.block.ops if op.name in scoring)
        return total

    def _parameters(self, sizes: dict[str, float], kind: str) -> float:
        """Of experts, or of all other operators."""
        owners = [op for op in self.block.ops if (op.kind == "grouped_matmul") == (kind == "grouped_matmul")]
        return sum(tensor_bytes(weight, sizes, 1.0) for op in owners for weight in op.weights)

    def _hidden_bytes(self, sizes: dict[str, float]) -> float:
        """Of the hidden state that goes on, or of all the tensors that do."""
        width = self.compute.element_bytes
        if not self.block.outputs:
            return size_of(("batch", "seq", "hidden"), sizes) * width
        names = {name for _, name in self.block.outputs}
        return sum(tensor_bytes(op.output, sizes, width) for op in self.block.ops if op.output.name in names)

    def _tp_sums(self, sizes: dict[str, float], hidden_bytes: float) -> float:
        """Partial sums are summed where an operator outside the split regions reads them, norms excepted."""
        summed: list[Tensor] = []
        partial: Tensor | None = None
        for op in self.block.ops:
            lookup = op.kind == "gather" and op.region == "vocab"
            if lookup or TENSOR_DIMS & set(op.contracted):
                partial = op.output
            elif partial is not None and op.region == "sequence" and op.kind != "norm":
                summed.append(partial)
                partial = None
        summed += [partial] if partial is not None else []
        if not self.block.outputs:
            return float(len(summed))
        return sum(tensor_bytes(each, sizes, self.compute.element_bytes) for each in summed) / hidden_bytes

    def _kv_bytes(self, sizes: dict[str, float]) -> float:
        """What other context-parallel ranks need of this one's part of the sequence."""
        width = self.compute.element_bytes
        if self.block.outputs:
            whole = sum(
                tensor_bytes(tensor, sizes, width)
                for op in self.block.ops
                if op.kind in ("attention", "product")
                for tensor in op.inputs
                if "seq" not in tensor.dims
            )
            return whole * sizes["seq"] / sizes["seq_kv"]
        attended = [op.contracted[0] for op in self.block.ops if op.kind == "attention"]
        tokens = sum(sizes["seq_enc" if dim == "seq_enc" else "seq"] for dim in attended)
        if not tokens:
            return 0.0
        return tokens * sizes["batch"] * sizes["kv_heads"] * (sizes["head_dim"] + sizes["v_dim"]) * width

    def _saved_bytes(self, tensor: Tensor, repeated: set[str]) -> float:
        """Of tokens that ranks of one expert gather from each other, a rank keeps its own."""
        if "top_k" in tensor.dims:
            region, shared = "experts", 1 if "expert_ffn" in tensor.dims else self.strategy.etp
        else:
            region, shared = "others" if TENSOR_DIMS & set(tensor.dims) else "sequence", 1
        width = self.compute.element_bytes
        if tensor.element == "activation":
            width = self._saved_width_bytes(tensor.name, repeated)
        stack = self.job.stack
        imbalance = stack.stated_imbalance or stack.expert_imbalance
        fullest = imbalance if "top_k" in tensor.dims else 1.0
        return fullest * tensor_bytes(tensor, self.sizes(region), width) / shared

    def _saved_width_bytes(self, name: str, repeated: set[str]) -> float:
        """Of an element: some stacks keep inputs of fp8 linears in one byte, of fp4 ones in half a byte and a
        16th for its scale, which comes on top where others need the tensor itself.
        """
        width, low = self.compute.element_bytes, {"fp8": 1.0, "fp4": 0.5 + 1 / 16}
        if self.strategy.precision not in low or not getattr(self.job.stack, "quantized_inputs", False):
            return width
        narrow = whole = False
        for op in self.block.ops:
            linear = op.kind in ("matmul", "grouped_matmul") and op.region != "vocab" and op.name != "router"
            reads = op.inputs if op.name in repeated else op.saved
            if any(tensor.name == name for tensor in reads):
                narrow |= linear and op.name not in repeated
                whole |= not linear or op.name in repeated
        kept = low[self.strategy.precision] if narrow else 0.0
        return (width if whole or not narrow else 0.0) + kept

    def _score_bytes(self, op: Op) -> float:
        """Of unfused attention: softmax and dropout results, and the mask."""
        if op.kind != "attention":
            return 0.0
        sizes = self.sizes("others")
        queries = size_of((*query_groups(op), query_dim(op)), sizes)
        return queries * attention_keys(op, sizes) * (2.0 * self.compute.element_bytes + 1.0)
