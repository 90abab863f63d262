"""The closed form once more, as one would first write it: plain floats, one strategy at a time.

It knows one kind of model, a GPT without experts in 16 bit with fused attention, and shares no code with the
package but the facts (device, links, constants). It is what `estimate` is measured against and checked by.
"""

from dataclasses import dataclass
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
    weights_s: float  # of its backward, what a schedule puts off
    gather_s: float  # each way
    scatter_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A forward, a backward, weight gradients put off; forward and backward as a microbatch passes."""

    forward_s: float
    inputs_s: float
    weights_s: float
    passing_forward_s: float
    passing_inputs_s: float
    idle: tuple[float, float] = (0.0, 0.0)  # of a layer: waits for gathers
    offload: tuple[float, float] = (0.0, 0.0)  # of a stage: waits for copies

    @property
    def seconds(self) -> float:
        return self.forward_s + self.inputs_s + self.weights_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies of a layer's activations out and back: what they add to layers that wait, and that do not."""

    one_s: float
    ahead_s: float  # a layer's forward
    send_s: float
    waits: tuple[float, float]
    beside: tuple[float, float]
    in_turn: float  # share of actions that follow one of the other kind
    overlap: bool

    def shown(self, layers: float, chunks: int, stays: int) -> tuple[float, float]:
        """Of a stage and microbatch; the last layer of so many chunks stays."""
        n, found = layers / chunks, []
        for way, fewer in enumerate((2, 1)):
            waiting = chunks * (n - self.in_turn * min(n, fewer))
            moved = layers - min(stays, layers)
            found.append(moved * self.beside[way] + waiting * (self.waits[way] - self.beside[way]))
        first = max(self.one_s - n * self.ahead_s - self.send_s, 0.0) if self.overlap else 0.0
        return found[0], found[1] + self.in_turn * (chunks - stays) * first

    def passing(self, n: float) -> tuple[float, float]:
        """Of a chunk that has waited, so that its first copy back is there."""
        beside = max(n - 1, 0.0) if self.overlap else n
        out = beside * self.beside[0] + max(n - 2, 0.0) * (self.waits[0] - self.beside[0])
        return out, max(n - 1, 0.0) * self.waits[1]


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
        cp_alone = 2 * gather - min(2 * gather * share, attention[1])
        weights = matmul[2] if s.tp == 1 and stack.tp_overlap * on > 0 else 0.0  # they fill the ring's stalls
        cp_back = 2 * gather - min(2 * gather * share, attention[1] + weights)
        calls = 2 * sums if s.tp > 1 else 0
        host = (kernels + calls) * stack.op_s
        behind = soft_max(backward + tp_back + cp_back, host)
        regather = 0.5 * tp * (1 - stack.tp_overlap * on) if s.sp else 0.0
        return Block(
            forward_s=soft_max(forward + tp * (1 - stack.tp_forward_overlap * on) + cp, host),
            backward_s=behind,
            without_weight_s=min(soft_max(backward - matmul[2] + tp + cp_alone, host), behind),
            again_s=sum(stream_times[index][0] for index in repeated) + regather, kept=kept,
            kept_selective=kept - remade, parameters=parameters,
        )  # fmt: skip

    def __call__(self, s: Strategy) -> Answer:
        """Step time and memory of one strategy."""
        layer, first, last = (self.block(s, kind) for kind in ("layer", "embedding", "head"))
        stages = self.stages(s)
        microbatches = self.batch / (s.dp * s.micro_batch)
        send, wait = self.sends(s, stages[1])
        passes = self.passes(s, layer)
        times = self.layer_times(s, passes, max(stages[1] / s.vpp, 1.0), send)
        ends = self.end_times(s, first, passes), self.end_times(s, last, passes)
        copies = self.copies(s, layer, stages[1], times, microbatches, send)
        pipeline, away = self.pipeline_s(s, stages, times, ends, copies, send, microbatches)
        owned = self.owned(s, stages, (layer, first, last))
        edge = min((first.parameters + layer.parameters) / owned[0], 1.0)
        reduce = self.reduce_s(s, max(owned), edge, stages[1], times, away)
        update = self.update_s(s, max(owned) / (self.shard(s) if s.zero else 1))
        return Answer(
            step_s=pipeline + microbatches * wait + reduce + update + self.stack.step_s,
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
        gather, scatter = self.zero3_s(s, layer.parameters)
        put_off = layer.backward_s - layer.without_weight_s if s.schedule == "zb" else 0.0
        return Passes(
            forward_s=layer.forward_s, backward_s=layer.backward_s + again, weights_s=put_off,
            gather_s=gather, scatter_s=scatter,
        )  # fmt: skip

    def gathers_overlap(self, s: Strategy) -> float:
        return self.stack.dp_overlap if s.overlap else 0.0

    def layer_times(self, s: Strategy, passes: Passes, chunk: float, send: float) -> Times:
        """A layer with what it shows of ZeRO's gathers, on a stage whose chunks have so many."""
        share, later = self.gathers_overlap(s), s.schedule == "zb"
        inputs = passes.backward_s - passes.weights_s
        beside = passes.gather_s + (0.0 if later else passes.scatter_s)
        there, here = passes.forward_s + send / chunk, inputs + send / chunk
        out, back = self.shown_s(there, passes.gather_s, share), self.shown_s(here, beside, share)
        met = self.shown_s(there, beside, share) + self.shown_s(here, passes.gather_s, share)
        mean = back if later else back + (met - out - back) / chunk
        lasting = 1 - share * (1 - self.stack.interference)
        idle = out - lasting * passes.gather_s, back - lasting * beside
        scattered = self.shown_s(passes.weights_s, passes.scatter_s, share) if later else 0.0
        # A stage that waits has gathered its first layer's weights by then.
        return Times(
            forward_s=passes.forward_s + out, inputs_s=inputs + mean, weights_s=passes.weights_s + scattered,
            passing_forward_s=passes.forward_s + out - idle[0] / chunk,
            passing_inputs_s=inputs + back - idle[1] / chunk, idle=idle,
        )  # fmt: skip

    def end_times(self, s: Strategy, end: Block, passes: Passes) -> Times:
        """One end of the model, whose ZeRO gathers hide beside itself and what the next layer leaves."""
        share = self.gathers_overlap(s)
        work = end.forward_s + end.backward_s
        slack = max(passes.forward_s - share * passes.gather_s, 0.0)
        slack += max(passes.backward_s - share * (passes.gather_s + passes.scatter_s), 0.0)
        gather, scatter = self.zero3_s(s, end.parameters)
        shown = self.shown_s(work + slack, 2 * gather + scatter, share)
        weights = end.backward_s - end.without_weight_s if s.schedule == "zb" else 0.0
        inputs = end.backward_s + shown - weights
        return Times(
            forward_s=end.forward_s, inputs_s=inputs, weights_s=weights, passing_forward_s=end.forward_s,
            passing_inputs_s=inputs,
        )  # fmt: skip

    def copies(
        self, s: Strategy, layer: Block, layers: float, times: Times, microbatches: float, send: float
    ) -> Copies | None:
        """A layer's activations on their way to the host and back."""
        if s.offload not in ("activations", "both"):
            return None
        whole = 2.0 * s.micro_batch * self.job.seq / s.cp * self.hidden
        extra = self.stack.gathered_inputs * 2 * whole * (1 - 1 / s.tp) if s.sp else 0.0
        extra = 0.0 if s.recompute == "full" else extra
        one = self.kept_by_layers(s, layers, layer, extra) / max(layers, 1.0) / self.host_bytes_per_s
        waits, beside = [one, one], [one, one]
        for way, work in enumerate((times.forward_s, times.inputs_s)) if s.overlap else ():
            beside[way] = max(self.stack.interference * min(one, work) - times.idle[way], 0.0)
            waits[way] = max(beside[way], one - work)
        turns = 1 / microbatches if s.schedule == "gpipe" else 1.0
        if s.vpp > 1:
            turns = 1 - min(s.pp / microbatches, 1.0)
        return Copies(
            one_s=one, ahead_s=times.forward_s, send_s=send, waits=(waits[0], waits[1]),
            beside=(beside[0], beside[1]), in_turn=turns, overlap=s.overlap,
        )  # fmt: skip

    def pipeline_s(
        self, s: Strategy, stages: tuple[float, float, float], layer: Times, ends: tuple[Times, Times],
        copies: Copies | None, send: float, microbatches: float,
    ) -> tuple[float, tuple[float, float]]:  # fmt: skip
        """All microbatches; and what a middle stage shows of copies."""
        nothing = Times(
            forward_s=0.0, inputs_s=0.0, weights_s=0.0, passing_forward_s=0.0, passing_inputs_s=0.0
        )
        passing = copies.passing(self.layers / s.pp / s.vpp) if copies else (0.0, 0.0)

        def stage(layers: float, sends: tuple[int, int], stays: int, *parts: Times) -> Times:
            away = copies.shown(layers, s.vpp, stays) if copies else (0.0, 0.0)
            received = sends[0] * send, sends[1] * send
            total = [layers * getattr(layer, name) + sum(getattr(each, name) for each in parts)
                     for name in ("forward_s", "inputs_s", "weights_s", "passing_forward_s",
                                  "passing_inputs_s")]  # fmt: skip
            return Times(
                forward_s=total[0] + away[0] + received[0], inputs_s=total[1] + away[1] + received[1],
                weights_s=total[2], passing_forward_s=total[3] + s.vpp * passing[0] + received[0],
                passing_inputs_s=total[4] + s.vpp * passing[1] + received[1], offload=away,
            )  # fmt: skip

        turns = int(s.schedule != "gpipe" or microbatches == 1)
        v, alone = s.vpp, s.pp == 1
        middle = stage(stages[1], (v, v), 0, nothing)
        if alone:
            only = stage(stages[0], (0, 0), turns, *ends)
            return microbatches * only.seconds, middle.offload
        first = stage(stages[0], (v - 1, v), 0, ends[0])
        last = stage(stages[2], (v, v - 1), turns, ends[1])
        if v > 1:
            chunks = self.chunks_s(s, stages, layer, ends, middle, last, send)
            rows = (s.pp - 1) / v * (middle.passing_forward_s + middle.passing_inputs_s)
            return microbatches * chunks + rows, middle.offload
        whole = [
            self.layers * one + sum(two) + s.pp * away + (s.pp - 1) * send
            for one, two, away in (
                (layer.passing_forward_s, [each.forward_s for each in ends], passing[0]),
                (layer.passing_inputs_s, [each.inputs_s for each in ends], passing[1]),
            )
        ]
        listed = [(first, 0), (last, s.pp - 1)] + ([(middle, self.row(s))] if s.pp > 2 else [])
        return max(
            self.path_s(s, each, row, (first, middle), whole, microbatches) for each, row in listed
        ), middle.offload

    def path_s(
        self, s: Strategy, stage: Times, row: int, firsts: tuple[Times, Times], whole: list[float],
        microbatches: float,
    ) -> float:  # fmt: skip
        """The longest way through a step that stays on one row for all microbatches."""
        first, middle = firsts
        ahead = 0.0 if s.schedule == "gpipe" else min(s.pp - 1 - row, microbatches - 1) * stage.forward_s
        after = whole[1] - first.passing_inputs_s - row * middle.passing_inputs_s
        after = 0.0 if row == s.pp - 1 else after
        before = whole[1] - stage.passing_inputs_s - after
        left = first.weights_s - (1 + min(row, microbatches - 1)) * stage.weights_s
        others = whole[0] - stage.passing_forward_s - ahead + after + max(before + left, 0.0)
        return microbatches * stage.seconds + max(others, 0.0)

    def chunks_s(
        self, s: Strategy, stages: tuple[float, float, float], layer: Times, ends: tuple[Times, Times],
        middle: Times, last: Times, send: float,
    ) -> float:  # fmt: skip
        """Of an interleaved microbatch: rows go through its chunks in step."""
        one, (a, m, z) = layer.forward_s + layer.inputs_s, stages
        least, left = m // s.vpp, z // s.vpp
        left = least if left == 0 and s.pp > 2 else left
        start = max(ceil(m / s.vpp) * one, ceil(a / s.vpp) * one + ends[0].forward_s + ends[0].inputs_s)
        stays = sum(middle.offload) - sum(last.offload)
        end = max(least * one, left * one + ends[1].forward_s + ends[1].inputs_s - stays)
        between = (s.vpp - 2) * ceil(m / s.vpp) * one
        return between + start + end + sum(middle.offload) + 2 * s.vpp * send

    def row(self, s: Strategy) -> int:
        """The last stage between the ends that has as many layers as any."""
        rest, chunks = self.layers % s.pp, s.pp * s.vpp
        relieved = self.layers % chunks and (self.layers + 2) % chunks == 0 and s.pp > 2
        return min(rest, s.pp - 2) if rest and not relieved else s.pp - 2

    def zero3_s(self, s: Strategy, parameters: float) -> tuple[float, float]:
        """Per microbatch: a gather of weights (ZeRO-3), the scatter of gradients (ZeRO-2 and 3)."""
        shard = self.shard(s)
        if s.zero < 2 or shard == 1:
            return 0.0, 0.0
        gather = self.all_gather_s(shard, s.tp, 2 * parameters) if s.zero == 3 else 0.0
        return gather, self.all_gather_s(shard, s.tp, self.stack.reduce_bytes * parameters)

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
        """An exposed send; and what some stacks lose beside sends per microbatch."""
        if s.pp == 1:
            return 0.0, 0.0
        stack = self.stack
        payload = 2.0 * s.micro_batch * self.job.seq / s.cp * self.hidden / s.tp
        one = self.send_s(s.tp * s.cp * s.dp, payload) + stack.send_s
        nodes = s.devices / self.job.cluster.node_size
        wait = (
            stack.pipeline_tp_s * middle * (s.tp if s.tp > 1 else 0)
            + stack.pipeline_stall_s * min(nodes / 64, 1) ** 8
        )
        return one * (1 - (stack.pp_overlap if s.overlap else 0.0)), wait

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
        self, s: Strategy, owned: float, edge: float, layers: float, times: Times, away: tuple[float, float]
    ) -> float:
        """What shows of reductions behind the last backward and of gathers of new weights behind the first
        forward; the `edge`, the share of the first layer and the embedding, is beside nothing.
        """
        reduce, renew = self.reductions_s(s, owned, layers)
        share = self.stack.zero_overlap if s.zero in (1, 2) else self.stack.dp_overlap
        share = share if s.overlap else 0.0
        inner = max(layers - 1, 0.0)
        total = 0.0
        for whole, work, waits in (
            (reduce, times.inputs_s + times.weights_s, away[1]),
            (renew, times.forward_s, away[0]),
        ):
            beside = inner * work + waits * inner / max(layers, 1.0)
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
