"""Clusters of several sites joined by a slow link: `h100:64x2@10Gbps`, or `h100:64x2@10Gbps@20ms`."""

import re
from dataclasses import dataclass, replace
from math import prod

from trainwright.cluster.types import Cluster, Level
from trainwright.errors import BadInput
from trainwright.units import parse_quantity

BETWEEN = "between-sites"  # the name of the level
LATENCY_S = 5e-3  # one way over 1,000 km of fibre, which light takes 4.9 us a km for
SITES_EXAMPLE = 'write it like "h100:64x2@10Gbps": 64 devices at each of 2 sites, 10 Gb/s between them'
_SITES = re.compile(r"([^/\\@]+:\d{1,12})x(\d{1,6})(?:@([^/\\@]+))??(?:@([^\\@]*))?")
_LATENCY = re.compile(r"@(\d[\d.]*\s*[mun]?s)$")
_MOST_SITES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Sites alike as a text states them: one of them, how many, and the link that each has to the others."""

    site: str
    count: int
    rate: str
    latency_s: float = LATENCY_S


def split_sites(text: str) -> Sites | None:
    """The sites that a text states; None of a text that states none."""
    stated = _LATENCY.search(text)
    match = _SITES.fullmatch(text[: stated.start()] if stated else text)
    if match is None:
        return None
    place, sites, network, rate = match.groups()
    if not rate:
        raise BadInput("cluster", text, "does not say how fast the link of a site is", SITES_EXAMPLE)
    if not 2 <= int(sites) <= _MOST_SITES:
        rule = f"has {int(sites)} sites, and takes 2 to {_MOST_SITES:,}"
        raise BadInput("cluster", text, rule, SITES_EXAMPLE)
    latency_s = parse_quantity(stated[1], "s", f"cluster {text}: latency") if stated else LATENCY_S
    site = place + (f"@{network}" if network else "")
    return Sites(site=site, count=int(sites), rate=rate, latency_s=latency_s)


def join_sites(site: Cluster, stated: Sites, name: str) -> Cluster:
    """Sites alike, each with one link of the stated rate which all of its devices share."""
    levels = site.levels
    if prod(level.size for level in levels) != site.count:
        rule = f"{site.count} devices are no whole number of nodes of {site.node_size}"
        raise BadInput("cluster", name, rule, f"use a multiple of {site.node_size} for each site")
    link = Level(
        name=BETWEEN, size=stated.count, latency_s=stated.latency_s,
        bytes_per_s=shared_rate(stated.rate, site.count, f"cluster {name}"),
    )  # fmt: skip
    joined = f"sites of {site.count} joined at {stated.rate}, {stated.latency_s * 1e3:g} ms"
    source = f"{site.network.source}; {joined}"
    network = replace(site.network, levels=(*levels, link), source=source)
    return replace(site, name=name, network=network, count=site.count * stated.count)


def shared_rate(text: object, devices: int, thing: str) -> float:
    """What each of so many devices has of a link that they share, bytes a second."""
    rate = parse_quantity(text, "bytes/s", thing)
    if rate == 0:
        raise BadInput(thing, text, "is zero", "give the rate of the link")
    return rate / devices
