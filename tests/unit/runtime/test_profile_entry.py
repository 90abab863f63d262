from pathlib import Path

import pytest

from tests.constant_profile import constant_profile
from trainwright.cost.source import load_profile
from trainwright.errors import BadInput
from trainwright.runtime.profile.entry import render_entry


def test_a_profile_is_written_with_checksums_of_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    text = render_entry(constant_profile(), "here", 2, 2.0**30)
    path.write_text(text)
    found, cluster = load_profile(path)
    assert len(found.kernels) == len(constant_profile().kernels)
    assert cluster.device.name == "here"
    own = cluster.device.memory[0]
    assert own.usable_fraction == 1.0  # what was measured is what the runtime reports
    assert own.usable_bytes == 2.0**30
    assert not found.changed
    path.write_text(text.replace("sizes = [1000, 1000, 1000]", "sizes = [1001, 1000, 1000]"))
    with pytest.raises(BadInput, match=r"the checksum of \[profile\] differs"):
        load_profile(path)
