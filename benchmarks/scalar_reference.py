"""The closed form once more, as one would first write it: plain floats, one strategy at a time.

It knows one kind of model, a GPT without experts in 16 bit with fused attention, and shares no code with the
package but the facts (device, links, constants). It is what `estimate` is measured against and checked by.
"""

from dataclasses import dataclass, replace
from math import ceil, floor, inf, log2

from trainwright.cost.collective import Link
from trainwright.cost.gemm import TILES
from trainwright.estimate.network import links as network_links
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Step time and memory of one strategy."""

    step_s: float
    total_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Seconds and bytes of a layer, the embedding or the head, per microbatch."""

    forward_s: float
    backward_s: float
    without_weight_s: float  # backward while its weight gradients are put off
    again_s: float  # what selective recomputation repeats: norms and activation functions, and their gathers
    kept: float
    kept_selective: float
    parameters: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """A layer, forward and backward, per microbatch: its work with what it recomputes, its ZeRO gathers."""

    forward_s: float
    backward_s: float
    gather_forward_s: float
    gather_backward_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Busiest:
    """The stage with most work per microbatch: its time, its layers, and which ends of the model it has."""

    seconds: float
    layers: float
    has_first: bool
    has_last: bool


class Reference:
    """Evaluates strategies of one job."""

    def __init__(self, job: Job, layers: int) -> None:
        stack = job.stack
        assert stack.attention == "flash"
        assert not stack.balanced_stages
        assert "experts" not in job.graph.sizes
        assert isinstance(job.global_batch, int)
        self.job, self.stack, self.layers, self.batch = job, stack, layers, job.global_batch
        self.efficiency = job.efficiency
        self.links: tuple[Link, ...] = network_links(job)
        device = job.cluster.device
        self.units = device.compute_units
        self.peak = device.peak("bf16")
        self.bandwidth = device.memory[0].bytes_per_s * job.efficiency.memory
        self.host_bytes_per_s = job.cluster.network.host_bytes_per_s * job.efficiency.host_link
        sizes = job.graph.sizes
        self.hidden, self.heads, self.width = sizes["hidden"], sizes["heads"], sizes["head_dim"]
        self.ffn, self.vocab, self.positions = sizes["ffn"], sizes["vocab"], sizes["positions"]

    def gemm_s(self, m: float, n: float, k: float, written: float = 2.0) -> float:
        e, best = self.efficiency, inf
        full = TILES[0][0] * TILES[0][1] / sum(TILES[0])
        for tile in TILES:
            rate = 1.0 - e.tile_penalty * (1.0 - tile[0] * tile[1] / sum(tile) / full)
            for rows, columns in (tile, tile[::-1]):
                waves = ceil(m / rows) * ceil(n / columns) / self.units
                charged = (ceil(waves) + max(waves, 1.0)) / 2
                best = min(best, charged * 2 * rows * columns * self.units * (k + e.depth) / rate)
        compute = best / (self.peak * e.gemm * self.stack.pace)
        return max(compute, ((m * k + k * n) * 2 + m * n * written) / self.bandwidth) + e.kernel_s

    def matmul_s(self, m: float, n: float, k: float) -> tuple[float, float, float]:
        added = 2 * self.stack.gradient_bytes
        return self.gemm_s(m, n, k), self.gemm_s(m, k, n), self.gemm_s(k, n, m, added)

    def stream_s(self, moved: float) -> float:
        return self.stack.traffic * moved / self.bandwidth + self.efficiency.kernel_s

    def fans(self, size: float, stride: float) -> list[tuple[Link, float, float]]:
        """(link, members below it, fan-out) of a group, inner to outer."""
        result, inner = [], 1.0
        for link in self.links:
            members = size if link is self.links[-1] else min(max(floor(link.inside / stride), 1), size)
            result.append((link, inner, members / inner))
            inner = max(members, inner)
        return result

    def ring(self, size: float, stride: float) -> tuple[float, float, float]:
        """Bandwidth, latency of a trip round the ring, latency of a tree."""
        bandwidth, trip, tree = inf, 0.0, 0.0
        for link, below, fan in self.fans(size, stride):
            if fan > 1:
                bandwidth = min(bandwidth, link.bytes_per_s * below)
            trip += link.latency_s * (fan - 1) * size / (below * fan)
            tree += link.latency_s * ceil(log2(max(fan, 1.0)))
        return bandwidth, trip, tree

    def all_gather_s(self, size: float, stride: float, data: float) -> float:
        if size <= 1:
            return 0.0
        bandwidth, trip, tree = self.ring(size, stride)
        return (size - 1) / size * data / bandwidth + min(trip, 2 * tree)

    def all_reduce_s(self, size: float, stride: float, data: float) -> float:
        if size <= 1:
            return 0.0
        bandwidth, trip, tree = self.ring(size, stride)
        best = min(2 * (size - 1) / size * data / bandwidth + 2 * trip, 2 * data / bandwidth + 2 * tree)
        levels = 0.0
        for link, below, fan in self.fans(size, stride):
            if fan > 1:
                hops = min(fan - 1, 2 * ceil(log2(fan)))
                levels += 2 * (fan - 1) / fan * data / below / link.bytes_per_s + 2 * hops * link.latency_s
        best = min(best, levels)
        inner = self.links[0]
        if inner.reduction and self.fans(size, stride)[0][2] >= size > 2:
            best = min(best, 2 * (size - 1) / size * data / (1.3 * inner.bytes_per_s) + 2 * inner.latency_s)
        return best

    def send_s(self, stride: float, data: float) -> float:
        link = next((each for each in self.links if stride < each.inside), self.links[-1])
        return data / link.bytes_per_s + link.latency_s

    def block(self, s: Strategy, kind: str) -> Block:
        """One layer, the embedding or the head."""
        stack, h, tp = self.stack, self.hidden, s.tp
        tokens = s.micro_batch * self.job.seq / s.cp
        spread = tokens / tp if s.sp else tokens
        state = 2.0 * spread * h  # bytes of a hidden state outside the split operators
        products: list[tuple[float, float, float]] = []
        attention = (0.0, 0.0)
        streams: list[tuple[float, float]] = []  # bytes moved, backward relative to forward
        gather = 0.0
        repeated: tuple[int, ...] = ()  # streams that selective recomputation does again
        if kind == "layer":
            heads, ffn = self.heads / tp, self.ffn / tp
            inner = heads * self.width
            products = [(tokens, 3 * inner, h), (tokens, h, inner), (tokens, ffn, h), (tokens, h, ffn)]
            flops = s.micro_batch * heads * tokens / s.micro_batch * self.job.seq * 2 * self.width
            waves = s.micro_batch * heads * ceil(tokens / s.micro_batch / 128) / self.units
            rate = self.peak * stack.pace * waves / (waves + 1.2)
            e = self.efficiency
            attention = (
                flops / (rate * e.attention_forward) + e.kernel_s,
                2.5 * flops / (rate * e.attention_backward) + e.kernel_s,
            )
            streams = [
                (2 * state, 1.5),
                (3 * state, 1.0),
                (2 * state, 1.5),
                (2 * 2 * tokens * ffn, 1.0),
                (3 * state, 1.0),
            ]
            repeated = (0, 2, 3)  # both norms and the activation function, not the residuals
            kernels, sums = 10, 2
            kept = 4 * state + 2 * spread * h  # inputs of norms and of the products after them; masks
            kept += 2 * tokens * inner * 4 + 4 * tokens * heads + 2 * 2 * tokens * ffn
            remade = 2 * state + 2 * tokens * ffn
            parameters = 12 * h * h / tp + (3 * h + self.ffn) / tp + 6 * h
            gather = self.all_gather_s(s.cp, tp, 2 * 2 * tokens * inner * s.cp)
        elif kind == "embedding":
            streams = [(4 * tokens + 2 * tokens * h, 1.0), (2 * state, 1.0)]
            kernels, sums = 3, 1
            kept, remade = 4 * spread + spread * h, 0.0
            parameters = self.vocab / tp * h + self.positions * h
        else:
            products = [(tokens, self.vocab / tp, h)]
            streams = [(2 * state, 1.5), (3 * 4 * tokens * self.vocab / tp, 1.0)]
            repeated = (0,)
            kernels, sums = 8, 1
            kept, remade = 2 * state, state
            parameters = self.vocab / tp * h + 2 * h
        return self.with_communication(
            s, products, attention, streams, repeated, kernels, sums, gather, kept, remade, parameters
        )

    def with_communication(
        self, s: Strategy, products: list[tuple[float, float, float]], attention: tuple[float, float],
        streams: list[tuple[float, float]], repeated: tuple[int, ...], kernels: int, sums: int, gather: float,
        kept: float, remade: float, parameters: float,
    ) -> Block:  # fmt: skip
        stack = self.stack
        whole = 2.0 * s.micro_batch * self.job.seq / s.cp * self.hidden
        matmul = [sum(each) for each in zip(*(self.matmul_s(*shape) for shape in products), strict=True)] or [
            0.0
        ] * 3
        stream_times = [(self.stream_s(moved), back) for moved, back in streams]
        forward = matmul[0] + attention[0] + sum(t for t, _ in stream_times)
        backward = matmul[1] + matmul[2] + attention[1] + sum(t * back for t, back in stream_times)
        tp = sums * (2 * self.all_gather_s(s.tp, 1, whole) if s.sp else self.all_reduce_s(s.tp, 1, whole))
        if not attention[0]:
            tp /= 2  # the ends of the model sum in one direction only
        on = 1.0 if s.overlap else 0.0
        tp_back = tp - min(tp * stack.tp_overlap * on, matmul[2])
        ring = s.cp_kind == "ring"
        share = stack.cp_overlap * on if ring else 0.0
        cp = gather - min(gather * share, attention[0])
        cp += 2 * (s.cp - 1) * self.efficiency.kernel_s if ring and attention[0] else 0.0
        cp_back = 2 * gather - min(2 * gather * share, attention[1])
        calls = 2 * sums if s.tp > 1 else 0
        host = (kernels + calls) * stack.op_s
        behind = soft_max(backward + tp_back + cp_back, host)
        regather = 0.5 * tp * (1 - stack.tp_overlap * on) if s.sp else 0.0
        return Block(
            forward_s=soft_max(forward + tp * (1 - stack.tp_forward_overlap * on) + cp, host),
            backward_s=behind,
            without_weight_s=min(soft_max(backward - matmul[2] + tp + cp_back, host), behind),
            again_s=sum(stream_times[index][0] for index in repeated) + regather, kept=kept,
            kept_selective=kept - remade, parameters=parameters,
        )  # fmt: skip

    def __call__(self, s: Strategy) -> Answer:
        """Step time and memory of one strategy."""
        layer, first, last = (self.block(s, kind) for kind in ("layer", "embedding", "head"))
        stages = self.stages(s)
        microbatches = self.batch / (s.dp * s.micro_batch)
        passes = self.passes(s, layer)
        ends = self.end_s(s, first, passes), self.end_s(s, last, passes)
        busiest = self.busiest(s, stages, self.layer_s(s, passes), ends)
        send, wait = self.sends(s, stages[1])
        away = self.offload_s(s, layer, stages[1], busiest, passes)
        # Copies that nothing hides stand in every stage; those back are done while it waits.
        blocked = 0.0 if s.overlap else 0.5 * sum(away)
        others = self.others_s(s, passes, ends, busiest) + (s.pp - 1) * (send + blocked)
        filled = self.filled_s(s, (layer, first, last), passes, busiest, microbatches)
        bubble = max(others / s.vpp - filled, 0.0)
        owned = self.owned(s, stages, (layer, first, last))
        edge = min((first.parameters + layer.parameters) / owned[0], 1.0)
        reduce = self.reduce_s(s, max(owned), edge, stages[1], layer, passes, away)
        update = self.update_s(s, max(owned) / (self.shard(s) if s.zero else 1))
        step = microbatches * (busiest.seconds + send + wait + sum(away)) + bubble + reduce + update
        return Answer(
            step_s=step + self.stack.step_s,
            total_bytes=self.memory(s, stages, microbatches, layer, first, last, self.shard(s)),
        )

    def shard(self, s: Strategy) -> int:
        """Ranks that share one copy of the sharded state."""
        return min(s.shard, s.dp * s.cp) if s.shard else s.dp * s.cp

    def shown_s(self, work: float, communication: float, share: float) -> float:
        """What communication adds to work, of which `share` runs beside it: both take w + i·c, at least c."""
        beside = share * communication
        return communication - beside + max(self.stack.interference * beside, beside - work)

    def passes(self, s: Strategy, layer: Block) -> Passes:
        """A layer's forward and backward, without its ZeRO gathers, and those."""
        again = {"none": 0.0, "selective": layer.again_s, "full": layer.forward_s}[s.recompute]
        if s.recompute == "full" and s.recompute_layers:
            again *= min(s.recompute_layers * s.pp / self.layers, 1.0)
        gather_forward, gather_backward = self.zero3_s(s, layer.parameters)
        return Passes(
            forward_s=layer.forward_s, backward_s=layer.backward_s + again,
            gather_forward_s=gather_forward, gather_backward_s=gather_backward,
        )  # fmt: skip

    def gathers_overlap(self, s: Strategy) -> float:
        return self.stack.dp_overlap if s.overlap else 0.0

    def layer_s(self, s: Strategy, passes: Passes) -> float:
        """A layer forward and backward, with what it shows of its ZeRO gathers."""
        share = self.gathers_overlap(s)
        return (
            passes.forward_s + self.shown_s(passes.forward_s, passes.gather_forward_s, share)
            + passes.backward_s + self.shown_s(passes.backward_s, passes.gather_backward_s, share)
        )  # fmt: skip

    def end_s(self, s: Strategy, end: Block, passes: Passes) -> float:
        """One end of the model, whose ZeRO gathers hide beside itself and what the next layer leaves."""
        share = self.gathers_overlap(s)
        work = end.forward_s + end.backward_s
        slack = max(passes.forward_s - share * passes.gather_forward_s, 0.0)
        slack += max(passes.backward_s - share * passes.gather_backward_s, 0.0)
        return work + self.shown_s(work + slack, sum(self.zero3_s(s, end.parameters)), share)

    def busiest(
        self, s: Strategy, stages: tuple[float, float, float], layer_s: float, ends: tuple[float, float]
    ) -> Busiest:
        a, m, z = stages
        if s.pp == 1:
            return Busiest(seconds=a * layer_s + sum(ends), layers=a, has_first=True, has_last=True)
        found = [
            Busiest(seconds=a * layer_s + ends[0], layers=a, has_first=True, has_last=False),
            Busiest(seconds=z * layer_s + ends[1], layers=z, has_first=False, has_last=True),
        ]
        if s.pp > 2:
            found.insert(0, Busiest(seconds=m * layer_s, layers=m, has_first=False, has_last=False))
        return max(found, key=lambda stage: stage.seconds)

    def others_s(self, s: Strategy, passes: Passes, ends: tuple[float, float], busiest: Busiest) -> float:
        """What a bubble shows of other stages: of their ZeRO gathers only what always blocks or slows."""
        lasting = 1 - self.gathers_overlap(s) * (1 - self.stack.interference)
        gathers = lasting * (passes.gather_forward_s + passes.gather_backward_s)
        waiting = passes.forward_s + passes.backward_s + gathers
        here = busiest.seconds - busiest.layers * self.layer_s(s, passes)  # ends on the busiest stage
        return (self.layers - busiest.layers) * waiting + sum(ends) - here

    def filled_s(
        self, s: Strategy, blocks: tuple[Block, Block, Block], passes: Passes, busiest: Busiest,
        microbatches: float,
    ) -> float:  # fmt: skip
        """What ZB-H1 fills of the bubble: weight gradients that other stages and the busiest one put off."""
        if s.schedule != "zb":
            return 0.0
        layer, first, last = (block.backward_s - block.without_weight_s for block in blocks)
        whole = self.layer_s(s, passes)
        early = self.layer_s(s, replace(passes, backward_s=passes.backward_s - layer))
        put_off, least = whole - early, min(passes.forward_s, early - passes.forward_s)
        here = first * busiest.has_first + last * busiest.has_last
        others = (self.layers - busiest.layers) * put_off + first + last - here
        return others + (min(s.pp, microbatches) - 1) * (busiest.layers * min(put_off, least) + here)

    def offload_s(
        self, s: Strategy, layer: Block, layers: float, busiest: Busiest, passes: Passes
    ) -> tuple[float, float]:
        """Activations to the host behind forwards, and back behind backwards: what is not hidden."""
        if s.offload not in ("activations", "both"):
            return 0.0, 0.0
        gather = self.shown_s(passes.forward_s, passes.gather_forward_s, self.gathers_overlap(s))
        forward = layers * (passes.forward_s + gather)
        moved = self.kept_by_layers(s, layers, layer) / self.host_bytes_per_s
        share = 1.0 if s.overlap else 0.0
        return (
            self.shown_s(forward, moved, share),
            self.shown_s(max(busiest.seconds - forward, 0.0), moved, share),
        )

    def zero3_s(self, s: Strategy, parameters: float) -> tuple[float, float]:
        """Gathers forward, gathers and scatters backward."""
        shard = self.shard(s)
        if s.zero < 2 or shard == 1:
            return 0.0, 0.0
        gather = self.all_gather_s(shard, s.tp, 2 * parameters) if s.zero == 3 else 0.0
        return gather, gather + self.all_gather_s(shard, s.tp, self.stack.reduce_bytes * parameters)

    def kept_bytes(self, s: Strategy, layer: Block) -> dict[str, float]:
        """Of a layer and microbatch, by recomputation."""
        whole = 2.0 * s.micro_batch * self.job.seq / s.cp * self.hidden
        return {
            "none": self.stack.activations * layer.kept,
            "selective": self.stack.activations * layer.kept_selective,
            "full": whole / (s.tp if s.sp else 1),
        }

    def kept_by_layers(self, s: Strategy, layers: float, layer: Block, more: float = 0.0) -> float:
        """Bytes that so many layers keep of a microbatch, `more` in each that recomputes."""
        kept = self.kept_bytes(s, layer)
        untouched = 0.0
        if s.recompute == "full" and s.recompute_layers:
            untouched = max(layers - s.recompute_layers, 0.0)
        return (layers - untouched) * (kept[s.recompute] + more) + untouched * kept["none"]

    def stages(self, s: Strategy) -> tuple[float, float, float]:
        """Layers on the first, a middle and the last stage."""
        layers, pp = self.layers, s.pp
        if pp == 1:
            return layers, layers, layers
        even, rest = divmod(layers, pp)
        chunks = pp * s.vpp
        if layers % chunks and (layers + 2) % chunks == 0 and pp > 2:
            return (layers + 2) / pp - 1, (layers + 2) / pp, (layers + 2) / pp - 1
        if pp == 2:
            return even + rest, even + rest, even
        return even + (rest > pp - 2), even + (rest > 0), even

    def sends(self, s: Strategy, middle: float) -> tuple[float, float]:
        """Exposed sends, and what some stacks lose beside them, per microbatch."""
        if s.pp == 1:
            return 0.0, 0.0
        stack = self.stack
        payload = 2.0 * s.micro_batch * self.job.seq / s.cp * self.hidden / s.tp
        both = 2 * s.vpp * (self.send_s(s.tp * s.cp * s.dp, payload) + stack.send_s)
        nodes = s.devices / self.job.cluster.node_size
        wait = (
            stack.pipeline_tp_s * middle * (s.tp if s.tp > 1 else 0)
            + stack.pipeline_stall_s * min(nodes / 64, 1) ** 8
        )
        return both * (1 - (stack.pp_overlap if s.overlap else 0.0)), wait

    def owned(
        self, s: Strategy, stages: tuple[float, float, float], blocks: tuple[Block, Block, Block]
    ) -> tuple[float, float, float]:
        """Parameters on the first, a middle and the last stage before ZeRO; an only stage is the first."""
        layer, first, last = (block.parameters for block in blocks)
        a, m, z = stages
        if s.pp == 1:
            tied = min(first, last) if self.job.graph.tied else 0.0
            return a * layer + first + last - tied, 0.0, 0.0
        return a * layer + first, m * layer, z * layer + last

    def reduce_s(
        self, s: Strategy, owned: float, edge: float, layers: float, layer: Block, passes: Passes,
        away: tuple[float, float],
    ) -> float:  # fmt: skip
        """What shows of reductions behind the last backward and of gathers of new weights behind the first
        forward; the `edge`, the share of the first layer and the embedding, is beside nothing.
        """
        reduce, renew = self.reductions_s(s, owned, layers)
        share = self.stack.zero_overlap if s.zero in (1, 2) else self.stack.dp_overlap
        share = share if s.overlap else 0.0
        inner = max(layers - 1, 0.0)
        total = 0.0
        for whole, work, waits, gather in (
            (reduce, layer.backward_s, away[1], passes.gather_backward_s),
            (renew, layer.forward_s, away[0], passes.gather_forward_s),
        ):
            free = max(work - self.gathers_overlap(s) * gather, 0.0)  # links carry ZeRO's own gathers
            beside = inner * free + waits * inner / max(layers, 1.0)
            hideable = whole * (1 - edge)
            slowed = self.stack.interference * min(hideable * share, beside)
            total += whole * edge + self.shown_s(beside, hideable, share)
            total += (s.pp - 1) / s.vpp * slowed  # in stage after stage, as the pipeline fills or drains
        return total

    def reductions_s(self, s: Strategy, owned: float, layers: float) -> tuple[float, float]:
        """Of gradients, and gathers of new weights, hidden or not."""
        ranks, shard, wire = s.dp * s.cp, self.shard(s), self.stack.reduce_bytes * owned
        if s.zero == 3:
            return self.all_reduce_s(max(ranks / shard, 1), s.tp * shard, wire / shard), 0.0
        if s.zero == 0:
            return self.all_reduce_s(ranks, s.tp, wire), 0.0
        calls = layers * self.stack.zero_layer_s if ranks > 1 else 0.0
        renew = self.all_gather_s(ranks, s.tp, 2 * owned)
        if s.zero == 2:  # gradients were scattered in every microbatch
            return 0.0, renew + calls
        return self.all_gather_s(ranks, s.tp, wire) + calls, renew

    def update_s(self, s: Strategy, owned: float) -> float:
        stack = self.stack
        traffic = owned * (2 * stack.optimizer_bytes + 2 * stack.gradient_bytes + 2)
        local = traffic / self.bandwidth
        if s.offload in ("optimizer", "both"):
            there = traffic / self.job.cluster.device.memory[1].bytes_per_s
            local = max(there, local) + owned * (stack.gradient_bytes + 2) / self.host_bytes_per_s
        return local

    def memory(
        self, s: Strategy, stages: tuple[float, float, float], runs: float, layer: Block, first: Block,
        last: Block, shard: int,
    ) -> float:  # fmt: skip
        """Bytes on the fullest device."""
        steady = ((s.vpp + 1) * s.pp - 1) / s.vpp if s.vpp > 1 else s.pp
        late = ((s.vpp - 1) * s.pp + 1) / s.vpp if s.vpp > 1 else 1.0
        held, tail = (runs, runs) if s.schedule == "gpipe" else (min(steady, runs), min(late, runs))
        tokens = s.micro_batch * self.job.seq / s.cp
        logits = self.stack.logits_bytes * tokens * self.vocab / (s.tp if self.stack.splits_logits else 1)
        tied = min(first.parameters, last.parameters) if self.job.graph.tied else 0.0
        ends = first.kept, last.kept
        if s.pp == 1:
            parameters = first.parameters + last.parameters - tied
            return self.stage_bytes(s, stages[1], layer, parameters, sum(ends), held, shard, logits)
        return max(
            self.stage_bytes(s, stages[0], layer, first.parameters, ends[0], held, shard),
            self.stage_bytes(s, stages[1], layer, 0.0, 0.0, max(held - 1, 1.0), shard),
            self.stage_bytes(s, stages[2], layer, last.parameters, ends[1], tail, shard, logits),
        )

    def stage_bytes(
        self, s: Strategy, layers: float, layer: Block, end_parameters: float, end_kept: float, held: float,
        shard: int, logits: float = 0.0,
    ) -> float:  # fmt: skip
        stack = self.stack
        parameters = layers * layer.parameters + end_parameters
        weights = (
            2 * min(parameters / shard + 2 * layer.parameters, parameters) if s.zero == 3 else 2 * parameters
        )
        gradients = stack.gradient_bytes * parameters / (shard if s.zero >= 2 else 1)
        optimizer = stack.optimizer_bytes * parameters / (shard if s.zero >= 1 else 1)
        if s.offload in ("optimizer", "both"):
            optimizer = 0.0
        whole = 2.0 * s.micro_batch * self.job.seq / s.cp * self.hidden
        extra = stack.gathered_inputs * 2 * whole * (1 - 1 / s.tp) if s.sp else 0.0
        gathered = extra if s.pp == 1 and s.recompute != "full" else 0.0
        kept = self.kept_by_layers(s, layers, layer, gathered)
        body = 2 * kept / max(layers, 1) if s.offload in ("activations", "both") else held * kept
        activations = body + held * end_kept + logits
        again = self.kept_bytes(s, layer)["none"] + extra if s.recompute == "full" else 0.0
        activations += stack.workspace * (again + 2 * whole)
        used = weights + gradients + optimizer + activations
        return used * (1 + stack.fragmentation) + stack.context_bytes


def soft_max(a: float, b: float) -> float:
    """The larger of two, a little more where they are close."""
    high, low = max(a, b), min(a, b)
    return high * (1 + (low / high) ** 8) ** 0.125 if high > 0 else 0.0
