# SPDX-License-Identifier: Apache-2.0
"""The base of a stand-in for a cloud's API: an HTTP(S) server with a log of its requests and with faults on request.

    class Cloud(Mock):
        def handle(self, method, target, headers, body):     # -> (status, headers, object or bytes or None)

    with Cloud() as cloud:
        cloud.rule("POST .*/instances", "drop_after")        # the cloud acts, and its reply is lost
        run(env={"CLOUD_ENDPOINT": cloud.url})
        cloud.requests("POST")                               # what came in

A rule's pattern is searched in "METHOD TARGET" and in "METHOD TARGET BODY". Its action:
drop_before: the connection ends, and the cloud did not act; drop_after: it acted, and the reply is lost;
reply: status, object, headers instead of acting; edit: change(object) of a reply on its way; slow: seconds before the
reply. times: how often (None: always); every: each Nth request that matches; skip: the first ones pass; when: only
while this file is there.
latency: seconds that every request takes, for benchmarks."""
import datetime
import http.server
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
import time
import traceback


class Fault(Exception):
    """An answer of the cloud that is an error: raise it in handle."""

    def __init__(self, status, obj, headers=None):
        super().__init__(status, obj)
        self.status, self.obj, self.headers = status, obj, headers or {}


class Mock:
    """gate: an object whose check(method, target, headers, body) refuses what the API's description does not have (by
    raising Fault), and whose answer(operation, status, object) does so for the mock's own answers."""

    def __init__(self, host="127.0.0.1", port=0, tls=None, latency=0.0):
        self.log, self.rules, self.latency, self.met = [], [], latency, None
        self.lock = threading.RLock()
        self.unread = set()  # connections that may have a request on which this cloud has not acted
        mock = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def one(self):
                size = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(size) if size else b""
                mock.serve(self, {k.lower(): v for k, v in self.headers.items()}, body)

            do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = one

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def server_bind(self):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.socket.bind(self.server_address)
                self.server_address = self.socket.getsockname()
                self.server_name, self.server_port = self.server_address[:2]

            def process_request(self, request, client_address):
                mock.unread.add(client_address)
                super().process_request(request, client_address)

            def process_request_thread(self, request, client_address):
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    mock.unread.discard(client_address)

            def handle_error(self, request, client_address):
                pass  # a client that was killed

        self.server = Server((host, port), Handler)
        self.scheme = "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True,
                                                     do_handshake_on_connect=False)
            self.scheme = "https"
        self.port = self.server.server_address[1]
        self.url = "%s://%s:%d" % (self.scheme, host, self.port)
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    # --- for a cloud ---

    def handle(self, method, target, headers, body):
        raise NotImplementedError

    # --- for a test ---

    def rule(self, pattern, action, times=1, every=None, skip=0, **what):
        self.rules.append({"pattern": re.compile(pattern), "action": action, "times": times, "every": every,
                           "skip": skip, "seen": 0, "done": 0, **what})
        return self

    def meet(self, pattern, count):
        """Requests that match are answered only when this many of them have arrived: a client that sends them one after
        the other gets an error. For a test of what is sent side by side."""
        self.met = (re.compile(pattern), threading.Barrier(count, timeout=20))
        return self

    def requests(self, pattern=""):
        with self.lock:
            return [r for r in self.log if re.search(pattern, "%s %s" % (r["method"], r["target"]))]

    # --- one request ---

    def _rule_for(self, record):
        line = "%s %s" % (record["method"], record["target"])
        for r in self.rules:
            if "when" in r and not os.path.exists(r["when"]):
                continue
            if r["times"] == 0 or not (r["pattern"].search(line) or
                                       r["pattern"].search("%s %s" % (line, record["body"]))):
                continue
            r["seen"] += 1
            if r["seen"] <= r["skip"] or (r["every"] and r["seen"] % r["every"]):
                continue
            if r["times"] is not None:
                r["times"] -= 1
            r["done"] += 1
            return r
        return {"action": None}

    def serve(self, handler, headers, body):
        record = {"method": handler.command, "target": handler.path, "headers": headers,
                  "body": body.decode("utf-8", "replace"), "at": time.monotonic()}
        if self.latency:
            time.sleep(self.latency)
        alone = self.met and self.met[0].search("%s %s" % (record["method"], record["target"])) and self._is_alone()
        with self.lock:
            self.log.append(record)
            rule = self._rule_for(record)
            if rule["action"] == "drop_before":
                return self._drop(handler)
            if alone:
                status, extra, obj = 500, {}, {"mock_fault": "this request was not sent side by side with the others"}
            elif rule["action"] == "reply":
                status, extra, obj = rule["status"], rule.get("headers", {}), rule.get("obj")
            else:
                status, extra, obj = self._handled(handler, headers, body)
            record["status"], record["reply"] = status, obj
        self.unread.discard(handler.client_address)
        if rule["action"] == "drop_after":
            return self._drop(handler)
        if rule["action"] == "slow":
            time.sleep(rule["seconds"])
        if rule["action"] == "edit":
            obj = rule["change"](json.loads(json.dumps(obj)))
        record["end"] = time.monotonic()  # before the client has the reply: what it sends then is later than this
        self.unread.add(handler.client_address)
        self._send(handler, status, extra, obj)
        return None

    def _is_alone(self):
        try:
            self.met[1].wait()
        except threading.BrokenBarrierError:
            return True
        return False

    def _handled(self, handler, headers, body):
        try:
            return self.handle(handler.command, handler.path, headers, body)
        except Fault as fault:
            return fault.status, fault.headers, fault.obj
        except Exception as e:  # pylint: disable=broad-except  # a fault of the mock itself
            traceback.print_exc()
            return 500, {}, {"mock_fault": repr(e)}

    @staticmethod
    def _drop(handler):
        handler.close_connection = True
        try:
            handler.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    @staticmethod
    def _send(handler, status, extra, obj):
        data = b"" if obj is None else obj if isinstance(obj, bytes) else json.dumps(obj).encode()
        if any(k.lower() == "date" for k in extra):
            handler.send_response_only(status)
        else:
            handler.send_response(status)
        if data and not any(k.lower() == "content-type" for k in extra):
            handler.send_header("Content-Type", "application/json; charset=utf-8")
        for name, value in extra.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)


def rounds(log):
    """How many requests of a log waited for one another: the most of them of which none overlaps another. With a latency
    per request this is what a distant cloud costs."""
    count, end = 0, float("-inf")
    for r in sorted((r for r in log if "end" in r), key=lambda r: r["end"]):
        if r["at"] >= end:
            count, end = count + 1, r["end"]
    return count


def certificate(folder):
    """A self-signed certificate for 127.0.0.1: the paths of it and of its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cloud")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
            .add_extension(x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]), False)
            .sign(key, hashes.SHA256()))
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))
    return str(cert_path), str(key_path)
