# SPDX-License-Identifier: Apache-2.0
"""An agent that answers a request for files with whatever a test says, in place of a node's own one. install() writes it
to a path of this machine; answer() is the text of a file beside it."""
import base64
import hashlib
import json
import struct

MAGIC = b"\0gpuprov-tree 1\n"
BEGIN, LIST, LISTED, FILE, DATA, FILE_END, DONE = 1, 3, 4, 7, 8, 10, 13

# The program: a Python script that needs nothing else. Everything but `tree serve` is the real agent.
PROGRAM = r'''#!/usr/bin/env python3
import base64, json, os, select, struct, sys
me = os.path.realpath(__file__)
if sys.argv[1:3] != ["tree", "serve"]:
    os.execv(me + ".real", [me + ".real"] + sys.argv[1:])
said = json.load(open(me + ".answer"))
got = b""
def more():
    global got
    piece = os.read(0, 65536)
    if not piece:
        sys.exit(0)
    got += piece
while len(got) < 21 or len(got) < 21 + struct.unpack("<I", got[17:21])[0]:
    more()
verb = got[25]
if verb != 0:  # only what is given to gpuprov is forged
    import subprocess
    p = subprocess.Popen([me + ".real", "tree", "serve"], stdin=subprocess.PIPE)
    while True:
        p.stdin.write(got); p.stdin.flush(); got = b""
        more()
got = got[21 + struct.unpack("<I", got[17:21])[0]:]
def send(b):
    while b:
        b = b[os.write(1, b):]
send(base64.b64decode(said["first"]))
while said["files"] is not None:
    while len(got) < 5 or len(got) < 5 + struct.unpack("<I", got[1:5])[0]:
        more()
    kind, n = got[0], struct.unpack("<I", got[1:5])[0]
    body, got = got[5:5 + n], got[5 + n:]
    while kind == 5 and body:  # a want: index, how, for a beginning its length, a hash
        index, how = struct.unpack("<IB", body[:5])
        body = body[(5, 45, 37)[how]:]
        send(base64.b64decode(said["files"][str(index)]))
    if kind == 6:  # there are no more
        send(base64.b64decode(said["done"]))
        break
while True:
    more()
'''


def frame(kind, payload):
    return bytes([kind]) + struct.pack("<I", len(payload)) + payload


def entry(kind, path, size=0, mode=0o644, link=None, held=None):
    path = path.encode() if isinstance(path, str) else path
    b = kind.encode() + b"\0" + struct.pack("<IQQqI", mode, size, size if held is None else held, 1000000000, 0)
    b += struct.pack("<I", len(path)) + path
    return b if link is None else b + struct.pack("<I", len(link)) + link.encode()


def content_hash(text):
    """SHA-256 over that of each MiB, and the size."""
    blocks = [hashlib.sha256(text[i:i + (1 << 20)]).digest() for i in range(0, len(text), 1 << 20)]
    return hashlib.sha256(b"".join(blocks) + struct.pack("<Q", len(text))).digest()


def answer(entries, single=False):
    """entries: (type, path, content or target, mode)."""
    first, files = MAGIC + frame(BEGIN, bytes([single])), {}
    for i, (kind, path, text, mode) in enumerate(entries):
        data = text.encode() if kind == "f" else b""
        first += frame(LIST, entry(kind, path, len(data), mode, text if kind == "l" else None))
        if kind == "f":
            files[i] = frame(FILE, struct.pack("<IQ", i, 0)) + frame(DATA, data) + frame(FILE_END, content_hash(data) + b"\0")
    return raw(first + frame(LISTED, struct.pack("<IBQ", len(entries), 0, 0)), files)


def raw(first, files):
    """Bytes at once, and those of each file when it is wanted. files: by index; None: it ends after the first bytes."""
    def text(b):
        return base64.b64encode(b).decode()
    return json.dumps({"first": text(first), "files": None if files is None else {i: text(b) for i, b in files.items()},
                       "done": text(frame(DONE, b""))})
