# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Google's object store: gcs_standin.py ADDRESS CERTIFICATE KEY FOLDER serves the files of FOLDER as the
objects of the bucket "data" by the JSON API of version 1, over TLS, to who got a token by a signed assertion. It appends
each request to FOLDER.log."""
import base64
import hashlib
import http.server
import json
import pathlib
import ssl
import sys
import urllib.parse

TOKEN = "ya29.stand-in"


def form(path, folder):
    """The object that a file is, as the API has it."""
    data = path.read_bytes()
    name = str(path.relative_to(folder))
    return {"kind": "storage#object", "bucket": "data", "name": name, "size": str(len(data)), "generation": "1",
            "contentType": "application/octet-stream", "updated": "2026-01-01T00:00:00Z",
            "timeCreated": "2026-01-01T00:00:00Z", "storageClass": "STANDARD",
            "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
            "mediaLink": "https://storage.googleapis.com/download/storage/v1/b/data/o/%s?alt=media" % urllib.parse.quote(name, "")}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder = None

    def answer(self, status, body=b"", kind="application/json"):
        body = json.dumps(body).encode() if isinstance(body, dict) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def allowed(self):
        with open(str(self.folder) + ".log", "a") as log:
            log.write("%s %s\n" % (self.command, self.path))
        if self.headers.get("Authorization") == "Bearer " + TOKEN:
            return True
        self.answer(401, {"error": {"code": 401, "message": "Anonymous caller does not have storage.objects.list access"}})
        return False

    def file(self, path):
        return self.folder / urllib.parse.unquote(path.rsplit("/o/", 1)[1])

    def do_GET(self):  # pylint: disable=invalid-name
        if not self.allowed():
            return
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/storage/v1/b/data":
            self.answer(200, {"kind": "storage#bucket", "name": "data"})
        elif url.path == "/storage/v1/b/data/o":
            prefix, items, folders = query.get("prefix", ""), [], set()
            for path in sorted(p for p in self.folder.rglob("*") if p.is_file()):
                name = str(path.relative_to(self.folder))
                if not name.startswith(prefix):
                    continue
                if "/" in name[len(prefix):] and query.get("delimiter") == "/":
                    folders.add(prefix + name[len(prefix):].split("/")[0] + "/")
                else:
                    items.append(form(path, self.folder))
            self.answer(200, {"kind": "storage#objects", "items": items, "prefixes": sorted(folders)})
        elif "/o/" in url.path and self.file(url.path).is_file():
            path = self.file(url.path)
            if query.get("alt") == "media":
                self.answer(200, path.read_bytes(), "application/octet-stream")
            else:
                self.answer(200, form(path, self.folder))
        else:
            self.answer(404, {"error": {"code": 404, "message": "Not Found"}})

    def do_DELETE(self):  # pylint: disable=invalid-name
        if self.allowed():
            self.file(urllib.parse.urlsplit(self.path).path).unlink()
            self.answer(204)

    def do_POST(self):  # pylint: disable=invalid-name
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/token":
            claims = urllib.parse.parse_qs(body.decode())["assertion"][0].split(".")[1]
            who = json.loads(base64.urlsafe_b64decode(claims + "=="))["iss"]
            known = who == "robot@test.example"
            self.answer(200 if known else 400, {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600} if known
                        else {"error": "invalid_grant"})
        elif self.allowed():  # multipart/related: what the object is, and its content
            mark = b"--" + self.headers["Content-Type"].split("boundary=")[1].strip('"').encode()
            parts = [part.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n") for part in body.split(mark)[1:3]]
            path = self.folder / json.loads(parts[0])["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(parts[1])
            self.answer(200, form(path, self.folder))

    def log_message(self, *args):
        pass


def main():
    address, certificate, key, folder = sys.argv[1:]
    Handler.folder = pathlib.Path(folder)
    server = http.server.ThreadingHTTPServer((address, 443), Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main()
