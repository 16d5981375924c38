# SPDX-License-Identifier: Apache-2.0
"""What moto's images lack: names are unique, snapshots are tagged in the call of CreateImage, are described as made by it
and stay while their image is registered; one that is registered as "failed-NAME" has failed. FIRST: Python that a moto
server runs before it begins."""

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
    image.ebs_snapshot.description = "Created by CreateImage(%s) for %s" % (instance_id, image.id)
    for tag in of.get("snapshot", []):
        image.ebs_snapshot.add_tag(tag["Key"], tag["Value"])
    return image
AmiBackend.create_image = create_image
def register_image(self, name, description, before=AmiBackend.register_image):
    image = before(self, name, description)
    image.state = "failed" if name.startswith("failed-") else image.state
    return image
AmiBackend.register_image = register_image
def delete_snapshot(self, snapshot_id, before=EBSBackend.delete_snapshot):
    if any(a.ebs_snapshot.id == snapshot_id for a in self.amis.values()):
        raise EC2ClientError("InvalidSnapshot.InUse", "The snapshot %s is currently in use" % snapshot_id)
    return before(self, snapshot_id)
EBSBackend.delete_snapshot = delete_snapshot
"""
