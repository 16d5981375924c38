# SPDX-License-Identifier: Apache-2.0
"""The verb offers over several providers, and one spec with several: aws is moto, local is this machine."""
import json
import re

import ec2
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401
from test_aws_absence import gpuprov

REGION = ec2.REGION
NO_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def write(cloud, offers, **keys):
    path = cloud.tmp / "both.yaml"
    path.write_text(json.dumps({"name": "both", "offers": offers, **keys}))
    return path


def on_aws(cloud, kind="t3.medium", **keys):
    return {"provider": "aws", "regions": [REGION], "instance_type": kind, "image": {"id": cloud.moto.image()}, **keys}


def without_credentials(cloud):
    for name in NO_KEYS:
        cloud.env.pop(name, None)


def listed(cloud, code, *words):
    return json.loads(gpuprov(cloud, code, "offers", "--json", *map(str, words)).stdout)


def test_the_table_of_two_providers(cloud):
    spec = write(cloud, [on_aws(cloud, "g4dn.2xlarge"), {"provider": "local"}])
    table = gpuprov(cloud, 0, "offers", str(spec)).stdout
    lines = table.splitlines()
    assert lines[0].split()[:4] == ["provider", "place", "type", "GPUs"]
    assert lines[1].split()[0] == "local" and "this machine" in lines[1], "free is cheapest"
    one = next(line for line in lines if line.startswith("aws"))
    assert re.search(r"us-east-1[a-f] +g4dn\.2xlarge +1 x T4 +8 +32 GiB +0\.75 USD/h +catalogue 20\d\d-\d\d-\d\d, \d+ days old", one)
    assert "without egress" in table
    j = listed(cloud, 0, spec)
    assert j["egress_included"] is False and j["not_listed"] == [] and j["rates"]["date"]
    prices = [o["price_usd_per_h"] for o in j["offers"]]
    assert prices == sorted(prices) and {o["provider"] for o in j["offers"]} == {"aws", "local"}
    offer = j["offers"][-1]
    assert (offer["gpus"], offer["vcpus"], offer["memory_gib"], offer["currency"]) == (1, 8, 32, "USD")
    assert offer["price_age_days"] >= 0 and offer["ends"] == "guest"
    assert cloud.moto.instances() == [], "nothing was bought"


def test_every_provider_has_an_offer_or_a_reason(cloud):
    known = {p["name"] for p in json.loads(gpuprov(cloud, 0, "providers", "--json").stdout)["providers"]}
    without_credentials(cloud)
    j = listed(cloud, 0)
    reasons = {gap["provider"]: gap["error"] for gap in j["not_listed"]}
    assert {o["provider"] for o in j["offers"]} | reasons.keys() == known
    assert reasons["aws"]["detail"] == "NoCredentials" and "hosts" in reasons["ssh"]["message"]
    text = gpuprov(cloud, 0, "offers").stdout
    assert all(f"not listed: {name}: " in text for name in reasons)


def test_options_replace_the_values_of_the_spec(cloud):
    spec = write(cloud, [on_aws(cloud, "g4dn.2xlarge"), {"provider": "local"}])
    j = listed(cloud, 0, "--market", "spot", spec)
    assert {o["market"] for o in j["offers"]} == {"spot"}
    assert [g["provider"] for g in j["not_listed"]] == ["local"] and "market" in j["not_listed"][0]["error"]["message"]
    assert {o["provider"] for o in listed(cloud, 0, "--provider", "local", spec)["offers"]} == {"local"}
    j = listed(cloud, 1, "--region", "nowhere-9", "--provider", "aws", spec)
    assert "nowhere-9" in j["error"]["message"] and j["offers"] == []
    wrong = gpuprov(cloud, 1, "offers", str(spec), "--provider", "aws", "--region", "Nowhere").stderr
    assert "aws: --region: 'regions' must be lower-case" in wrong
    assert "has 1 x T4, but gpu is T4:8" in listed(cloud, 1, "--gpu", "T4:8", "--provider", "aws", spec)["error"]["message"]


@pytest.mark.parametrize("words,says", [
    (["--gpu", "H10:8", "--provider", "local"], "did you mean 'H100'?"),
    (["--gpu", "8:H100"], "did you mean 'H100:8'?"),
    (["--gpu", "H100:8\nname: x"], "--gpu must be model[:count]"),
    (["--provider", "awss"], "there is no provider 'awss'"),
    (["--provider", "ssh"], "ssh: it needs 'hosts'"),
    (["--provider", "azure"], "azure: it needs 'regions': give --region azure:NAME, or a SPEC with an offer of it"),
    (["--provider", "azure", "--region", "us-east-1"], "azure: --region: 'regions' must be lower-case"),
    (["--region", "a b"], "not a region's name"),
    (["--region", "azure:"], "not a region's name"),
    (["--region", "azur:eastus"], "'azur' is no provider with regions"),
    (["--region", "local:here"], "'local' is no provider with regions"),
    (["--nodes", "0"], "--nodes"),
    (["--market", "cheap"], "--market takes one of"),
])
def test_wrong_options(cloud, words, says):
    assert says in gpuprov(cloud, 1, "offers", *words).stderr


def test_a_provider_without_credentials(cloud):
    """It is skipped with a warning where another offer works, and is the error where none does."""
    local = write(cloud, [on_aws(cloud), {"provider": "local"}])
    ranked = json.loads(gpuprov(cloud, 2, "plan", "--json", str(local)).stdout)
    assert [o["provider"] for o in ranked["offers"]][0] == "local" and "aws" in [o["provider"] for o in ranked["offers"]]
    assert any("without egress" in note for note in ranked["notes"])
    without_credentials(cloud)
    done = gpuprov(cloud, 2, "plan", str(local))
    assert "aws is not queried: aws credentials: none found" in done.stderr and "1 x local" in done.stdout
    gpuprov(cloud, 5, "plan", str(write(cloud, [on_aws(cloud)])))
    assert listed(cloud, 5, write(cloud, [on_aws(cloud)]))["error"]["code"] == "auth"


def test_minimums_choose_the_provider(cloud):
    """The first provider has too little: the next one is taken, and the plan names the reason."""
    both = [{"provider": "local"}, on_aws(cloud, "m5.24xlarge")]
    done = gpuprov(cloud, 2, "plan", str(write(cloud, both, cpus=96, order="listed")))
    assert "m5.24xlarge" in done.stdout and "fewer than 'cpus: 96'" in done.stderr
    assert "less than 'memory: 10000 GiB'" in gpuprov(cloud, 1, "plan", str(write(cloud, both, memory="10000 GiB"))).stderr


def test_types_by_cpus_and_memory(cloud):
    """Without GPUs and a type the smallest type that suffices is chosen, among those that the zone sells."""
    offer = {"provider": "aws", "regions": [REGION], "image": {"id": cloud.moto.image()}}
    kinds = cloud.moto.client().describe_instance_types(Filters=[{"Name": "instance-type", "Values": ["m5.*", "r5.*", "c5.*"]}])
    fit = [t for t in kinds["InstanceTypes"] if t["VCpuInfo"]["DefaultVCpus"] >= 16
           and t["MemoryInfo"]["SizeInMiB"] >= 100 << 10 and "metal" not in t["InstanceType"]]
    assert fit, "moto has no such type"
    j = listed(cloud, 0, write(cloud, [offer], cpus=16, memory="100 GiB"))
    assert {(o["vcpus"] >= 16, o["memory_gib"] >= 100) for o in j["offers"]} == {(True, True)}
    least = min(t["VCpuInfo"]["DefaultVCpus"] for t in fit)
    assert {o["vcpus"] for o in j["offers"]} == {least}
    assert "give instance_type" in listed(cloud, 1, write(cloud, [offer], cpus=4000))["error"]["message"]


def test_the_disk_is_requested_and_priced(cloud):
    offer = on_aws(cloud, "g4dn.2xlarge")
    [plain, *_] = listed(cloud, 0, write(cloud, [offer]))["offers"]
    assert (plain["disk_gib"], plain["disk_usd_per_h"]) == (100, None)
    [big, *_] = listed(cloud, 0, write(cloud, [offer], disk="1 TB"))["offers"]
    assert big["disk_gib"] == 932 and abs(big["disk_usd_per_h"] - 932 * 0.08 / 730) < 1e-9
    assert abs(big["price_usd_per_h"] - plain["price_usd_per_h"] - big["disk_usd_per_h"]) < 1e-9
    small = listed(cloud, 1, write(cloud, [offer], disk="8 GiB"))["error"]["message"]
    assert re.search(r"needs a root disk of \d+ GiB, but 'disk' is 8 GiB", small)
    run = ec2.Drive(cloud.env, ec2.spec(cloud.tmp, cloud.moto.image(), gpu="T4:1", disk="1 TB", offers=[offer]), "create")
    assert run["code"] == "ok", run["message"]
    sent = cloud.proxy.of("RunInstances")[0].params
    assert sent["BlockDeviceMapping.1.Ebs.VolumeSize"] == "932"
