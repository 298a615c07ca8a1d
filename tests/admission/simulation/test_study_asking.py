"""What people type becomes what they meant, or one line that says what is wrong."""

from __future__ import annotations

import pytest

from admission.core.limits.aimd import AimdConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.settings import ControllerConfig
from admission.simulation.asking import AskedWronglyError, bound, loads, number, seeds, window, words


def test_loads_are_factors_in_order_and_once() -> None:
    """A factor that is there twice would cost twice and say nothing new."""
    assert loads("0.5, 1,2,1") == (0.5, 1.0, 2.0)


@pytest.mark.parametrize("text", ["0", "-1", "1,0", "nan", "inf", "two", "", " , ", "1,,2", "1,", "1e9"])
def test_a_load_is_over_zero(text: str) -> None:
    """Nothing arrives at load 0; a typing error must not run for a day."""
    with pytest.raises(AskedWronglyError, match="--load"):
        loads(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("3", (0, 1, 2)), ("7,8", (7, 8)), ("7,", (7,)), ("5,5,6", (5, 6)), ("1", (0,))]
)
def test_seeds_are_a_count_or_a_list(text: str, meant: tuple[int, ...]) -> None:
    """Held-out seeds are named; otherwise it is enough to say how many."""
    assert seeds(text) == meant


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "a,b", "", "99999999", "1;2"])
def test_what_are_no_seeds_is_refused(text: str) -> None:
    """Seeds are whole, and there is at least one."""
    with pytest.raises(AskedWronglyError, match="--seeds"):
        seeds(text)


@pytest.mark.parametrize("text", ["60", "60:", ":60", "-1:5", "5:0", "5:-5", "a:b", "nan:5", "0:inf"])
def test_a_window_has_a_start_and_a_length(text: str) -> None:
    """An empty window has nothing to simulate."""
    with pytest.raises(AskedWronglyError, match="--window"):
        window(text)


def test_a_window_is_in_seconds() -> None:
    """START:LENGTH."""
    assert window("600:300.5") == (600.0, 300.5)


def test_a_policy_is_a_name_with_settings() -> None:
    """A dot goes one level down, as in the configuration file's own paths."""
    assert words("tidegate") == ("tidegate", {})
    assert words("tidegate:limit.floor_tokens=2_000,limit.algorithm=aimd, tick_s=0.5") == (
        "tidegate",
        {"limit": {"floor_tokens": 2_000, "algorithm": "aimd"}, "tick_s": 0.5},
    )


@pytest.mark.parametrize("text", ["fixed:5", "fixed:=5", "fixed:a=1,a=2", "fixed:a=1,a.b=2"])
def test_a_setting_has_a_key_and_a_value_once(text: str) -> None:
    """Which of two values was meant cannot be guessed."""
    with pytest.raises(AskedWronglyError, match="--policy fixed"):
        words(text)


def test_settings_become_the_configuration_class() -> None:
    """The same checks as in the file: types, bounds, names."""
    assert bound(FixedConfig, {"limit_tokens": 5_000}, "x") == FixedConfig(limit_tokens=5_000)
    assert bound(FixedConfig, {}, "x") == FixedConfig()
    made = bound(ControllerConfig, {"limit": {"algorithm": "fixed", "limit_tokens": 7}}, "x")
    assert made.limit == FixedConfig(limit_tokens=7)


def test_settings_change_what_was_configured() -> None:
    """`--config` and a setting together: the file with this one difference."""
    base = ControllerConfig(limit=AimdConfig(), tick_s=0.5)

    made = bound(ControllerConfig, {"ageing_s": 5.0}, "x", base)

    assert (made.tick_s, made.ageing_s) == (0.5, 5.0)
    assert bound(ControllerConfig, {}, "x", base) is base


def test_an_unknown_setting_lists_those_that_exist() -> None:
    """Nobody remembers every name."""
    with pytest.raises(AskedWronglyError, match=r"no setting 'limits'.*limit_tokens"):
        bound(FixedConfig, {"limits": 5}, "--policy fixed")


@pytest.mark.parametrize("value", [0, -1, "many", 1.5])
def test_a_setting_out_of_bounds_is_one_line(value: object) -> None:
    """The class checks itself; the line says where."""
    with pytest.raises(AskedWronglyError, match="limit_tokens") as error:
        bound(FixedConfig, {"limit_tokens": value}, "--policy fixed")

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["0", "-3", "x", "inf", "nan"])
def test_a_number_is_finite_and_over_zero(text: str) -> None:
    """A rate or a length of nothing ends in a division by zero, hours later."""
    with pytest.raises(AskedWronglyError, match="--rate"):
        number(text, "--rate")
