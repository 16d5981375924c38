# SPDX-License-Identifier: Apache-2.0
"""A relay in front of the lab's OpenStack (tests/openstack), for faults that the real one does not show on request: lost
replies, lists that lag, throttling, a service that refuses. Every service is below one address, and the catalogue and the
links of replies name the relay, so that all requests pass it.

    with Relay(cloud) as relay:
        relay.rule("POST /p8774/v2.1/servers", "drop_after")
        run(env=cloud.env("gpu", auth_url=relay.auth_url))"""
import http.client
import json
import re
import threading

import lab_config
from mock import Mock  # noqa: UP026  # tests/clouds/mock.py

DROPPED = ("connection", "transfer-encoding", "content-length", "keep-alive", "date", "server")


class Relay(Mock):
    """cloud: a running openstack_lab.OpenStack. page: the most items of a page of nova. tls: certificate and key."""

    def __init__(self, cloud, page=None, tls=None):
        super().__init__(tls=tls)
        self.cloud, self.page = cloud, page
        self._local = threading.local()
        self._name = re.compile(rb"http://%s:(\d+)" % re.escape(cloud.address).encode())

    @property
    def auth_url(self):
        return "%s/p%d/v3" % (self.url, lab_config.PORTS["identity"])

    def _paged(self, method, path):
        """nova gives pages as short as the request wants them."""
        long = re.search(r"/(servers/detail|flavors/detail|os-keypairs)(\?|$)", path)
        if self.page is None or method != "GET" or not long or "limit=" in path:
            return path
        return path + ("&" if "?" in path else "?") + "limit=%d" % self.page

    def handle(self, method, target, headers, body):
        found = re.match(r"/p(\d+)(/.*)$", target)
        if not found:
            return 404, {}, {"relay": "no such service"}
        keep = {k: v for k, v in headers.items() if k not in ("host", "connection", "content-length")}
        line = http.client.HTTPConnection(self.cloud.address, int(found.group(1)), timeout=60)
        try:
            line.request(method, self._paged(method, found.group(2)), body=body or None, headers=keep)
            reply = line.getresponse()
            text = reply.read()
        finally:
            line.close()
        text = self._name.sub(lambda m: b"%s/p%s" % (self.url.encode(), m.group(1)), text)
        extra = {k: v for k, v in reply.getheaders() if k.lower() not in DROPPED}
        return reply.status, extra, self._decoded(text, extra)

    @staticmethod
    def _decoded(text, headers):
        kind = next((v for k, v in headers.items() if k.lower() == "content-type"), "")
        return json.loads(text) if text and "json" in kind else text or None


def error(status, code, message, **headers):
    """The parts of a rule that replies as nova does."""
    return {"status": status, "obj": {code: {"code": status, "message": message}}, "headers": headers}
