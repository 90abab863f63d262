"""Questions as they arrive, checked field by field, and the arguments of the command that answers them.

Nothing that arrives is ever a path: models, devices and networks are names of the catalog, and a model's
configuration comes whole.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainwright.cost.change import RESOURCES

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,79}$", max_length=80)]
Amount = Annotated[str, Field(pattern=r"^[0-9][0-9.eE+]{0,15} ?[kKMGTPB]?$", max_length=20, examples=["15T"])]
Share = Annotated[str, Field(pattern=r"^[0-9]{1,2}(\.[0-9]{1,3})?%$", max_length=8)]
Fixed = Annotated[str, Field(pattern=r"^[a-z][a-z_-]{0,19}=[A-Za-z0-9_,.-]{1,60}$", examples=["tp=8"])]
Rate = Annotated[str, Field(pattern=r"^[0-9][0-9.]{0,9}[kMGT]?bps$", max_length=16)]
Latency = Annotated[str, Field(pattern=r"^[0-9][0-9.]{0,9}[mu]?s$", max_length=16)]
Algorithms = Annotated[str, Field(pattern=r"^[a-z][a-z0-9 =,.-]{0,200}$", max_length=200)]
Count = Annotated[int, Field(ge=1, le=100_000_000)]
Resource = Literal[
    "compute", "memory", "memory-bandwidth", "bandwidth", "inner-bandwidth", "outer-bandwidth", "latency"
]
Factor = Annotated[float, Field(ge=0.01, le=100.0, allow_inf_nan=False)]
assert set(Resource.__args__) == set(RESOURCES)  # type: ignore[attr-defined]
WRITTEN_LIKE = {  # of what has a form of its own
    "tokens": "15T", "batch_tokens": "16M", "batch_tolerance": "3%", "fix": "tp=8", "link": "10Gbps",
    "link_latency": "20ms",
    "algorithm": "diloco every=50,ist", "plan": "dp8 tp8 pp8 mb1 1f1b",
}  # fmt: skip
UPLOADED = "config.json"  # what an uploaded configuration is called on a command line


class Subject(BaseModel):
    """A model on a cluster: what every question is about."""

    model_config = ConfigDict(extra="forbid")

    model: Name | None = Field(default=None, description="a model of the catalog", examples=["llama3-70b"])
    config: dict[str, Any] | None = Field(
        default=None, description="a Hugging Face config.json, instead of a model"
    )
    device: Name = Field(default="h100", description="a device of the catalog", examples=["h100"])
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    network: Name | None = Field(default=None, description="a network of the catalog, if not the device's")
    sites: Annotated[int, Field(ge=2, le=4096)] | None = Field(
        default=None, description="so many sites of count devices each, joined by links of the rate"
    )
    link: Rate | None = Field(default=None, description="of a site to the others", examples=["10Gbps"])
    link_latency: Latency | None = Field(
        default=None, description="of that link, if not 5ms", examples=["20ms"]
    )
    change: dict[Resource, Factor] = Field(
        default_factory=dict, description="times a resource of the cluster"
    )
    batch: Count | None = Field(default=None, description="sequences a step")
    batch_tokens: Amount | None = Field(
        default=None, description="tokens a step, instead of sequences: the best batch near them is taken"
    )
    batch_tolerance: Share | None = Field(
        default=None, description="how far the batch may be from the tokens, if not 3%", examples=["5%"]
    )
    seq: Count | None = Field(default=None, description="tokens a sequence")
    stack: Name | None = Field(default=None, description="software, of the catalog")
    optimizer: Name | None = Field(default=None, description="of those that the stack has", examples=["muon"])
    grad_dtype: Literal["fp32", "bf16"] | None = Field(
        default=None, description="of gradients as accumulated and reduced"
    )
    expert_imbalance: Annotated[float, Field(ge=1.0, le=10_000.0, allow_inf_nan=False)] | None = Field(
        default=None, description="routed tokens of the rank with most, relative to the mean", examples=[1.3]
    )

    @model_validator(mode="after")
    def _one_model(self) -> "Subject":
        if (self.model is None) == (self.config is None):
            raise ValueError("name a model, or send a config: one of the two")
        if self.batch is not None and self.batch_tokens is not None:
            raise ValueError("batch and batch_tokens are two ways to state one: leave out one of them")
        if self.batch_tolerance is not None and self.batch_tokens is None:
            raise ValueError("batch_tolerance goes with batch_tokens: state both, or neither")
        if (self.sites is None) != (self.link is None):
            raise ValueError("sites go with a link: state both, or neither")
        if self.link_latency and not self.sites:
            raise ValueError("link_latency goes with sites and a link: state all, or none")
        for name in (self.model, self.device, self.network, self.stack):
            if name and name.lower().endswith((".toml", ".json")):
                raise ValueError(f"{name} is a file, not a name of the catalog")
        return self

    def arguments(self) -> list[str]:
        """Model, cluster, and options that all commands have."""
        at = f"@{self.network}" if self.network else ""
        late = f"@{self.link_latency}" if self.link_latency else ""
        sites, link = (f"x{self.sites}", f"@{self.link}{late}") if self.sites else ("", "")
        words = [self.model or UPLOADED, f"{self.device}:{self.count}{sites}{at}{link}"]
        stated = {
            "batch": self.batch, "batch-tokens": self.batch_tokens, "batch-tolerance": self.batch_tolerance,
            "seq": self.seq, "stack": self.stack, "optimizer": self.optimizer, "grad-dtype": self.grad_dtype,
            "expert-imbalance": self.expert_imbalance,
        }  # fmt: skip
        for name, value in stated.items():
            words += [f"--{name}", str(value)] if value is not None else []
        for name, factor in self.change.items():
            words += ["--change", f"{name}={factor:g}"] if factor != 1 else []
        return words


class RunTerms(BaseModel):
    """What a whole run is told by: its tokens and the price of a device."""

    tokens: Amount | None = Field(default=None, description="to train on")
    price: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = Field(
        default=None, description="dollars a device and hour, if not the catalog's"
    )

    def run_arguments(self) -> list[str]:
        """Its options."""
        words = ["--tokens", self.tokens] if self.tokens is not None else []
        return words + (["--price", f"{self.price:g} $/h"] if self.price is not None else [])


class Plan(Subject, RunTerms):
    """How should this model be trained on this cluster?"""

    precision: Literal["bf16", "fp16", "fp8", "fp4", "fp32"] | None = None

    objective: Literal["time", "cost", "energy", "memory"] = "time"
    fix: list[Fixed] = Field(default_factory=list, max_length=20)
    top: Annotated[int, Field(ge=1, le=200)] = 20
    all_variants: bool = Field(
        default=False, description="every strategy by itself, not one of each set of degrees and sharding"
    )
    pareto: bool = Field(
        default=False, description="also the front of time against memory, which takes longer"
    )

    algorithm: Algorithms | None = Field(
        default=None, description="islands that train apart, beside exact training", examples=["diloco,ist"]
    )
    islands: Annotated[int, Field(ge=2, le=65_536)] | None = Field(
        default=None, description="how many, if not as the levels of the network make"
    )

    @model_validator(mode="after")
    def _one_cluster(self) -> "Plan":
        if self.algorithm and self.pareto:
            raise ValueError("pareto is of exact training: leave it out, or algorithm")
        if self.islands and not self.algorithm:
            raise ValueError("islands go with an algorithm: state both, or neither")
        return self

    def command(self) -> list[str]:
        """As typed."""
        words = ["plan", *self.arguments(), *self.run_arguments()]
        words += ["--algorithm", self.algorithm] if self.algorithm else []
        words += ["--islands", str(self.islands)] if self.islands else []
        words += ["--precision", self.precision] if self.precision else []
        words += ["--objective", self.objective] if "objective" in self.model_fields_set else []
        for each in self.fix:
            words += ["--fix", each]
        words += ["--top", str(self.top)] if self.top != 10 else []
        words += ["--all-variants"] if self.all_variants else []
        return [*words, *(["--pareto"] if self.pareto else [])]


class TracedStep(Subject):
    """When does every task of a step of this plan run?"""

    plan: Annotated[
        str, Field(pattern=r"^[a-z0-9][a-z0-9 =,._+-]{0,300}$", examples=["dp8 tp8 pp8 mb1 1f1b"])
    ]

    @model_validator(mode="after")
    def _no_file(self) -> "TracedStep":
        if self.plan.endswith(".plan") or any(word.startswith("-") for word in self.plan.split()):
            raise ValueError("name a strategy or a plan of the zoo")
        return self

    def command(self) -> list[str]:
        """As typed."""
        words = self.arguments()
        return ["simulate", *words[:2], *self.plan.split(), *words[2:]]


class Simulate(TracedStep, RunTerms):
    """What does a step of this plan do?"""

    def command(self) -> list[str]:
        """As typed."""
        return [*super().command(), *self.run_arguments()]


class Compare(BaseModel):
    """A measured step beside the predicted one: two traces."""

    model_config = ConfigDict(extra="forbid")

    predicted: dict[str, Any] = Field(description="a trace that simulate --trace has written")
    measured: dict[str, Any] = Field(description="a trace that run --record has written")


class Sweep(BaseModel):
    """A design space, as TOML."""

    model_config = ConfigDict(extra="forbid")

    toml: Annotated[str, Field(max_length=20_000)]


class Study(BaseModel):
    """A study by name, with its options."""

    model_config = ConfigDict(extra="forbid")

    options: dict[
        Annotated[str, Field(pattern=r"^[a-z][a-z-]{0,30}$")],
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,:@+-]{0,100}$", max_length=120)]
        | Literal[True],
    ] = Field(default_factory=dict, max_length=20)
