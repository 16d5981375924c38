#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# end.sh delete: deletes this server with the application credential that gpuprov gave it over SSH, which may read and
# delete this server only. end.sh check: reads it, which needs the same credential. Exit 0: nova accepted the request.
# Needs python3, as cloud-init does. The credential is in no argument. END_FILE replaces its file in tests.
exec python3 -I - "${1:-}" "${END_FILE:-/run/gpuprov/end.conf}" <<'EOF'
import base64, json, ssl, sys, urllib.error, urllib.request

METHODS = {"delete": "DELETE", "check": "GET"}


def fail(text):
    sys.exit("gpuprov: this server cannot delete itself: " + text)


if sys.argv[1] not in METHODS:
    fail("usage: end.sh delete|check")
try:
    with open(sys.argv[2]) as f:
        conf = dict(line.rstrip("\n").split("=", 1) for line in f)
except OSError as e:
    fail("it has no credential (%s): a reboot removes it, and 'gpuprov up' gives it another one" % e.strerror)
tls = ssl.create_default_context(cadata=base64.b64decode(conf["CACERT"]).decode() or None)


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


web = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls), Stay())


def send(what, method, url, body=None, **headers):
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers}, method=method)
    try:
        with web.open(request, timeout=60) as reply:
            return reply.headers
    except urllib.error.HTTPError as e:
        if method == "DELETE" and e.code == 404:
            sys.exit(0)
        fail("%s at %s: HTTP %d: its application credential is not valid for this request" % (what, url, e.code))
    except (OSError, ValueError) as e:
        fail("%s at %s: %s: let the nodes reach it, or remove 'role' from the offer" % (what, url, e))


login = {"auth": {"identity": {"methods": ["application_credential"], "application_credential": {
    "id": conf["ID"], "secret": conf["SECRET"]}}}}
token = send("keystone", "POST", conf["AUTH"], json.dumps(login).encode())["X-Subject-Token"]
send("nova", METHODS[sys.argv[1]], conf["SERVER"], **{"X-Auth-Token": token or ""})
EOF
