"""What a field of a request means: its help, how users write it, and whether a request states it."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from trainwright.errors import BadInput

if TYPE_CHECKING:
    from trainwright.cluster.types import Cluster
    from trainwright.model.architecture import Architecture
    from trainwright.model.graph import Graph
    from trainwright.runtime.tracing.traced import Traced

Whole: TypeAlias = int | str  # a whole number, or its digits
Quantity: TypeAlias = int | float | str  # a number in the unit of the field, or text with a unit
Pairs: TypeAlias = Mapping[str, Any] | Sequence[str] | str  # NAME=VALUE
Range: TypeAlias = tuple[int, int] | str
FilePath: TypeAlias = str | PathLike[str]
ModelSource: TypeAlias = Union[FilePath, Mapping[str, Any], "Architecture", "Graph", "Traced"]
ClusterSource: TypeAlias = Union[FilePath, Mapping[str, Any], "Cluster"]

MODEL_HELP = "a catalog name, a Hugging Face config.json, or a TOML file"
CLUSTER_HELP = '"h100:512", "h100:512@aws-p5", or a TOML file'


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldForm:
    """How users meet a field: its help, what stands for its value, its group, and what it excludes.

    Of the fields of a request with one name in `either`, at most one may be stated. `words`: the value may be
    several words of a command line. `separator` joins the parts of a value.
    """

    help: str
    metavar: str = ""
    group: str = ""
    either: str = ""
    flag: str = ""  # on a command line, if it is not the name of the field
    separator: str = ""
    unit: str = ""  # of a number, where text has one
    words: bool = False
    several: bool = False  # whether an argument may be repeated
    is_argument: bool = False  # whether a field that may be left out is an argument all the same
    is_file: bool = False  # whether it may name a file to read


def described(help_text: str, metavar: str = "", **form: Any) -> Mapping[str, FieldForm]:
    """The metadata of a field."""
    return MappingProxyType({"form": FieldForm(help=help_text, metavar=metavar, **form)})


def option(help_text: str, metavar: str = "", *, default: Any = None, **form: Any) -> Any:
    """A field that may be left out."""
    return field(default=default, metadata=described(help_text, metavar, **form))


def form_of(each: "Field[Any]") -> FieldForm:
    """The form of a field."""
    form: FieldForm = each.metadata["form"]
    return form


def flag_of(name: str) -> str:
    """A field as a command line writes it."""
    return f"--{name.replace('_', '-')}"


def is_required(each: "Field[Any]") -> bool:
    """Whether a field has no default."""
    return each.default is MISSING


def is_argument(each: "Field[Any]") -> bool:
    """Whether a field is an argument of a command line, not an option."""
    form = form_of(each)
    return form.is_argument or (is_required(each) and not form.flag)


def is_stated(request: Any, name: str) -> bool:
    """Whether a request says anything in a field."""
    value = getattr(request, name)
    return (
        value is not None and value is not False and not (isinstance(value, Sequence | Mapping) and not value)
    )


def refuse(request: Any, names: Iterable[str], rule: str, remedy: str = "leave it out") -> None:
    """Raise for the first of some fields that a request states."""
    for name in names:
        if is_stated(request, name):
            form = form_of(request.__dataclass_fields__[name])
            raise BadInput(flag_of(name), _stated_text(form, getattr(request, name)), rule, remedy)


class Request:
    """What all requests share: of fields that exclude each other one is stated; flags are true or false."""

    def __post_init__(self) -> None:
        stated: dict[str, str] = {}
        for each in fields(self):  # type: ignore[arg-type]
            value, form = getattr(self, each.name), form_of(each)
            flag = form.flag or flag_of(each.name)
            if isinstance(each.default, bool) and not isinstance(value, bool):
                raise BadInput(each.name, value, "is neither True nor False", "write True, or leave it out")
            if value == "" and not is_required(each):
                raise BadInput(flag, "", "is empty", "state a value, or leave it out")
            if not form.either or not is_stated(self, each.name):
                continue
            if form.either in stated:
                rule = f"is not allowed with argument {stated[form.either]}"
                raise BadInput(flag, value_text(value), rule, "state one of the two")
            stated[form.either] = flag


def check_keywords(request: Any, function: str, keywords: Iterable[str]) -> None:
    """Raise for a keyword that is no field of a request; its nearest field is suggested."""
    known = [each.name for each in fields(request)]
    for name in keywords:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.6)
            remedy = f"did you mean {near[0]}?" if near else f"see help({function})"
            raise BadInput("option", name, f"{function} has no such option", remedy)


def value_text(value: object, separator: str = ",") -> str:
    """A value as a user would type it; nothing of a flag."""
    if value is True:
        return ""
    if isinstance(value, Mapping):
        return separator.join(pair_texts(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return separator.join(value_text(each) for each in value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def pair_texts(value: Pairs) -> tuple[str, ...]:
    """Pairs as texts like `pp=1,2`."""
    if isinstance(value, Mapping):
        return tuple(f"{name}={value_text(each)}" for name, each in value.items())
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _stated_text(form: FieldForm, value: object) -> str:
    """The value of a field as a user would type it, with its unit."""
    if form.unit and isinstance(value, int | float) and value is not True:
        return f"{100 * value:.12g}%" if form.unit == "%" else f"{value} {form.unit}"
    return value_text(value, form.separator or ", ")


def source_text(value: ModelSource | ClusterSource) -> str:
    """The name or path of a model or a cluster; nothing of one that is an object."""
    return str(value) if isinstance(value, str | PathLike) else ""


def command_words(command: str, request: Any) -> list[str]:
    """The command line that asks what a request asks; an object is named as what it is."""
    words = command.split()
    for each in fields(request):
        value, form = getattr(request, each.name), form_of(each)
        if is_argument(each):
            words += str(value).split() if form.words else _argument_words(value)
        elif is_stated(request, each.name) and value != each.default:
            words += _option_words(form.flag or flag_of(each.name), form, value)
    return words


def _argument_words(value: object) -> list[str]:
    if value is None or isinstance(value, list | tuple):
        return [str(each) for each in value or ()]
    if isinstance(value, str | PathLike):
        return [str(value)]
    return ["config.json" if isinstance(value, Mapping) else str(getattr(value, "name", value))]


def _option_words(flag: str, form: FieldForm, value: object) -> Iterator[str]:
    if value is True:
        yield flag
    elif form.separator or isinstance(value, str | int | float | PathLike):
        yield from (flag, _stated_text(form, value))
    else:
        for text in pair_texts(value):  # type: ignore[arg-type]
            yield from (flag, text)


def render_command(command: str, request: Any) -> str:
    """The command line that asks what a request asks, as a shell reads it."""
    return shlex.join(["trainwright", *command_words(command, request)])
