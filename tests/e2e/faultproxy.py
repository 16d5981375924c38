# SPDX-License-Identifier: Apache-2.0
"""A proxy between gpuprov and an EC2 endpoint that misbehaves on command. Every request is compared with the API
description (ec2_gate.py); one that it does not allow is refused and kept in .refused, which is empty at the end.

As a library: FaultProxy(upstream).start(), .rule(...), .calls, .close(). By hand:
    faultproxy.py UPSTREAM_URL [PORT] [RULES.json]

A rule is a dict; the first one that matches a request acts on it, `times` times (default 1, None: always), or
on each `every`-th match.
  action     EC2 action ("RunInstances") or JSON target ("GetServiceQuota"); None: any
  params     {parameter: value} that the body must have
  region     the region that the request is signed for
  when       only while this file is there
  do         drop_before  close the connection, nothing forwarded
             drop_after   forward, then close without an answer: the server acted
             hold_after   forward, then answer when .release() is called (never, if it is not)
             late         forward after `delay` seconds, also when the client has left by then
             status       answer `status` with `headers`, `body`
             error        answer an EC2 error `code` with `status` (default 400) and `message`
             reply        answer 200 with `body` (bytes, or a function that gives them)
             edit         forward, answer with `old` replaced by `new` everywhere (bytes)
             strip        forward, answer without the XML elements named in `tags`
             paged        forward, answer the items of a describe call in no order, one per page (nextToken)
             truncate     forward, answer half of the body with a whole Content-Length
             cut_xml      forward, answer half of the body as if it were all
             huge         answer `size` bytes
             slow         forward, answer in `pieces` with `delay` seconds between
             hang         never answer (until the client leaves or the proxy closes); `touch`: a file to make
             empty_list   answer a describe call with no items
             skew         forward; Date is `seconds` off, and a request signed more than five minutes
                          from that date is answered RequestExpired
It honours ClientToken as EC2 does (moto does not): a repeated token gets the first answer, with another body
IdempotentParameterMismatch. tokens=False: it forwards each.
"""
import email.utils
import http.client
import http.server
import json
import os
import random
import re
import socket
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ElementTree
import xml.sax.saxutils
from datetime import datetime, timezone

try:
    import ec2_gate
except ImportError:  # botocore is not installed: by hand, without the API description
    ec2_gate = None

EC2_NS = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
SETS = {"DescribeInstances": "reservationSet", "DescribeSecurityGroups": "securityGroupInfo",
        "DescribeVolumes": "volumeSet", "DescribeImages": "imagesSet", "DescribePlacementGroups": "placementGroupSet"}


def error_body(code, message):
    return (f"<?xml version=\"1.0\"?><Response><Errors><Error><Code>{code}</Code><Message>{message}"
            f"</Message></Error></Errors><RequestID>fault-{code}</RequestID></Response>").encode()


class Call:
    """One request as it came."""

    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body
        text = body.decode("utf-8", "replace")
        self.params = dict(urllib.parse.parse_qsl(text)) if "Action=" in text else {}
        target = headers.get("X-Amz-Target", "")
        self.action = self.params.get("Action") or target.split(".")[-1] or path
        scope = headers.get("Authorization", "").split("Credential=")[-1].split("/")
        self.region = scope[2] if len(scope) > 4 else ""
        self.at, self.end = time.monotonic(), None  # end: just before its answer was sent


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *_):
        pass

    def send_raw(self, status, headers, body, length=None):
        self.call.end = time.monotonic()  # before the client has the answer: what it sends then is later than this
        self.send_response_only(status)
        names = {k.lower() for k in headers}
        if "date" not in names:
            self.send_header("Date", email.utils.formatdate(usegmt=True))
        for key, value in headers.items():
            if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def drop(self):
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = self.call = Call(self.command, self.path, self.headers, body)
        proxy = self.server.owner
        complaint = proxy.judge(call) if proxy.judge else None
        if complaint:
            proxy.refused.append(complaint)
            return self.send_raw(400, {}, error_body("GateRefused", xml.sax.saxutils.escape(complaint)))
        rule = proxy.take(call)
        proxy.hanging.wait(proxy.latency)
        try:
            self.act(proxy, call, rule)
        except (BrokenPipeError, ConnectionError):
            self.close_connection = True
        finally:
            call.end = call.end or time.monotonic()
            with proxy.lock:
                proxy.busy -= 1

    do_GET = do_POST = do_PUT = handle_any

    def act(self, proxy, call, rule):
        do = rule["do"] if rule else "forward"
        if do == "drop_before":
            return self.drop()
        if do == "drop_after":
            proxy.forward(call)
            return self.drop()
        if do == "hang":
            if "touch" in rule:
                open(rule["touch"], "w", encoding="utf-8").close()
            proxy.hanging.wait(55)
            return self.drop()
        if do == "status":
            return self.send_raw(rule["status"], rule.get("headers", {}), rule.get("body", b""))
        if do == "error":
            return self.send_raw(rule.get("status", 400), rule.get("headers", {}),
                                 error_body(rule["code"], rule.get("message", "made by a test")))
        if do == "reply":
            body = rule["body"]
            return self.send_raw(200, rule.get("headers", {}), body() if callable(body) else body)
        if do == "huge":
            return self.huge(rule["size"])
        if do == "empty_list":
            name = SETS[call.action]
            return self.send_raw(200, {"Content-Type": "text/xml"},
                                 f"<{call.action}Response {EC2_NS}><{name}/></{call.action}Response>".encode())
        if do == "skew":
            return self.skewed(proxy, call, rule["seconds"])
        if do == "late":
            proxy.hanging.wait(rule["delay"])
        status, headers, body = proxy.forward(call)
        if do == "hold_after":
            with proxy.lock:
                proxy.held += 1
            proxy.released.wait(55)
        if do == "edit":
            body = body.replace(rule["old"], rule["new"])
        if do == "strip":
            for tag in rule["tags"]:
                body = re.sub(f"<{tag}>.*?</{tag}>|<{tag}/>".encode(), b"", body, flags=re.S)
        if do == "paged":
            body = proxy.page(call, body)
        if do == "truncate":
            self.send_raw(status, headers, body[:len(body) // 2], len(body))
            return self.drop()
        if do == "cut_xml":
            return self.send_raw(status, headers, body[:len(body) // 2])
        if do == "slow":
            return self.slowly(status, headers, body, rule)
        return self.send_raw(status, headers, body)

    def huge(self, size):
        self.send_response_only(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        block = b" " * 65536
        while size > 0:
            self.wfile.write(block[:size])
            size -= len(block)

    def slowly(self, status, headers, body, rule):
        pieces = rule.get("pieces", 10)
        step = max(1, len(body) // pieces)
        self.send_raw(status, headers, body[:step], len(body))
        for at in range(step, len(body), step):
            time.sleep(rule.get("delay", 0.05))
            self.wfile.write(body[at:at + step])

    def skewed(self, proxy, call, seconds):
        now = time.time() + seconds
        headers = {"Date": email.utils.formatdate(now, usegmt=True)}
        signed = call.headers.get("X-Amz-Date")
        if signed:
            at = datetime.strptime(signed, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
            if abs(at - now) > 300:
                return self.send_raw(400, headers, error_body("RequestExpired", "Request has expired."))
        status, upstream, body = proxy.forward(call)
        kept = {k: v for k, v in upstream.items() if k.lower() != "date"}
        kept.update(headers)
        return self.send_raw(status, kept, body)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def process_request(self, request, client_address):
        self.owner.unread.add(client_address)
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.owner.unread.discard(client_address)

    def handle_error(self, request, client_address):
        pass


class FaultProxy:
    def __init__(self, upstream, port=0, tokens=True, latency=0):
        self.upstream = urllib.parse.urlsplit(upstream)
        self.lock = threading.Lock()
        self.rules, self.calls, self.answers, self.pages = [], [], {}, {}
        self.latency = latency  # seconds before a request is forwarded: what a distant cloud costs
        self.tokens, self.busy = tokens, 0  # busy: requests that are not answered yet
        self.unread = set()  # connections: each may have a request that was not answered
        self.held = 0  # requests of hold_after that were forwarded and answered by the cloud
        self.refused = []  # requests that the API description does not allow (judge)
        self.judge = ec2_gate.complaint if ec2_gate is not None else None
        self.hanging, self.released = threading.Event(), threading.Event()
        self.server = _Server(("127.0.0.1", port), _Handler)
        self.server.owner = self
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def start(self):
        self.thread.start()
        return self

    def release(self):
        self.released.set()

    def close(self):
        self.hanging.set()
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        assert self.refused == []

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    def rule(self, action, do, times=1, **more):
        with self.lock:
            self.rules.append({"action": action, "do": do, "times": times, **more})
        return self

    def clear(self):
        with self.lock:
            self.rules, self.calls = [], []

    def count(self, action):
        with self.lock:
            return sum(1 for c in self.calls if c.action == action)

    def of(self, action):
        with self.lock:
            return [c for c in self.calls if c.action == action]

    def rounds_before(self, action):
        """How many of the requests that were answered before the first of this action waited for one another: the most
        of them of which none overlaps another."""
        with self.lock:
            start = next(c.at for c in self.calls if c.action == action)
            done = sorted((c for c in self.calls if c.end is not None and c.end <= start), key=lambda c: c.end)
        count, end = 0, 0.0
        for c in done:
            if c.at >= end:
                count, end = count + 1, c.end
        return count

    def take(self, call):
        with self.lock:
            self.calls.append(call)
            self.busy += 1
            for rule in self.rules:
                if rule["action"] not in (None, call.action):
                    continue
                if rule.get("region") not in (None, call.region):
                    continue
                if "when" in rule and not os.path.exists(rule["when"]):
                    continue
                if any(call.params.get(k) != v for k, v in rule.get("params", {}).items()):
                    continue
                if "every" in rule:
                    rule["seen"] = rule.get("seen", 0) + 1
                    if rule["seen"] % rule["every"]:
                        continue
                    return rule
                if rule["times"] is None:
                    return rule
                if rule["times"] > 0:
                    rule["times"] -= 1
                    return rule
        return None

    def page(self, call, body):
        """One item of the call's set, and a token for the next; the items in an order of their own each time."""
        name = SETS.get(call.action)
        root = ElementTree.fromstring(body)
        space = root.tag.partition("}")[0] + "}" if "}" in root.tag else ""
        found = root.find(space + name) if name else None
        if found is None or len(found) < 2:
            return body
        with self.lock:
            at = call.params.get("NextToken", "")
            key, index = (at.split("#")[0], int(at.split("#")[1])) if "#" in at else (f"p{len(self.pages)}", 0)
            if key not in self.pages:
                items = list(found)
                random.Random(len(self.pages)).shuffle(items)
                self.pages[key] = items
            items = self.pages[key]
        for item in list(found):
            found.remove(item)
        found.append(items[index])
        if index + 1 < len(items):
            ElementTree.SubElement(root, space + "nextToken").text = f"{key}#{index + 1}"
        ElementTree.register_namespace("", space.strip("{}"))
        return ElementTree.tostring(root)

    def forward(self, call):
        if "#" in call.params.get("NextToken", ""):  # a token of ours: the cloud does not know it
            body = urllib.parse.urlencode([(k, v) for k, v in call.params.items() if k != "NextToken"]).encode()
            call = Call(call.method, call.path, call.headers, call.body)
            call.headers.replace_header("Content-Length", str(len(body)))
            call.body = body
        token = call.params.get("ClientToken") if self.tokens else None
        if token is None:
            return self.send_on(call)
        with self.lock:
            if token in self.answers:
                body, answer = self.answers[token]
                if body != call.body:
                    return 400, {}, error_body("IdempotentParameterMismatch", "same token, other parameters")
                return answer
            answer = self.send_on(call)
            if answer[0] == 200:
                self.answers[token] = (call.body, answer)
            return answer

    def send_on(self, call):
        conn = http.client.HTTPConnection(self.upstream.hostname, self.upstream.port, timeout=60)
        path = call.path
        if path.startswith("http://"):  # we are used as a forward proxy
            path = urllib.parse.urlsplit(path).path or "/"
        headers = {k: v for k, v in call.headers.items() if k.lower() not in ("proxy-connection",)}
        try:
            conn.request(call.method, path, body=call.body, headers=headers)
            got = conn.getresponse()
            return got.status, dict(got.getheaders()), got.read()
        finally:
            conn.close()


class Garbage:
    """Answers every connection with bytes that are neither TLS nor HTTP."""

    def __init__(self):
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                conn, _ = self.sock.accept()
            except OSError:
                return
            with conn:
                try:
                    conn.recv(1024)
                    conn.sendall(b"\x00\x01 nothing that you know \xff" * 20)
                except OSError:
                    pass

    def close(self):
        self.sock.close()


def through(proxy):
    """The environment in which the endpoint is the proxy."""
    return {"AWS_ENDPOINT_URL": proxy.url}


def several(start):
    """The body of a fixture: a function that returns what start() returned; all of it is closed at the end."""
    made = []

    def make(*args, **kw):
        made.append(start(*args, **kw))
        return made[-1]
    yield make
    for proxy in made:
        proxy.close()


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__)
    proxy = FaultProxy(argv[1], int(argv[2]) if len(argv) > 2 else 0)
    if len(argv) > 3:
        with open(argv[3], encoding="utf-8") as f:
            for rule in json.load(f):
                if isinstance(rule.get("body"), str):
                    rule["body"] = rule["body"].encode()
                proxy.rules.append({"times": 1, **rule})
    proxy.start()
    print(proxy.url, flush=True)
    proxy.thread.join()


if __name__ == "__main__":
    main(sys.argv)
