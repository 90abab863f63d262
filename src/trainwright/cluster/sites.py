"""Clusters of several sites joined by a slow link: `h100:64x2@10Gbps`."""

import re
from dataclasses import replace
from math import prod

from trainwright.cluster.types import Cluster, Level
from trainwright.errors import BadInput
from trainwright.units import parse_quantity

BETWEEN = "between-sites"  # the name of the level
LATENCY_S = 5e-3  # one way over 1,000 km of fibre, which light takes 4.9 us a km for
SITES_EXAMPLE = 'write it like "h100:64x2@10Gbps": 64 devices at each of 2 sites, 10 Gb/s between them'
_SITES = re.compile(r"([^/\\@]+:\d{1,12})x(\d{1,6})(?:@([^/\\@]+))??(?:@([^\\@]*))?")
_MOST_SITES = 4096


def split_sites(text: str) -> tuple[str, int, str] | None:
    """One site, their count and the rate between them, of a text that states several; None of another."""
    match = _SITES.fullmatch(text)
    if match is None:
        return None
    place, sites, network, rate = match.groups()
    if not rate:
        raise BadInput("cluster", text, "does not say how fast the link of a site is", SITES_EXAMPLE)
    if not 2 <= int(sites) <= _MOST_SITES:
        rule = f"has {int(sites)} sites, and takes 2 to {_MOST_SITES:,}"
        raise BadInput("cluster", text, rule, SITES_EXAMPLE)
    return place + (f"@{network}" if network else ""), int(sites), rate


def join_sites(site: Cluster, sites: int, rate: str, name: str) -> Cluster:
    """Sites alike, each with one link of that rate which all of its devices share."""
    levels = site.levels
    if prod(level.size for level in levels) != site.count:
        rule = f"{site.count} devices are no whole number of nodes of {site.node_size}"
        raise BadInput("cluster", name, rule, f"use a multiple of {site.node_size} for each site")
    link = Level(
        name=BETWEEN, size=sites, latency_s=LATENCY_S,
        bytes_per_s=shared_rate(rate, site.count, f"cluster {name}"),
    )  # fmt: skip
    source = f"{site.network.source}; sites of {site.count} joined at {rate}, {LATENCY_S * 1e3:g} ms"
    network = replace(site.network, levels=(*levels, link), source=source)
    return replace(site, name=name, network=network, count=site.count * sites)


def shared_rate(text: object, devices: int, thing: str) -> float:
    """What each of so many devices has of a link that they share, bytes a second."""
    rate = parse_quantity(text, "bytes/s", thing)
    if rate == 0:
        raise BadInput(thing, text, "is zero", "give the rate of the link")
    return rate / devices
