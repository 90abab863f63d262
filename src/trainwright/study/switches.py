"""What a study of compute and communication may change in every model at once."""

from dataclasses import dataclass

from trainwright.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """Extensions of the plain case: training of dense layers, tensor and data parallelism, rings."""

    experts: int = 0  # 0: dense
    top_k: int = 1  # experts that a token goes to
    sequence_parallel: bool = False
    stages: int = 1
    microbatches: int = 0  # in flight through the stages; 0: four a stage
    fsdp: bool = False
    inference: bool = False
    in_network_reduction: bool = False
    interference: float = 0.0  # seconds lost for each second that compute and communication share
    offload: bool = False
    replicas: int = 16  # of data parallelism

    def __post_init__(self) -> None:
        if self.experts and self.top_k > self.experts:
            rule = "a token goes to more experts than there are"
            raise BadInput("--moe", f"{self.experts}:{self.top_k}", rule, "lower the number after the colon")
        if self.inference and self.fsdp:
            raise BadInput(
                "--fsdp", "--inference", "there are no gradients to exchange", "leave one of them out"
            )

    @property
    def felt_interference(self) -> float:
        """What is left of interference: nothing, where communication has units of its own."""
        return 0.0 if self.offload else self.interference

    @property
    def in_flight(self) -> int:
        """Microbatches of a step."""
        return self.microbatches or 4 * self.stages

    @property
    def idle_share(self) -> float:
        """Idle time of a pipeline over its busy time: (P−1)/m."""
        return (self.stages - 1) / self.in_flight

    def told(self) -> tuple[str, ...]:
        """Each switch that is on, with its formula."""
        lines: list[str] = []
        if self.experts:
            lines.append(
                f"--moe: {self.experts} experts on as many devices, {self.top_k} a token; the FFN has "
                f"{self.top_k}x the rows; two all-to-alls a layer and pass of b·B·SL·H·{self.top_k} bytes"
            )
        if self.sequence_parallel:
            lines.append(
                "--sequence-parallel: each all-reduce is a reduce-scatter and an all-gather, half as long "
                "each; norms and residuals take 1/TP"
            )
        if self.stages > 1:
            lines.append(
                f"--pipeline: {self.stages} stages divide the TP that memory requires; two sends of b·B·SL·H "
                f"bytes for each stage's layers; idle {self.idle_share:.0%} of the busy time "
                f"({self.in_flight} microbatches)"
            )
        if self.fsdp:
            lines.append(
                "--fsdp: two gathers of weights and a scatter of gradients are 1.5x the data-parallel "
                "volume, compared with the same compute (the forward pass could hide a third of it)"
            )
        if self.inference:
            lines.append("--inference: forward only, two all-reduces a layer, no gradients")
        if self.in_network_reduction:
            others = self.sequence_parallel or self.fsdp
            rest = "; scatters and gathers of other switches do not profit" if others else ""
            lines.append(
                f"--in-network-reduction: an all-reduce sends 1 instead of 2(n−1)/n of its bytes{rest}"
            )
        if self.interference:
            lines.append(
                f"--interference: each second that data-parallel communication runs beside compute costs "
                f"{self.interference:g} s more"
            )
        if self.offload:
            gain = "" if self.interference else "; there is none to remove (--interference is 0)"
            lines.append(
                f"--offload-communication: collectives run beside compute without interference{gain}"
            )
        return tuple(lines)
