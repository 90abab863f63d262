"""Text with units becomes SI numbers and back; a bare number is refused."""

import pytest

from trainwright.errors import BadInput
from trainwright.units import (
    parse_number,
    parse_quantity,
    parse_whole,
    render_bytes,
    render_count,
    render_dollars,
    render_duration,
    render_si,
)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("80 GiB", "bytes", 80 * 2**30),
        ("80GB", "bytes", 80e9),
        ("3.35 TB/s", "bytes/s", 3.35e12),
        ("400 Gb/s", "bytes/s", 50e9),  # bits: 400e9 / 8
        ("200 Gbps", "bytes/s", 25e9),
        ("989 TFLOP/s", "flops/s", 989e12),
        ("1.2 PFLOPS", "flops/s", 1.2e15),
        ("5 us", "s", 5e-6),
        ("5 µs", "s", 5e-6),
        ("2 h", "s", 7200.0),
        ("700 W", "W", 700.0),
        ("2.50 $/h", "$/h", 2.5),
        ("15T", "tokens", 15e12),
        ("300B tokens", "tokens", 300e9),
        ("1_000 B", "bytes", 1000.0),
        ("1e3 B", "bytes", 1000.0),
        ("  8 MiB ", "bytes", 8 * 2**20),
    ],
)
def test_a_quantity_is_read_in_its_base_unit(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-12)


def test_gigabytes_and_gibibytes_differ_by_seven_percent() -> None:
    # 2^30 / 10^9 = 1.0737
    assert parse_quantity("1 GiB", "bytes") / parse_quantity("1 GB", "bytes") == pytest.approx(
        1.0737, abs=1e-4
    )


def test_a_bare_number_is_refused_and_an_example_given() -> None:
    with pytest.raises(BadInput, match=r'memory "80": has no unit; write it like "80 GiB"'):
        parse_quantity("80", "bytes", "memory")


@pytest.mark.parametrize("value", [80, 80.0, None, True])
def test_what_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="not a quantity in bytes"):
        parse_quantity(value, "bytes")


def test_a_unit_of_another_kind_is_refused() -> None:
    with pytest.raises(BadInput, match="unit 'W' is not one of bytes"):
        parse_quantity("80 W", "bytes")


def test_a_negative_quantity_is_refused() -> None:
    with pytest.raises(BadInput, match="is negative"):
        parse_quantity("-1 GB", "bytes")


@pytest.mark.parametrize(
    ("value", "text"),
    [(80 * 2**30, "80.0 GiB"), (1536, "1.5 KiB"), (2**40, "1.0 TiB"), (12, "12 B"), (0, "0 B")],
)
def test_bytes_are_written_in_binary_units(value: float, text: str) -> None:
    assert render_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(3.35e12, "B/s", "3.35 TB/s"), (1234.0, "W", "1.23 kW"), (5e-6, "s", "5 us"), (0.0, "W", "0 W")],
)
def test_numbers_are_written_with_three_digits_and_a_prefix(value: float, unit: str, text: str) -> None:
    assert render_si(value, unit) == text


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (5e-6, "5 us"),
        (0.25, "250 ms"),
        (61.0, "61 s"),
        (600.0, "10 min"),
        (36000.0, "10 h"),
        (864000.0, "10 days"),
    ],
)
def test_durations_are_written_as_people_say_them(value_s: float, text: str) -> None:
    assert render_duration(value_s) == text


def test_what_is_written_can_be_read_again() -> None:
    assert parse_quantity(render_si(3.35e12, "B/s"), "bytes/s") == pytest.approx(3.35e12)
    assert parse_quantity(render_bytes(80 * 2**30), "bytes") == 80 * 2**30


@pytest.mark.parametrize("text", ["1e999 B", "9" * 400 + " B"])
def test_a_quantity_is_finite(text: str) -> None:
    with pytest.raises(BadInput, match="is not finite; write it like"):
        parse_quantity(text, "bytes")


@pytest.mark.parametrize("text", ["1__0 B", "1_ B", "² B"])
def test_digits_that_are_no_number_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"is not one of bytes|not a quantity"):
        parse_quantity(text, "bytes")


@pytest.mark.parametrize("text", ["0", "²", "-1", "1.5", "", "9" * 13, "٣"])
def test_a_whole_number_is_digits_above_zero(text: str) -> None:
    with pytest.raises(BadInput, match="is not a whole number above zero; write it like 8"):
        parse_whole(text, "--batch")


def test_a_whole_number_has_a_limit_where_one_is_given() -> None:
    assert parse_whole("8", "--batch", most=8) == 8
    with pytest.raises(BadInput, match='--batch "9": is more than 8; ask for less'):
        parse_whole("9", "--batch", most=8)


def test_a_plain_number_has_no_unit_and_is_above_zero() -> None:
    assert parse_number("5e6", "--max-dollars", "5e6") == 5e6
    with pytest.raises(BadInput, match="is not a number"):
        parse_number("5 days", "--max-days", "30")
    for text in ("0", "-1", "1e999"):
        with pytest.raises(BadInput, match="is not above zero and finite"):
            parse_number(text, "--max-days", "30")


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("30k$", "$", 30_000.0),
        ("8 ct/kWh", "$/kWh", 0.08),
        ("400 g/kWh", "kg/kWh", 0.4),
        ("18 months", "years", 1.5),
        ("7 /week", "/day", 1.0),
        ("365.25 /device-year", "/device-day", 1.0),
    ],
)
def test_money_and_rates_have_units(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    ("value", "text"), [(15e12, "15T"), (161e9, "161B"), (8.39e6, "8.39M"), (12_000.0, "12k"), (7.0, "7")]
)
def test_counts_have_a_letter(value: float, text: str) -> None:
    assert render_count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12_030_263.0, "$12.0M"),
        (128e6, "$128M"),
        (23_509.0, "$23.5k"),
        (2.4094, "$2.41"),
        (float("inf"), "$inf"),
    ],
)
def test_dollars_have_three_digits(value: float, text: str) -> None:
    assert render_dollars(value) == text
