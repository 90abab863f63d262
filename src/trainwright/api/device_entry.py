"""A device of the catalog with the document, date and confidence of each of its figures."""

from collections.abc import Mapping

from trainwright.cluster.load import load_device, load_figure_sources


def device_entry(name: str) -> Mapping[str, object]:
    """The device for JSON: its fields, nominal and usable bytes of its memory, and sources by figure."""
    device = load_device(name)
    fields = {field: getattr(device, field) for field in device.__dataclass_fields__}
    tiers = [
        {field: getattr(tier, field) for field in tier.__dataclass_fields__}
        | {"usable_bytes": tier.usable_bytes}
        for tier in device.memory
    ]
    return fields | {"memory": tiers, "sources": load_figure_sources(name)}
