# SPDX-License-Identifier: Apache-2.0
"""What moto's CreateImage lacks: names are unique, snapshots are tagged in the call and stay while their image is
registered. FIRST: Python that a moto server runs before it begins."""

FIRST = """
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.amis import AmiBackend
from moto.ec2.models.elastic_block_store import EBSBackend
def create_image(self, instance_id, name, description, tag_specifications, before=AmiBackend.create_image):
    if any(a.name == name for a in self.amis.values()):
        raise EC2ClientError("InvalidAMIName.Duplicate", "AMI name %s is already in use" % name)
    if self.get_instance(instance_id).state != "stopped":
        raise EC2ClientError("IncorrectInstanceState", "moto: the test wants a stopped instance")
    of = {t["ResourceType"]: t["Tags"] for t in tag_specifications}
    image = before(self, instance_id, name, description, [t for t in tag_specifications if t["ResourceType"] == "image"])
    image.architecture = "x86_64"
    for tag in of.get("snapshot", []):
        image.ebs_snapshot.add_tag(tag["Key"], tag["Value"])
    return image
AmiBackend.create_image = create_image
def delete_snapshot(self, snapshot_id, before=EBSBackend.delete_snapshot):
    if any(a.ebs_snapshot.id == snapshot_id for a in self.amis.values()):
        raise EC2ClientError("InvalidSnapshot.InUse", "The snapshot %s is currently in use" % snapshot_id)
    return before(self, snapshot_id)
EBSBackend.delete_snapshot = delete_snapshot
"""
