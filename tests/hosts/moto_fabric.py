# SPDX-License-Identifier: Apache-2.0
"""What moto's EC2 lacks: placement groups, capacity reservations, and the rules of RunInstances about them and about
several network interfaces; and the gate: a request of gpuprov that the API description does not allow is refused
(tests/e2e/ec2_gate.py). A moto server that begins with START has them; importing this changes moto's classes.

CreateCapacityReservation makes what a test needs: the
tag "block" makes it a Capacity Block, the tag "state" sets its state."""
import pathlib
import uuid
import xml.sax.saxutils

HERE = pathlib.Path(__file__).resolve().parent
E2E = HERE.parent / "e2e"
START = (f"import sys; sys.path[:0] = [{str(HERE)!r}, {str(E2E)!r}]; import moto_fabric; "
         "moto_fabric.install()\n")


def install():
    from moto.core.responses import ActionResult
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.responses import EC2Response
    from moto.ec2.responses.instances import InstanceResponse

    import ec2_gate

    def call_action(self, before=EC2Response.call_action):
        if self.headers.get("User-Agent", "").startswith("gpuprov/"):
            try:
                ec2_gate.ec2({k: v[0] for k, v in self.querystring.items()})
            except ec2_gate.Wrong as e:
                body = ("<Response><Errors><Error><Code>GateRefused</Code><Message>%s</Message></Error></Errors>"
                        "<RequestID>gate</RequestID></Response>" % xml.sax.saxutils.escape(str(e)))
                return 400, {"status": 400}, body
        return before(self)
    EC2Response.call_action = call_action

    def fail(code, message):
        raise EC2ClientError(code, message)

    def kept(self, what):
        return self.ec2_backend.__dict__.setdefault("fabric_" + what, {})

    def tags_of(self):
        return [t for spec in self._get_param("TagSpecifications", []) for t in spec.get("Tags", [])]

    def fits(self, thing):
        have = {t["Key"]: t["Value"] for t in thing["Tags"]}
        for f in self._get_param("Filters", []):
            if not f["Name"].startswith("tag:"):
                fail("InvalidParameterValue", "moto_fabric: the filter %s" % f["Name"])
            if have.get(f["Name"][4:]) not in f["Values"]:
                return False
        return True

    def members(self, name):
        alive = {i.id for i in self.ec2_backend.all_instances() if i.state != "terminated"}
        return [i for i, group in kept(self, "member").items() if group == name and i in alive]

    def create_placement_group(self):
        name, groups = self._get_param("GroupName"), kept(self, "groups")
        if name in groups:
            fail("InvalidPlacementGroup.Duplicate", "The placement group '%s' already exists." % name)
        group = {"GroupName": name, "State": "available", "Strategy": self._get_param("Strategy"),
                 "GroupId": "pg-" + uuid.uuid4().hex[:17], "Tags": tags_of(self)}
        groups[name] = group
        return ActionResult({"PlacementGroup": group})

    def describe_placement_groups(self):
        names = self._get_param("GroupNames", [])
        groups = kept(self, "groups")
        for n in names:
            if n not in groups:
                fail("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown." % n)
        found = [g for g in groups.values() if (not names or g["GroupName"] in names) and fits(self, g)]
        return ActionResult({"PlacementGroups": found})

    def delete_placement_group(self):
        name = self._get_param("GroupName")
        if name not in kept(self, "groups"):
            fail("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown." % name)
        if members(self, name):
            fail("InvalidPlacementGroup.InUse", "The placement group '%s' is in use." % name)
        del kept(self, "groups")[name]
        return ActionResult({})

    def create_capacity_reservation(self):
        tags = {t["Key"]: t["Value"] for t in tags_of(self)}
        one = {"CapacityReservationId": "cr-" + uuid.uuid4().hex[:17], "Tags": tags_of(self),
               "InstanceType": self._get_param("InstanceType"), "AvailabilityZone": self._get_param("AvailabilityZone"),
               "InstancePlatform": "Linux/UNIX", "Tenancy": "default", "State": tags.get("state", "active"),
               "TotalInstanceCount": self._get_param("InstanceCount"),
               "AvailableInstanceCount": self._get_param("InstanceCount"),
               "EndDate": self._get_param("EndDate"), "EndDateType": self._get_param("EndDateType", "unlimited"),
               "StartDate": tags.get("start"), "PlacementGroupArn": self._get_param("PlacementGroupArn"),
               "ReservationType": "capacity-block" if "block" in tags else "default", "InstanceMatchCriteria": "targeted"}
        kept(self, "reservations")[one["CapacityReservationId"]] = one
        return ActionResult({"CapacityReservation": one})

    def describe_capacity_reservations(self):
        wanted, all_of = self._get_param("CapacityReservationIds", []), kept(self, "reservations")
        for i in wanted:
            if i not in all_of:
                fail("InvalidCapacityReservationId.NotFound", "The capacity reservation '%s' does not exist" % i)
        return ActionResult({"CapacityReservations": [r for i, r in all_of.items() if not wanted or i in wanted]})

    def check_interfaces(nics):
        if len(nics) > 1 and any("AssociatePublicIpAddress" in n for n in nics):
            fail("InvalidParameterCombination", "The associatePublicIPAddress parameter cannot be specified when "
                 "launching with multiple network interfaces.")
        places = [(n.get("NetworkCardIndex", 0), n.get("DeviceIndex")) for n in nics]
        if len(set(places)) != len(places):
            fail("InvalidParameterValue", "Each network interface requires a unique device index.")
        if nics and (0, 0) not in places:
            fail("InvalidParameterCombination", "There must be a primary network interface")
        if any(n.get("InterfaceType") == "efa-only" and n["DeviceIndex"] == 0 and not n.get("NetworkCardIndex")
               for n in nics):
            fail("InvalidParameterCombination", "The primary network interface cannot be efa-only")

    def check_reservation(self, count):
        target = self._get_param("CapacityReservationSpecification.CapacityReservationTarget", {})
        block = self._get_param("InstanceMarketOptions.MarketType") == "capacity-block"
        if not target:
            return block and fail("InvalidParameterValue", "a Capacity Block needs its reservation")
        r = kept(self, "reservations").get(target.get("CapacityReservationId"))
        if r is None:
            fail("InvalidCapacityReservationId.NotFound", "The capacity reservation does not exist")
        if block != (r["ReservationType"] == "capacity-block"):
            fail("InvalidParameterCombination", "The market type does not match the capacity reservation")
        if r["InstanceType"] != self._get_param("InstanceType") or \
                r["AvailabilityZone"] != self._get_param("Placement.AvailabilityZone"):
            fail("InvalidParameterValue", "The attributes of the instance and of the reservation do not match")
        if r["State"] != "active" or r["AvailableInstanceCount"] < count:
            fail("ReservationCapacityExceeded", "The requested reservation does not have sufficient capacity")
        r["AvailableInstanceCount"] -= count
        return None

    def run_instances(self, before=InstanceResponse.run_instances):
        nics, group = self._get_param("NetworkInterfaces", []), self._get_param("Placement.GroupName")
        count = int(self._get_param("MinCount"))
        check_interfaces(nics)
        zone = self._get_param("Placement.AvailabilityZone")
        if group is not None and group not in kept(self, "groups"):
            fail("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown." % group)
        for i in self.ec2_backend.all_instances() if group is not None else []:
            if i.id in members(self, group) and i.placement.zone != zone:
                fail("InvalidParameterValue", "a cluster placement group spans one zone only")
        check_reservation(self, count)
        if len(nics) > 1:  # moto has one interface per device index, whatever its card
            plain = self._get_param

            def one_card(name, *args, **more):
                got = plain(name, *args, **more)
                return got[:1] if name == "NetworkInterfaces" else got
            self._get_param = one_card
        made = before(self)
        for i in made.result.instances:
            kept(self, "member")[i.id] = group
            if self._get_param("InstanceMarketOptions.MarketType") == "capacity-block":
                i.lifecycle = "capacity-block"
        return made

    for action in (create_placement_group, describe_placement_groups, delete_placement_group,
                   create_capacity_reservation, describe_capacity_reservations):
        setattr(EC2Response, action.__name__, action)
    InstanceResponse.run_instances = run_instances
