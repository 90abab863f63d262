"""Requests from command lines: a parser of their fields, and the request that its options state."""

import argparse
from dataclasses import fields
from typing import Any, TypeVar

from trainwright.api.fields import FieldForm, Request, flag_of, form_of, is_argument, is_required

RequestT = TypeVar("RequestT", bound=Request)
_GROUPS = {"the smallest cluster": "CLUSTER then states the most devices that may be had, like h100:16384"}


def add_fields(parser: argparse.ArgumentParser, request: type[Request]) -> None:
    """An argument for each field that a request needs, an option for every other."""
    groups: dict[str, Any] = {"": parser}
    for each in fields(request):  # type: ignore[arg-type]
        form = form_of(each)
        if form.group not in groups:
            groups[form.group] = parser.add_argument_group(form.group, _GROUPS.get(form.group))
        if is_argument(each):
            count = "+" if form.words or form.several else None if is_required(each) else "?"
            parser.add_argument(each.name, metavar=form.metavar, nargs=count, help=_help(form))
            continue
        kind: dict[str, Any] = {"metavar": form.metavar, "required": is_required(each)}
        if each.default is False:
            kind = {"action": "store_true"}
        elif each.default == () and form.several:
            kind = {"nargs": "+", "dest": each.name, "default": [], "metavar": form.metavar}
        elif each.default == ():
            kind = {"action": "append", "default": [], "metavar": form.metavar}
        groups[form.group].add_argument(form.flag or flag_of(each.name), help=_help(form), **kind)


def _help(form: FieldForm) -> str:
    return form.help.replace("%", "%%")


def read_request(options: argparse.Namespace, request: type[RequestT]) -> RequestT:
    """The request that options state; what is not stated has the request's defaults."""
    values = {}
    for each in fields(request):  # type: ignore[arg-type]
        value = getattr(options, each.name)
        if form_of(each).words:
            values[each.name] = " ".join(value)
        elif is_argument(each) or each.name in options.given:
            values[each.name] = value
    return request(**values)
