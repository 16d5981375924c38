# SPDX-License-Identifier: Apache-2.0
"""Two controllers with one login key, the second without the journal of the first. Their launch tokens are equal, so a cloud
can answer the second with the first one's machine. It is never ended, and its deadline never moved, whatever somebody edits
meanwhile."""
import base64
import copy
import hashlib
import json

import pytest
from far_clouds import FAR
from second_principal import make_key, proof_of
from test_deleted_claims import Program

OLD = "2026-01-02T03:04:05Z"


class Two:
    """one, other: the controllers, with a spec of a node each. genuine: the id of the node that the first one launched."""
    def __init__(self, far, folder, names=("m", "m"), ttl=("1h", "1h")):
        spec = json.loads(far.spec.read_text())
        self.key, self.cloud, programs = make_key(folder), far.cloud, []
        for n, name in enumerate(names):
            path = folder / f"{n}.yaml"
            path.write_text(json.dumps({**spec, "name": name, "limits": {**spec["limits"], "ttl": ttl[n]},
                                        "access": {**spec["access"], "timeout": "1s", "key": str(self.key)}}))
            programs.append(Program({**far.env, "GPUPROV_STATE_DIR": str(folder / f"state{n}")}, path))
        self.one, self.other = programs
        code, text = self.one("up", self.one.spec)
        assert code == 6, text
        [(self.id, self.uid)] = self.one.sql("SELECT id, uid FROM resources WHERE kind=0")
        self.owner = self.one.sql("SELECT owner FROM stacks")[0][0]

    def proof(self, provider):
        """The tags that a node gets once it has its own host key."""
        print_of = "SHA256:" + base64.b64encode(hashlib.sha256(self.id.encode()).digest()).decode().rstrip("=")
        proof = proof_of(self.key, self.owner, "m", "machine", self.uid, provider, self.id, 0, print_of)
        return {"gpuprov:hostkey": print_of, "gpuprov:proof": proof}

    def old_claim(self):
        """Google's claim is older than a launch takes."""
        for rule in self.cloud.firewalls.values():
            about = json.loads(rule["item"]["description"])
            rule["item"]["description"] = json.dumps({**about, "gpuprov:created": OLD})


def deleted(cloud):
    return cloud.requests("DELETE .*/(instances|virtualMachines)/")


@pytest.mark.parametrize("edit", ["stack", "owner"])
def test_google_with_an_edited_label(tmp_path, edit):
    with FAR["google"](tmp_path, latency=0) as far:
        two = Two(far, tmp_path, ttl=("1h", "2h"))
        [vm] = far.cloud.instances.values()
        vm["item"]["labels"]["gpuprov-" + edit] = "x" * 16
        two.old_claim()
        code, text = two.other("up", two.other.spec)
        assert code == 6 and "another run launched it" in text, text
        assert not deleted(far.cloud) and len(far.cloud.instances) == 1


def test_google_with_a_list_that_lags(tmp_path):
    def nothing(reply):
        return dict(reply, items={z: {k: v for k, v in x.items() if k != "instances"} for z, x in reply["items"].items()})

    with FAR["google"](tmp_path, latency=0) as far:
        two = Two(far, tmp_path, ttl=("1h", "2h"))
        far.cloud.rule("GET .*aggregated/instances", "edit", times=None, change=nothing)
        code, text = two.other("up", two.other.spec)
        assert code == 6 and "another run launched it" in text, text
        assert not deleted(far.cloud) and len(far.cloud.instances) == 1


@pytest.mark.parametrize("ttl", ["1h", "2h"])
def test_google_with_a_planted_claim(tmp_path, ttl):
    """Somebody gives the claim of another name the uid of a stack that lives: their launches do not meet."""
    with FAR["google"](tmp_path, latency=0) as far:
        two = Two(far, tmp_path, names=("m", "n"), ttl=("1h", ttl))
        genuine = list(far.cloud.instances)
        [rule] = [v for k, v in far.cloud.firewalls.items() if not k.endswith("-members")]
        his = copy.deepcopy(rule)
        name = "gpuprov-n-" + hashlib.sha256(f"{two.owner}/n".encode()).hexdigest()[:12]
        about = {**json.loads(his["item"]["description"]), "gpuprov:stack": "n", "gpuprov:created": OLD}
        his["item"].update(name=name, description=json.dumps(about))
        far.cloud.firewalls[name] = his
        two.other("up", two.other.spec)
        code, text = two.other("down", "n")
        assert set(genuine) <= set(far.cloud.instances), (code, text)
        assert f"{two.id} is no longer there" not in text


def test_alibaba_with_an_edited_tag(tmp_path):
    with FAR["alibaba"](tmp_path, latency=0) as far:
        two = Two(far, tmp_path, ttl=("3h", "40m"))
        [vm] = far.cloud.instances.values()
        vm["tags"].update(two.proof("alibaba"), **{"gpuprov:stack": "x"})
        release = vm["release"]
        code, text = two.other("up", two.other.spec)
        assert [i["release"] for i in far.cloud.instances.values()] == [release], (code, text)


@pytest.mark.parametrize("tags", ["proven", "bare"])
def test_azure_with_a_failed_machine(tmp_path, tags):
    with FAR["azure"](tmp_path, latency=0) as far:
        two = Two(far, tmp_path)
        [vm] = far.cloud.vms()
        vm["tags"].update(two.proof("azure") if tags == "proven" else {}, **{"gpuprov:stack": "x"})
        far.cloud.rule("GET .*/virtualMachines/[^/]*[?].*instanceView", "edit", times=None, change=lambda r: {
            **r, "properties": {**r["properties"], "provisioningState": "Failed"}})
        code, text = two.other("up", two.other.spec)
        assert not deleted(far.cloud) and len(list(far.cloud.vms())) == 1, (code, text)
