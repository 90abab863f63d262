"""The request for what is known, and from where."""

from dataclasses import dataclass

from trainwright.api.fields import Request, option

KINDS = ("devices", "networks", "models", "stacks")


@dataclass(frozen=True)
class CatalogRequest(Request):
    """What is known, and from where?"""

    kind: str | None = option("devices, networks, models or stacks", "KIND", is_argument=True)
    name: str | None = option(
        "show one entry in full; of a device with the document of each figure", "NAME", is_argument=True
    )
