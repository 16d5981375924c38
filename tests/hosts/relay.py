# SPDX-License-Identifier: Apache-2.0
"""relay.py LISTEN_PORT HOST PORT PLAN LOG: a TCP relay that cuts. PLAN: a JSON list, one entry per
connection in their order, [WAY, N]: the connection is cut when the Nth piece (from 0) that goes that
way ("up": to the server, "down": from it) has come and is not passed on; what follows goes nowhere.
Connections beyond the plan are whole. LOG: a line "WAY N" per piece passed on, a line "cut" per cut."""
import json
import select
import socket
import sys


def pump(client, server, cut, log):
    """Passes pieces on until one side ends or the cut comes."""
    ways = {client: ("up", server), server: ("down", client)}
    seen = {"up": 0, "down": 0}
    while True:
        for ready in select.select([client, server], [], [])[0]:
            way, to = ways[ready]
            try:
                piece = ready.recv(1 << 16)
            except ConnectionError:
                return
            if not piece:
                return
            if cut and cut[0] == way and cut[1] == seen[way]:
                log("cut")
                return
            try:
                to.sendall(piece)
            except ConnectionError:
                return
            log("%s %d" % (way, seen[way]))
            seen[way] += 1


def main():
    port, host, to_port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with open(sys.argv[4], encoding="ascii") as f:
        plan = json.load(f)
    with open(sys.argv[5], "a", encoding="ascii", buffering=1) as out, \
            socket.create_server(("127.0.0.1", port)) as listener:
        out.write("listens\n")
        while True:
            client = listener.accept()[0]
            with client, socket.socket() as server:
                try:
                    server.connect((host, to_port))
                except ConnectionError:
                    continue  # an sshd that starts anew
                for s in (client, server):
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pump(client, server, plan.pop(0) if plan else None, lambda line: out.write(line + "\n"))


main()
