"""Sites joined by a slow link."""

from pathlib import Path

import pytest

from trainwright.cluster.load import build_cluster, load_cluster
from trainwright.errors import BadInput

EXAMPLE = Path(__file__).parents[3] / "examples" / "two_sites.toml"


def test_a_line_and_a_file_state_the_same_two_sites() -> None:
    line, file = load_cluster("h100:64x2@10Gbps"), load_cluster(str(EXAMPLE))
    assert line.levels == file.levels
    assert line.count == file.count == 128
    # 10 Gb/s are 1.25 GB/s, which the 64 devices of a site share: 19.5 MB/s each
    assert line.levels[-1].bytes_per_s == 1.25e9 / 64


def test_a_network_may_be_named_before_the_rate() -> None:
    cluster = load_cluster("h100:16x4@aws-p5@1Gb/s")
    assert [level.size for level in cluster.levels] == [8, 2, 4]
    assert cluster.levels[-1].bytes_per_s == 125e6 / 16


def test_a_latency_may_follow_the_rate() -> None:
    near, far = load_cluster("h100:64x2@10Gbps"), load_cluster("h100:64x2@dgx-h100@10Gbps@20ms")
    assert (near.levels[-1].latency_s, far.levels[-1].latency_s) == (5e-3, 20e-3)
    assert near.levels[:-1] == far.levels[:-1]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("h100:64x2", "how fast the link"),
        ("h100:64x1@10Gbps", "takes 2 to"),
        ("h100:60x2@10Gbps", "no whole number of nodes of 8"),
        ("h100:64x2@dgx-h100", "not a quantity"),
        ("h100:64x2@10", "has no unit"),
        ("h100:64x2@0Gbps", "is zero"),
        ("h100:64x2@20ms", "how fast the link"),
        ("h100:64x2@10Gbps@1.2.3ms", "is not one of s"),
    ],
)
def test_what_is_wrong_with_sites_is_told(text: str, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        load_cluster(text)


def test_a_shared_link_needs_to_know_who_shares_it() -> None:
    level = {"name": "wan", "size": 2, "group_bandwidth": "10 Gb/s", "latency": "5 ms"}
    table = {"count": 128, "device": "h100", "network": {"base": "dgx-h100", "level": [level]}}
    with pytest.raises(BadInput, match="whose size is open"):
        build_cluster(table, "cluster", "wan")
    level["bandwidth"] = "1 GB/s"
    with pytest.raises(BadInput, match="beside bandwidth"):
        build_cluster(table, "cluster", "wan")
