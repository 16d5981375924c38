# SPDX-License-Identifier: Apache-2.0
"""The part of framework.horovod after common.py: one step of Horovod's optimizer over all ranks. They find each other
without mpirun and without horovodrun: rank 0 serves the store that Horovod's gloo reads."""
import http.server
import socket
import socketserver
import threading


class Store(http.server.BaseHTTPRequestHandler):
    """Keys and values, as horovodrun serves them."""
    protocol_version = "HTTP/1.1"
    values, lock = {}, threading.Lock()

    def answer(self, code, body=b""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        with self.lock:
            value = self.values.get(self.path)
        self.answer(404 if value is None else 200, value or b"")

    def do_PUT(self):
        value = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            self.values[self.path] = value
        self.answer(200)

    def do_DELETE(self):
        self.answer(200)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if os.environ["GPUPROV_BIND"].count(":") > 1 else socket.AF_INET
    request_queue_size = 1024  # all ranks come at once

    def server_bind(self):  # without the name of its address, for which HTTPServer asks a name server, perhaps for long
        socketserver.TCPServer.server_bind(self)


def step():
    if rank == 0:
        threading.Thread(target=Server((address.strip("[]"), int(port)), Store).serve_forever, daemon=True).start()
    nodes, node = int(os.environ["GPUPROV_NODES"]), int(os.environ["GROUP_RANK"])
    known = {"RANK": rank, "SIZE": size, "LOCAL_RANK": os.environ["LOCAL_RANK"],
             "LOCAL_SIZE": os.environ["LOCAL_WORLD_SIZE"], "CROSS_RANK": node, "CROSS_SIZE": nodes,
             "HOSTNAME": "node%d" % node, "CONTROLLER": "gloo", "CPU_OPERATIONS": "gloo",
             "GLOO_RENDEZVOUS_ADDR": address.strip("[]"), "GLOO_RENDEZVOUS_PORT": port,
             "GLOO_TIMEOUT_SECONDS": int(seconds), "GLOO_IFACE": os.environ.get("GLOO_SOCKET_IFNAME", "")}
    os.environ.update({"HOROVOD_" + name: str(value) for name, value in known.items() if value != ""})
    hvd.init()
    say("stage", "sum")
    check_total(hvd.allreduce(torch.tensor([float(rank + 1)] * 1024, device=place), op=hvd.Sum).tolist())
    model = known_model(place, rank)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5),
                                         named_parameters=model.named_parameters())
    say("stage", "forward")
    loss = known_loss(model, place)
    say("stage", "backward")
    loss.backward()
    optimizer.step()
    check_known_step(model, 0, 0.5)
    say("stage", "leave")
    hvd.allreduce(torch.zeros(1), op=hvd.Sum)


version = load("horovod").__version__
hvd = load("horovod.torch")
say("version", version)
place, address, port = prepare()
train(step)
