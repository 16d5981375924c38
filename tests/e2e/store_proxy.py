# SPDX-License-Identifier: Apache-2.0
"""A proxy between gpuprov and an object store that misbehaves on command: StoreProxy(URL), .rule(...), .calls, .close()."""
import http.client
import http.server
import threading
import urllib.parse


class StoreProxy:
    """A rule is (match, act): match(request) decides, act(request, forward) gives the reply, at most `times` times.
    forward() asks the store. A reply is (status, headers, body); None closes the connection without one."""

    def __init__(self, upstream):
        self.upstream = urllib.parse.urlsplit(upstream)
        self.rules, self.calls, self.lock = [], [], threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                act = proxy.take(self)
                reply = act(self, self.forward) if act else self.forward()
                if reply is None:
                    self.close_connection = True
                    return
                status, headers, body = reply
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def forward(self):
                c = http.client.HTTPConnection(proxy.upstream.hostname, proxy.upstream.port, timeout=120)
                c.request(self.command, self.path, self.body or None, dict(self.headers.items()))
                r = c.getresponse()
                body = r.read()
                drop = ("transfer-encoding", "connection", "content-length", "date", "server")
                headers = [(n, v) for n, v in r.getheaders() if n.lower() not in drop]
                length = r.getheader("Content-Length") if self.command == "HEAD" else None
                return r.status, headers + [("Content-Length", length or str(len(body)))], body

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request):
        with self.lock:
            self.calls.append((request.command, request.path))
            for rule in self.rules:
                if rule["times"] != 0 and rule["match"](request):
                    rule["times"] -= 1
                    return rule["act"]
        return None

    def rule(self, match, act, times=-1):
        self.rules.append({"match": match, "act": act, "times": times})

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def xml_error(status, code, headers=()):
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as the test wants it</Message></Error>".encode()
    return lambda request, forward: (status, [*headers, ("Content-Length", str(len(body)))], body)
