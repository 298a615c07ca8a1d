"""Every value in force is shown with where it came from, and a reload knows what it changes."""

from __future__ import annotations

from pathlib import Path

from admission.config.effective import Setting, effective, values
from admission.config.load import Loaded, load
from admission.config.reload import compare, merged
from admission.vocabulary import Mode, PriorityClass


def configured(tmp_path: Path, text: str, **environ: str) -> Loaded:
    """A configuration from text."""
    file = tmp_path / "tidegate.yaml"
    file.write_text(text)
    return load(file, environ)


def by_path(loaded: Loaded) -> dict[str, Setting]:
    """The settings by path."""
    return {setting.path: setting for setting in effective(loaded)}


def test_each_value_names_its_source(tmp_path: Path) -> None:
    """To learn where a value comes from must not need archaeology."""
    text = "log: {level: debug}\ntargets:\n- name: a\n  slo: {interactive: {ttft_s: 1}}\n"
    loaded = configured(tmp_path, text, TIDEGATE_TARGETS__A__MODE="enforce")
    found = by_path(loaded)
    file = tmp_path / "tidegate.yaml"

    assert found["log.level"] == Setting("log.level", "debug", "file", f"{file}:1")
    slo = "targets.a.classes.interactive.slo"
    assert found[f"{slo}.ttft_s"] == Setting(f"{slo}.ttft_s", 1, "file", f"{file}:4")
    assert found[f"{slo}.tpot_s"] == Setting(f"{slo}.tpot_s", 0.08, "default")
    mode = Setting("targets.a.mode", "enforce", "environment", "TIDEGATE_TARGETS__A__MODE")
    assert found["targets.a.mode"] == mode


def test_nothing_configured_is_all_default() -> None:
    """A default that claims to be somebody's choice hides that nobody chose."""
    assert {setting.source for setting in effective(load(None, {}))} == {"default"}


def test_every_setting_has_a_path_of_its_own() -> None:
    """Two settings under one path would hide one of them."""
    paths = [setting.path for setting in effective(load(None, {}))]

    assert len(paths) == len(set(paths)) > 50


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    """`config show` is pasted into tickets."""
    text = "telemetry: {tokens: [hush]}\ntargets: [{metrics_urls: ['http://me:hush@127.0.0.1/metrics']}]\n"
    loaded = configured(tmp_path, text)

    assert "hush" not in repr(effective(loaded))
    assert "hush" in repr(values(loaded.settings))


def test_a_changed_slo_applies_and_a_changed_port_waits(tmp_path: Path) -> None:
    """Whoever reloads must know what has happened and what has not."""
    old = configured(tmp_path, "targets: [{name: a}]").settings
    text = (
        "listen: {http: '127.0.0.1:1'}\nlog: {level: debug}\ntargets: [{name: a, mode: enforce, models: [x]}]"
    )
    new = configured(tmp_path, text).settings
    changes = compare(old, new)

    assert changes.applied == ("log.level", "targets.a.mode")
    assert changes.needs_restart == ("listen.http", "targets.a.models")


def test_after_a_reload_only_what_applied_is_in_force(tmp_path: Path) -> None:
    """Settings that wait for a restart must be reported again at the next reload."""
    old = configured(tmp_path, "targets: [{name: a}]").settings
    text = "listen: {http: '127.0.0.1:1'}\ntargets: [{name: a, mode: enforce, slo: {batch: {tpot_s: 1}}}]"
    new = configured(tmp_path, text).settings
    now = merged(old, new)

    assert now.listen == old.listen
    assert now.targets[0].controller.mode is Mode.ENFORCE
    assert now.targets[0].own_slo == {PriorityClass.BATCH}
    assert compare(now, new).needs_restart == ("listen.http",)
    assert compare(now, new).applied == ()


def test_reordered_targets_are_no_change(tmp_path: Path) -> None:
    """Targets are known by name; their place in the file means nothing."""
    old = configured(tmp_path, "targets: [{name: a, mode: enforce}, {name: b}]").settings
    new = configured(tmp_path, "targets: [{name: b}, {name: a, mode: enforce}]").settings

    changes = compare(old, new)
    assert (changes.applied, changes.needs_restart) == ((), ())


def test_a_new_target_waits_for_a_restart(tmp_path: Path) -> None:
    """Its telemetry and its routes begin with the process."""
    old = configured(tmp_path, "targets: [{name: a.b}]").settings
    new = configured(tmp_path, "targets: [{name: a.b}, {name: c, mode: enforce}]").settings
    changes = compare(old, new)

    assert changes.applied == ()
    assert "targets.c.mode" in changes.needs_restart
    assert merged(old, new).targets == old.targets


def test_another_algorithm_applies_with_its_settings(tmp_path: Path) -> None:
    """A fixed limit at night must not take a restart."""
    old = configured(tmp_path, "targets: [{name: a}]").settings
    new = configured(tmp_path, "targets: [{name: a, limit: {algorithm: fixed, limit_tokens: 5}}]").settings
    changes = compare(old, new)

    assert changes.needs_restart == ()
    assert {"targets.a.limit.algorithm", "targets.a.limit.limit_tokens"} <= set(changes.applied)
