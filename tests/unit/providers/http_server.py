# SPDX-License-Identifier: Apache-2.0
"""A small server for test_http.c: HTTP/1.1 on one port, HTTP/2 over TLS on another, which misbehaves by path.

Prints both ports, then serves until its standard input ends. Its certificate is FOLDER/ca.pem.
  /ok       200, the request's body
  /busy     429 with Retry-After: 1 for the first request of that query, then as /ok
  /trouble  the same with 503
  /lose     reads the request and closes the connection
  /keep     /ok; the next request on that connection is read, and the connection closed
  /slow     the head and one byte, the rest never
  /hang     no reply
  /wait     /ok after 0.2 s
  /status?N as /ok, with status N
  /text?T   200, T
  /stale    401, but /ok with "authorization: new"
  /page?N   {"items": [N], "next": N+1}; the third is the last. What follows "&" is left out
  /pageless?N {"items": [N]}
  /seen     JSON: requests by path and query, connections, most requests at once, times of arrival in ms
"""
import asyncio
import collections
import datetime
import email.utils
import ipaddress
import json
import os
import ssl
import sys
import time

import h2.config
import h2.connection
import h2.events
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

seen = collections.Counter()
times = collections.defaultdict(list)
state = {"connections": 0, "now": 0, "most": 0}


class Lost(Exception):
    pass


async def answer(target, body, fields=None):
    """Status, header fields and body; body None: only its first byte comes."""
    path, _, query = target.partition("?")
    if path == "/seen":
        return 200, {}, json.dumps({**state, "seen": seen, "times": times}).encode()
    seen[target] += 1
    times[path].append(int(time.monotonic() * 1000))
    state["now"] += 1
    state["most"] = max(state["most"], state["now"])
    try:
        if path == "/lose":
            await asyncio.sleep(0.2)
            raise Lost
        if path == "/hang":
            await asyncio.sleep(3600)
        if path == "/wait":
            await asyncio.sleep(0.2)
        if path in ("/busy", "/trouble") and seen[target] == 1:
            return (429 if path == "/busy" else 503), {"retry-after": "1"}, b"later"
        if path == "/status":
            return int(query[:3]), {}, body
        if path == "/date":
            status, seconds = query.split(",")
            return int(status), {"date": email.utils.formatdate(time.time() + int(seconds), usegmt=True)}, body
        if path == "/text":
            return 200, {}, query.encode()
        if path == "/stale" and (fields or {}).get("authorization") != "new":
            return 401, {}, b'{"code": "TokenExpired"}'
        if path == "/page":
            n = int(query.split("&")[0])
            return 200, {}, json.dumps({"items": [n], **({"next": n + 1} if n < 3 else {})}).encode()
        if path == "/pageless":
            return 200, {}, json.dumps({"items": [int(query)]}).encode()
        return 200, {}, None if path == "/slow" else body
    finally:
        state["now"] -= 1


async def on_http1(reader, writer):
    state["connections"] += 1
    last = False
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
            body = await reader.readexactly(int(fields.get("content-length", "0")))
            target = lines[0].split()[1]
            if last:
                seen[target] += 1
                raise Lost
            last = target.split("?")[0] == "/keep"
            status, extra, reply = await answer(target, body, fields)
            fields = "".join(f"{k}: {v}\r\n" for k, v in extra.items())
            length = 10 if reply is None else len(reply)
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{fields}\r\n".encode())
            writer.write(b"x" if reply is None else reply)
            await writer.drain()
            if reply is None:
                await asyncio.sleep(3600)
    except (Lost, asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def on_http2(reader, writer):
    state["connections"] += 1
    conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    conn.initiate_connection()
    requests, tasks = {}, set()

    async def reply(stream):
        try:
            status, extra, body = await answer(*requests[stream])
            conn.send_headers(stream, [(":status", str(status)), *extra.items()])
            conn.send_data(stream, body, end_stream=True)
            writer.write(conn.data_to_send())
        except Lost:
            writer.transport.abort()

    writer.write(conn.data_to_send())
    while data := await reader.read(65536):
        for event in conn.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                fields = {k.decode() if isinstance(k, bytes) else k: v for k, v in event.headers}
                target = fields[":path"]
                requests[event.stream_id] = [target.decode() if isinstance(target, bytes) else target, b""]
            elif isinstance(event, h2.events.DataReceived):
                requests[event.stream_id][1] += event.data
                conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                tasks.add(asyncio.create_task(reply(event.stream_id)))
        writer.write(conn.data_to_send())
    writer.close()


def certificate(folder):
    """A certificate for 127.0.0.1 that signs itself; key and certificate in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                           critical=False)
            .sign(key, hashes.SHA256()))
    with open(f"{folder}/ca.pem", "wb") as f:
        f.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                  serialization.NoEncryption()))
        f.write(made.public_bytes(serialization.Encoding.PEM))
    return f"{folder}/ca.pem"


async def main():
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate(sys.argv[1]))
    tls.set_alpn_protocols(["h2"])
    plain = await asyncio.start_server(on_http1, "127.0.0.1", 0)
    multi = await asyncio.start_server(on_http2, "127.0.0.1", 0, ssl=tls)
    print(*(s.sockets[0].getsockname()[1] for s in (plain, multi)), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)  # requests that hang are under way


asyncio.run(main())
