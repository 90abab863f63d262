"""Questions as they arrive: the fields of a request, except that nothing may be a path.

Models, devices and networks are names of the catalog, and a model's configuration comes whole.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from trainwright.api.fields import Request, check_keywords, flag_of, form_of
from trainwright.api.plan_request import PlanRequest
from trainwright.api.requests import SimulateRequest
from trainwright.api.terms_fields import TermsFields
from trainwright.errors import BadInput

RequestT = TypeVar("RequestT", bound=Request)
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,79}$", max_length=80)]
Rate = Annotated[str, Field(pattern=r"^[0-9][0-9.]{0,9}[kMGT]?bps$", max_length=16)]
Latency = Annotated[str, Field(pattern=r"^[0-9][0-9.]{0,9}[mu]?s$", max_length=16)]
WRITTEN_LIKE = {"link": "10Gbps", "link_latency": "20ms", "plan": "dp8 tp8 pp8 mb1 1f1b"}
_LONGEST = 300  # characters of a text, and parts of a list


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
    cost: Literal["roofline", "calibrated"] | None = Field(
        default=None, description="operator times, if not calibrated"
    )

    @model_validator(mode="after")
    def _check(self) -> "Subject":
        if (self.model is None) == (self.config is None):
            raise ValueError("name a model, or send a config: one of the two")
        if (self.sites is None) != (self.link is None):
            raise ValueError("sites go with a link: state both, or neither")
        if self.link_latency and not self.sites:
            raise ValueError("link_latency goes with sites and a link: state all, or none")
        for name in (self.model, self.device, self.network):
            if name and name.lower().endswith((".toml", ".json")):
                raise ValueError(f"{name} is a file, not a name of the catalog")
        for name in self.model_fields_set - {"config"}:
            value = getattr(self, name)
            if len(str(value)) > _LONGEST:
                raise ValueError(f"{name} is longer than {_LONGEST} characters")
        return self

    def build(self, request: type[RequestT]) -> RequestT:
        """The request that the fields state."""
        known = {each.name for each in fields(request)} - {"model", "cluster"}  # type: ignore[arg-type]
        stated = {name: getattr(self, name) for name in known & self.model_fields_set}
        return request(model=self.model or self.config, cluster=self._cluster(), **stated)  # type: ignore[call-arg]

    def _cluster(self) -> str:
        at = f"@{self.network}" if self.network else ""
        late = f"@{self.link_latency}" if self.link_latency else ""
        sites, link = (f"x{self.sites}", f"@{self.link}{late}") if self.sites else ("", "")
        return f"{self.device}:{self.count}{sites}{at}{link}"


class Step(Subject):
    """A plan for a model on a cluster."""

    plan: Annotated[
        str, Field(pattern=r"^[a-z0-9][a-z0-9 =,._+-]{0,300}$", examples=["dp8 tp8 pp8 mb1 1f1b"])
    ]

    @model_validator(mode="after")
    def _no_file(self) -> "Step":
        if self.plan.endswith((".plan", ".json")) or any(word.startswith("-") for word in self.plan.split()):
            raise ValueError("name a strategy or a plan of the zoo")
        return self


def _body(name: str, base: type[Subject], request: type[Request], but: Iterable[str] = ()) -> type[Subject]:
    """A body with the fields of a request, but for some and those that name files."""
    left_out = {*but, *base.model_fields}
    added: dict[str, Any] = {
        each.name: (each.type, Field(default=each.default, description=form_of(each).help))
        for each in fields(request)  # type: ignore[arg-type]
        if each.name not in left_out and not form_of(each).is_file
    }
    return create_model(name, __base__=base, __doc__=request.__doc__, **added)


Plan = _body("Plan", Subject, PlanRequest)
Simulate = _body("Simulate", Step, SimulateRequest)
# What a trace does not show is no field of its request.
TracedStep = _body("TracedStep", Step, SimulateRequest, (*TermsFields.__dataclass_fields__, "free"))


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

    def build(self, request: type[RequestT]) -> RequestT:
        """The request that the options state; none of them may name a file."""
        stated = {option.replace("-", "_"): value for option, value in self.options.items()}
        check_keywords(request, "study", stated)
        for each in fields(request):  # type: ignore[arg-type]
            if each.name in stated and form_of(each).is_file:
                rule = "names a file, which only a terminal may do"
                raise BadInput(flag_of(each.name), str(stated[each.name]), rule, "leave it out")
        return request(**stated)
