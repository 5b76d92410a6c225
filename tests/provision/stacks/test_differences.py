"""In which keys two declarations differ."""

from __future__ import annotations

from provision.controller.decision.stack_plans import Difference, differences_of
from tests.provision.samples import make_stack


def test_keys_that_differ_are_named_with_both_values() -> None:
    before = make_stack(driver={"version": "535.261.03", "moduleParameters": {"NVreg_EnableGpuFirmware": 1}})
    after = make_stack(driver={"version": "550.163.01"}, rollout={"maxParallel": 4})
    assert differences_of(before, after) == (
        Difference("spec.driver.version", "535.261.03", "550.163.01", is_about_machines=True),
        Difference("spec.driver.moduleParameters.NVreg_EnableGpuFirmware", 1, None, is_about_machines=True),
        Difference("spec.rollout.maxParallel", 1, 4, is_about_machines=False),
    )


def test_a_default_that_is_written_out_is_no_difference() -> None:
    assert differences_of(make_stack(), make_stack(rollout={"maxParallel": 1})) == ()
