"""prefect.yaml and automations.yaml: what Prefect makes of them, and that nothing runs unasked."""

import re

import pytest
import yaml
from prefect.client.schemas.schedules import CronSchedule
from prefect.events import DeploymentEventTrigger
from prefect.events.schemas.automations import AutomationCore

from tasks.settings import FitsSection
from tests.flows.conftest import ROOT

DEPLOYMENTS = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
AUTOMATIONS = yaml.safe_load((ROOT / "automations.yaml").read_text())["automations"]
NAMES = {each["entrypoint"]: each["name"] for each in DEPLOYMENTS}
EMITTED = set(re.findall(r'page\.emit\("([\w.]+)"', "".join(p.read_text() for p in ROOT.glob("flows/*.py"))))


def test_deployments_have_names_that_tell_them_apart():
    assert len(set(NAMES.values())) == len(NAMES)
    named = set(re.findall(r"\b([a-z-]+/[a-z-]+)`", (ROOT / "docs/team.md").read_text()))
    for entrypoint, name in NAMES.items():
        file, function = entrypoint.split(":")
        code = (ROOT / file).read_text()
        (flow,) = re.findall(rf'@flow\(name="([\w-]+)"[^@]*?\ndef {function}\(', code)
        assert f"{flow}/{name}" in named
        if function == "fit_one":
            assert FitsSection().deployment == f"{flow}/{name}"


def test_every_flow_is_declared_by_the_decorator_that_pickles_nothing():
    for file in {entrypoint.split(":")[0] for entrypoint in NAMES}:
        code = (ROOT / file).read_text()
        assert re.search(r"^from flows\.flow import .*\bflow\b", code, re.M), file
        assert not re.search(r"^from prefect import .*\bflow\b", code, re.M), file


def test_the_nightly_fit_waits_to_be_started():
    (schedule,) = next(each for each in DEPLOYMENTS if each["name"] == "fit")["schedules"]
    assert schedule["active"] is False
    assert schedule["parameters"]["new_data"] is True
    CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])


def test_promotion_waits_to_be_switched_on():
    (spec,) = next(each for each in DEPLOYMENTS if each["name"] == "promote")["triggers"]
    trigger = DeploymentEventTrigger.model_validate(spec)
    assert trigger.enabled is False
    assert set(trigger.expect) <= EMITTED


@pytest.mark.parametrize("automation", AUTOMATIONS, ids=lambda each: each["name"])
def test_automations_send_messages_about_events_that_are_emitted(automation):
    parsed = AutomationCore.model_validate(automation)
    assert {action.type for action in parsed.actions} == {"send-notification"}
    assert {name for name in parsed.trigger.expect if name.startswith("usboost.")} <= EMITTED
