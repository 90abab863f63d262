"""Clusters, devices and networks by name or file, with errors that help."""

import re
from pathlib import Path

import pytest

from trainwright.cluster import load
from trainwright.cluster.load import find_device_alias, load_cluster, load_device, load_network
from trainwright.cluster.types import Cluster
from trainwright.errors import BadInput, UnknownName

GIB = 2.0**30


def load_text(tmp_path: Path, text: str) -> Cluster:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return load_cluster(str(path))


def sizes(text: str) -> list[tuple[str, int]]:
    return [(level.name, level.size) for level in load_cluster(text).levels]


class TestText:
    def test_a_device_and_a_count_make_a_cluster_on_the_default_network(self) -> None:
        cluster = load_cluster("h100:512")
        assert cluster.device.name == "h100-sxm-80gb"
        assert cluster.network.name == "dgx-h100"
        assert cluster.count == 512
        assert cluster.name == "h100:512"

    def test_another_network_follows_an_at_sign(self) -> None:
        assert load_cluster("h100:16@aws-p5").network.name == "aws-p5"

    def test_case_does_not_matter(self) -> None:
        assert load_cluster("H100:8").device == load_device("h100")

    def test_512_h100_are_64_nodes_of_8(self) -> None:
        assert sizes("h100:512") == [("node", 8), ("fabric", 64)]

    def test_1024_gb200_are_15_racks_of_72(self) -> None:
        assert sizes("gb200:1024") == [("rack", 72), ("fabric", 15)]  # 14 racks hold 1008

    def test_8_v100_are_one_node(self) -> None:
        assert sizes("v100-16gb:8") == [("node", 8)]

    def test_4_of_8_devices_are_a_smaller_node(self) -> None:
        assert sizes("h100:4") == [("node", 4)]

    def test_a_tpu_pod_is_one_torus(self) -> None:
        (level,) = load_cluster("tpu-v4:4096").levels
        assert (level.topology, level.size, level.bytes_per_s) == ("torus3d", 4096, 300e9)
        assert load_cluster("tpu-v5e:256").levels[0].topology == "torus2d"

    def test_two_tpu_pods_are_joined_by_the_data_centre_network(self) -> None:
        assert sizes("tpu-v5e:512") == [("ici", 256), ("dcn", 2)]

    def test_an_oversubscribed_spine_joins_rail_groups(self) -> None:
        cluster = load_cluster("h100:1024@roce-400-rail")
        assert [level.size for level in cluster.levels] == [8, 32, 4]
        assert cluster.levels[-1].oversubscription == 2

    def test_pairs_boxes_and_fabric_nest(self) -> None:
        assert sizes("a100-pcie:16") == [("pair", 2), ("node", 4), ("fabric", 2)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("h100", 'cluster "h100": has no count of devices; write it like "h100:512"'),
            (":8", "has no count of devices"),
            ("", "has no count of devices"),
            ("h100:", 'count "" is not a whole number above zero'),
            ("h100:0", 'count "0" is not a whole number above zero'),
            ("h100:many", 'count "many" is not a whole number above zero'),
            ("h100:-8", 'count "-8" is not a whole number above zero'),
            ("h100:8.5", 'count "8.5" is not a whole number above zero'),
            ("h100:8@", "has no network after @"),
        ],
    )
    def test_a_text_that_is_no_cluster_says_how_to_write_one(self, text: str, message: str) -> None:
        with pytest.raises(BadInput, match=re.escape(message)):
            load_cluster(text)

    def test_an_unknown_device_suggests_the_nearest(self) -> None:
        with pytest.raises(UnknownName, match=r'device "h10": no such name; did you mean "h100"\?'):
            load_cluster("h10:8")

    def test_an_unknown_network_suggests_the_nearest(self) -> None:
        with pytest.raises(UnknownName, match=r'network "aws-p55": no such name; did you mean "aws-p5"\?'):
            load_cluster("h100:8@aws-p55")


class TestFile:
    def test_names_from_the_catalog_are_enough(self, tmp_path: Path) -> None:
        cluster = load_text(tmp_path, 'count = 16\ndevice = "h100"')
        assert cluster.device == load_device("h100")
        assert cluster.network == load_network("dgx-h100")
        assert (cluster.name, cluster.count, cluster.pue) == ("mine", 16, 1.2)

    def test_any_key_of_a_device_can_be_changed(self, tmp_path: Path) -> None:
        cluster = load_text(
            tmp_path,
            """
            name = "fat"
            count = 16
            pue = 1.1
            [device]
            base = "a100"
            peak.bf16 = "400 TFLOP/s"
            peak_power = "450 W"
            [[device.memory]]
            name = "hbm"
            capacity = "160 GiB"
            [[device.memory]]
            name = "pool"
            capacity = "1 TiB"
            bandwidth = "100 GB/s"
            """,
        )
        before, after = load_device("a100"), cluster.device
        assert (cluster.name, cluster.pue) == ("fat", 1.1)
        assert after.peak("bf16") == 400e12
        assert after.peak("tf32") == before.peak("tf32")
        assert after.peak_w == 450
        assert after.memory[0].capacity_bytes == 160 * GIB
        assert after.memory[0].bytes_per_s == before.memory[0].bytes_per_s
        assert [tier.name for tier in after.memory] == ["hbm", "host", "pool"]
        assert "changed in cluster file" in after.source

    def test_usable_memory_of_another_size_is_taken_as_stated(self, tmp_path: Path) -> None:
        head = 'count = 16\n[device]\nbase = "h100"\n[[device.memory]]\nname = "hbm"\n'
        own = load_text(tmp_path, head + 'capacity = "96 GiB"').device.memory[0]
        assert own.usable_fraction is None  # nobody states it: all of the nominal size
        assert own.usable_bytes == 96 * GIB
        own = load_text(tmp_path, head + 'capacity = "96 GiB"\nusable_memory = "95 GiB"').device.memory[0]
        assert own.usable_bytes == pytest.approx(95 * GIB)
        own = load_text(tmp_path, head + 'bandwidth = "4 TB/s"').device.memory[0]
        assert own.usable_bytes == pytest.approx(79.11 * GIB)  # the base's
        own = load_text(tmp_path, head + 'usable_memory = "78 GiB"').device.memory[0]
        assert (own.capacity_bytes, own.usable_bytes) == (80 * GIB, pytest.approx(78 * GIB))

    def test_changing_a_device_leaves_the_catalog_as_it_was(self, tmp_path: Path) -> None:
        before = load_device("a100")
        load_text(tmp_path, 'count = 8\n[device]\nbase = "a100"\npeak.bf16 = "400 TFLOP/s"')
        assert load_device("a100") == before

    def test_any_key_of_a_network_can_be_changed(self, tmp_path: Path) -> None:
        cluster = load_text(
            tmp_path,
            """
            count = 64
            device = "h100"
            [network]
            base = "aws-p5"
            host_power = "300 W"
            [[network.level]]
            name = "fabric"
            bandwidth = "800 Gb/s"
            oversubscription = 3
            """,
        )
        fabric = cluster.network.levels[1]
        assert (fabric.bytes_per_s, fabric.oversubscription) == (100e9, 3)
        assert fabric.latency_s == load_network("aws-p5").levels[1].latency_s
        assert cluster.network.host_w == 300

    def test_a_network_without_a_base_starts_from_the_device_default(self, tmp_path: Path) -> None:
        cluster = load_text(tmp_path, 'count = 8\ndevice = "h100"\n[network]\nhost_power = "1 W"')
        assert (cluster.network.name, cluster.network.host_w) == ("dgx-h100", 1)

    def test_a_machine_that_no_catalog_has_can_be_written_in_full(self, tmp_path: Path) -> None:
        cluster = load_text(
            tmp_path,
            """
            count = 4
            [device]
            name = "x1"
            family = "x"
            compute_units = 10
            buffer = "1 MiB"
            idle_power = "10 W"
            peak_power = "100 W"
            price_per_hour = "1 $/h"
            peak = { bf16 = "10 TFLOP/s" }
            memory = [{ name = "hbm", capacity = "1 GiB", bandwidth = "1 TB/s" }]
            [network]
            name = "x-net"
            host_power = "0 W"
            host_bandwidth = "1 GB/s"
            level = [{ name = "node", size = 4, bandwidth = "10 GB/s", latency = "1 us", topology = "ring" }]
            """,
        )
        assert cluster.device.name == "x1"
        assert [level.topology for level in cluster.levels] == ["ring"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('device = "h100"', '"count": is missing'),
            ("count = 8", '"device": is missing'),
            ('count = 0\ndevice = "h100"', "count 0: is not a whole number above zero"),
            ('count = "8"\ndevice = "h100"', 'count "8": is not a whole number above zero'),
            ('count = true\ndevice = "h100"', "count True: is not a whole number above zero"),
            ("count = 8\ndevice = 5", "device 5: is neither a name nor a table"),
            ('count = 8\ndevice = "h10"', 'did you mean "h100"?'),
            ('count = 8\ndevice = "h100"\npue = 0.5', "pue 0.5: is not a number of at least 1"),
            ('count = 8\ndevice = "h100"\nname = 5', "name 5: is not text"),
            ('cuont = 8\ndevice = "h100"', 'key "cuont": no such name; did you mean "count"?'),
            ('count = 8\n[device]\nbase = "h100"\nbufer = "1 MiB"', 'did you mean "buffer"?'),
            ('count = 8\n[device]\nbase = "h100"\nbuffer = 5', "device buffer 5: not a quantity in bytes"),
            ('count = 8\n[device]\nbase = "h100"\nbuffer = "5"', 'device buffer "5": has no unit'),
            ('count = 8\n[device]\nbase = "h100"\nbuffer = "0 B"', 'device buffer "0 B": is zero'),
            ('count = 8\n[device]\nbase = "h100"\npeak.bf61 = "1 TFLOP/s"', 'did you mean "bf16"?'),
            ('count = 8\n[device]\nbase = "h100"\npeak = "fast"', 'peak "fast": is not a table'),
            ('count = 8\n[device]\nbase = "h100"\nmemory = "80 GiB"', "is not a list of tables"),
            ('count = 8\n[device]\nbase = "h100"\nmemory = [{ capacity = "1 GiB" }]', '"name": is missing'),
            ('count = 8\n[device]\nbase = "h100"\nidle_power = "1 kW"', "is not below peak_power"),
            ("count = 8\n[device]\nbase = 5", "device base 5: is not text"),
            ('count = 8\n[device]\nname = "x"', "is missing; add it, or name a base that has it"),
            ('count = 8\ndevice = "h100"\n[network]\nbase = "nvl27"', 'did you mean "nvl72"?'),
            (
                'count = 8\ndevice = "h100"\n[[network.level]]\nname = "node"\nbandwith = "1 GB/s"',
                'level key "bandwith": no such name; did you mean "bandwidth"?',
            ),
            (
                'count = 8\ndevice = "h100"\n'
                'network = { base = "dgx-h100", level = [{ name = "node", size = 0 }] }',
                'level "node": only the outermost may be open',
            ),
            (
                'count = 8\ndevice = "h100"\n'
                'network = { base = "dgx-h100", level = [{ name = "node", topology = "rings" }] }',
                'topology "rings": no such name; did you mean "ring"?',
            ),
            (
                'count = 64\ndevice = "h100"\n'
                'network = { base = "dgx-h100", level = [{ name = "fabric", size = 2 }] }',
                "its network joins at most 16 devices",
            ),
        ],
    )
    def test_a_mistake_is_named_with_its_remedy(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(BadInput, match=re.escape(message)) as caught:
            load_text(tmp_path, text)
        assert "\n" not in str(caught.value)

    def test_a_file_that_is_not_toml_is_refused_in_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"is not TOML \(.*line 1.*\)") as caught:
            load_text(tmp_path, "count: 8\n")
        assert "\n" not in str(caught.value)

    def test_a_file_that_is_not_text_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.toml"
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(BadInput, match="is not text in UTF-8"):
            load_cluster(str(path))

    def test_a_missing_file_is_named(self) -> None:
        with pytest.raises(BadInput, match=r'cluster file "no/such\.toml": does not exist'):
            load_cluster("no/such.toml")

    def test_a_directory_is_no_cluster(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="cannot be read"):
            load_cluster(f"{tmp_path}/")


class TestAlias:
    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("H100-SXM-80GB", "h100-sxm-80gb"),
            ("H100-SXM-80GB (GCP A3 Mega)", "h100-sxm-80gb"),
            ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
            ("H100-96GB-HBM2e-500W (Meta Grand Teton)", "h100-96gb-500w"),
            ("H100 PCIe", "h100-pcie-80gb"),
            ("NVIDIA H100 NVL", "h100-nvl-94gb"),
            ("H200-SXM-141GB", "h200-sxm-141gb"),
            ("H800", "h800"),
            ("A100-SXM (DGX-A100)", "a100-80gb"),
            ("A100-SXM-40GB", "a100-40gb"),
            ("A100 (40 GB)", "a100-40gb"),
            ("A100-PCIe-80GB", "a100-pcie-80gb"),
            ("A40 pairwise NVLink", "a40"),
            ("Tesla V100", "v100-32gb"),
            ("V100-SXM3-32GB (DGX-2)", "v100-32gb"),
            ("V100-SXM2-16GB", "v100-16gb"),
            ("B200-SXM (AWS p6-b200)", "b200"),
            ("B300", "b300"),
            ("GB200", "gb200"),
            ("GB300 NVL72", "gb300"),
            ("NVIDIA GH200 SXM", "gh200-96gb"),
            ("AMD MI300X", "mi300x"),
            ("AMD Instinct MI250X (per GCD)", "mi250x"),
            ("TPU v4", "tpu-v4"),
            ("TPU v5p", "tpu-v5p"),
            ("TPU v7 (Ironwood)", "tpu-v7"),
            ("Trainium2", "trn2"),
            ("Intel Gaudi 2", "gaudi2"),
        ],
    )
    def test_a_published_name_is_found(self, text: str, name: str) -> None:
        assert find_device_alias(text) == name

    @pytest.mark.parametrize(
        "text", ["A100-SXM-64GB", "A100 (64 GB)", "not stated (NVLink ~A100 class)", "-", ""]
    )
    def test_a_name_that_is_none_or_of_another_size_is_refused(self, text: str) -> None:
        with pytest.raises(UnknownName, match="no such name"):
            find_device_alias(text)

    @pytest.mark.parametrize("kind", ["devices", "networks"])
    def test_no_two_entries_share_an_alias(self, kind: str) -> None:
        names = list(load._names(kind))
        for name in load._names(kind):
            names += load._entry(kind, name)["aliases"]
        assert len(names) == len(set(names))
        assert load._index(kind).keys() == set(names)

    def test_no_two_devices_read_the_same_without_their_package(self) -> None:
        owners: dict[str, set[str]] = {}
        for alias, name in load._index("devices").items():
            owners.setdefault("".join(load._words(alias)), set()).add(name)
        assert all(len(names) == 1 for names in owners.values())


class TestLimits:
    def test_a_cluster_has_at_most_a_million_devices(self, tmp_path: Path) -> None:
        assert load_cluster("h100:1000000").count == 1_000_000
        with pytest.raises(BadInput, match="has more than 1,000,000 devices; ask for fewer"):
            load_cluster("h100:999999999")
        with pytest.raises(BadInput, match="count 1000001: is more than 1,000,000"):
            load_text(tmp_path, 'count = 1000001\ndevice = "h100"\n')

    @pytest.mark.parametrize("text", ["count = " + "[" * 100_000, "count = " + "9" * 5000])
    def test_a_file_too_deep_or_too_long_is_told(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(BadInput, match="has numbers too long or parts too deep"):
            load_text(tmp_path, text)

    def test_a_byte_order_mark_is_no_part_of_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.toml"
        path.write_text('\ufeffcount = 8\ndevice = "h100"\n', encoding="utf-8")
        assert load_cluster(str(path)).count == 8

    def test_a_ratio_has_an_end(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"pue .* is not a number of at least 1"):
            load_text(tmp_path, f'count = 8\ndevice = "h100"\npue = {"9" * 400}\n')
