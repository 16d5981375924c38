# SPDX-License-Identifier: Apache-2.0
"""Compute drivers of the lab's hosts. nova loads them as nova.virt.lab.NAME."""
import os
import time

from nova.virt import fake
from oslo_serialization import jsonutils


class GpuDriver(fake.FakeDriver):
    """Eight PCI devices with the ids of an H100."""
    vcpus = 96
    memory_mb = 2000000

    def get_available_resource(self, nodename):
        have = super().get_available_resource(nodename)
        have["pci_passthrough_devices"] = jsonutils.dumps(
            [{"address": "0000:%02x:00.0" % (i + 1), "vendor_id": "10de", "product_id": "2330", "status": "available",
              "dev_type": "type-PCI", "parent_addr": None, "numa_node": 0, "label": "label_10de_2330"}
             for i in range(8)])
        return have


class SlowDriver(fake.FakeDriver):
    """A server stays in BUILD until the file /lab/go is there."""

    def spawn(self, *args, **kwargs):
        while not os.path.exists("/lab/go"):
            time.sleep(0.2)  # green: nova goes on meanwhile
        return super().spawn(*args, **kwargs)


class StubbornDriver(fake.FakeDriver):
    """The first DELETE of each server is accepted and then fails: the server is in ERROR."""
    refused = set()

    def destroy(self, context, instance, *args, **kwargs):
        if instance.uuid not in self.refused:
            self.refused.add(instance.uuid)
            raise RuntimeError("the lab refuses the first delete")
        return super().destroy(context, instance, *args, **kwargs)
