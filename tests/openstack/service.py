# SPDX-License-Identifier: Apache-2.0
"""service.py NAME | databases NAME | all: runs in the lab's root (openstack_lab.py).

all: pid 1 of the lab. Makes the databases, starts every service, seeds the cloud, then writes /lab/ready. Ends when
a service ends. Keystone and placement have one thread each, because sqlite has one writer at a time. All of nova is one
process, so that the message bus in the process (fake://) is enough: no broker."""
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request

import lab_config as config

LAB = "/lab"
ETC = LAB + "/etc"
OPT = json.loads(os.environ["LAB_OPTIONS"])
ADDRESS = OPT["address"]
SERVICES = {"keystone": "identity", "placement": "placement", "glance": "image", "neutron": "network",
            "nova": "compute"}


# --- one service ---

def with_waitress(app, service):
    import waitress
    waitress.serve(app, host=ADDRESS, port=config.PORTS[service], threads=1, connection_limit=500)


def keystone():
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = ETC + "/keystone.conf"
    sys.argv = ["keystone"]
    from keystone.server.wsgi import initialize_public_application
    with_waitress(initialize_public_application(), "identity")


def placement():
    os.environ["OS_PLACEMENT_CONFIG_DIR"] = ETC
    sys.argv = ["placement"]
    from placement.wsgi import init_application
    with_waitress(init_application(), "placement")


def glance():
    from glance.cmd import api
    sys.argv = ["glance-api", "--config-file", ETC + "/glance.conf"]
    api.main()


def neutron():
    from neutron.cmd.eventlet import server
    sys.argv = ["neutron-server", "--config-file", ETC + "/neutron.conf"]
    server.main()


def nova_databases(conf):
    from nova.cmd import manage
    manage.CONF = conf
    cells = manage.CellV2Commands()
    manage.ApiDbCommands().sync()
    cells.map_cell0("sqlite:///%s/db/nova_cell0.db" % LAB)
    manage.DbCommands().sync()
    cells.create_cell("cell1", conf.database.connection, "fake:///")


def nova():
    import nova.cmd  # patches the standard library first
    import nova.virt
    import eventlet
    import nova.conf
    import os_vif
    from nova import config as nova_config, context, objects, service
    from nova.compute import rpcapi as compute
    from nova.conductor import rpcapi as conductor
    from nova.objects import host_mapping
    from nova.scheduler import rpcapi as scheduler
    from oslo_log import log
    from oslo_service import service as oslo_service, threadgroup
    nova.virt.__path__.append("/code/virt")
    conf = nova.conf.CONF
    nova_config.parse_args(["nova", "--config-file", ETC + "/nova.conf"])
    log.setup(conf, "nova")
    objects.register_all()
    os_vif.initialize()
    nova_databases(conf)
    objects.Service.enable_min_version_cache()
    launcher = oslo_service.ServiceLauncher(conf)
    launcher.services.tg = threadgroup.ThreadGroup(100)  # the default has 10 places: the 11th service waits for ever
    launcher.launch_service(service.Service.create("ctl", "nova-conductor", conductor.RPC_TOPIC))
    launcher.launch_service(service.Service.create("ctl", "nova-scheduler", scheduler.RPC_TOPIC))
    for host, driver in OPT["hosts"].items():
        conf.set_override("compute_driver", driver)  # read once, when the service is made
        launcher.launch_service(service.Service.create(host, "nova-compute", compute.RPC_TOPIC))
    launcher.launch_service(service.WSGIService("osapi_compute"))

    def discover(missing):  # the scheduler's own search takes a minute
        while missing > 0:
            missing -= len(host_mapping.discover_hosts(context.get_admin_context()))
            eventlet.sleep(0.3)
    eventlet.spawn(discover, len(OPT["hosts"]))
    launcher.wait()


# --- databases ---

def in_child(run):
    """One command in a process of its own: oslo.config is global."""
    pid = os.fork()
    if pid == 0:
        run()
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit("a command for the databases failed")


def databases(what):
    if what == "keystone":
        from keystone.cmd import cli
        at = config.url(ADDRESS, "identity")
        for folder in ("fernet", "credential"):
            os.makedirs("%s/keys/%s" % (LAB, folder), mode=0o700, exist_ok=True)
        root = ["--keystone-user", "root", "--keystone-group", "root"]
        for words in (["db_sync"], ["fernet_setup", *root], ["credential_setup", *root],
                      ["bootstrap", "--bootstrap-password", config.PASSWORD, "--bootstrap-region-id", config.REGION,
                       "--bootstrap-public-url", at, "--bootstrap-internal-url", at, "--bootstrap-admin-url", at]):
            argv = ["keystone-manage", "--config-file", ETC + "/keystone.conf", *words]
            in_child(lambda argv=argv: cli.main(argv=argv, developer_config_file=None))
    elif what == "glance":
        from glance.cmd import manage
        sys.argv = ["glance-manage", "--config-file", ETC + "/glance.conf", "db", "sync"]
        manage.main()
    else:  # neutron's migrations do not run on sqlite: the tables are made from the models
        import sqlalchemy
        from neutron.db.migration.models import head
        head.get_metadata().create_all(sqlalchemy.create_engine("sqlite:///%s/db/neutron.db" % LAB))
    sqlite3.connect("%s/db/%s.db" % (LAB, what)).execute("PRAGMA journal_mode=WAL")


# --- all of them ---

def child(*words):
    with open("%s/log/%s.out" % (LAB, "-".join(words)), "wb") as out:
        return subprocess.Popen([sys.executable, __file__, *words], stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT)


def done(process, words):
    if process.wait() != 0:
        sys.exit("%s ended with %s: see %s/log" % (words, process.returncode, LAB))


def answers(process, name):
    """Waits until the service answers at all."""
    at = "http://%s:%d/" % (ADDRESS, config.PORTS[SERVICES[name]])
    while process.poll() is None:
        try:
            urllib.request.urlopen(at, timeout=10).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("%s ended with %s: see %s/log" % (name, process.returncode, LAB))


def everything():
    for folder in ("etc", "db", "log", "lock", "images", "work"):
        os.makedirs("%s/%s" % (LAB, folder), exist_ok=True)
    for files in (make(LAB, ADDRESS, OPT) for make in config.ALL):
        for name, text in files.items():
            with open("%s/%s" % (ETC, name), "w", encoding="utf-8") as f:
                f.write(text)
    made = {name: child("databases", name) for name in ("keystone", "glance", "neutron")}
    run = {}

    def start(name):
        run[name] = child(name)

    done(made["keystone"], "databases of keystone")
    start("keystone")
    done(made["glance"], "databases of glance")
    done(made["neutron"], "databases of neutron")
    start("placement")
    answers(run["keystone"], "keystone")
    done(child("seed", "identity"), "seed identity")
    start("neutron")
    start("glance")
    answers(run["placement"], "placement")
    start("nova")
    for name in ("neutron", "glance", "nova"):
        answers(run[name], name)
    done(child("seed", "cloud"), "seed cloud")
    with open(LAB + "/ready.new", "w", encoding="utf-8") as f:
        f.write("yes\n")
    os.rename(LAB + "/ready.new", LAB + "/ready")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pids = {process.pid: name for name, process in run.items()}
    while True:  # pid 1 also collects what others leave
        pid, status = os.wait()
        if pid in pids:
            sys.exit("%s ended with status %d: see %s/log" % (pids[pid], status, LAB))


def main():
    what = sys.argv[1]
    if what == "all":
        everything()
    elif what == "databases":
        databases(sys.argv[2])
    elif what == "seed":
        import seed
        {"identity": seed.identity, "cloud": seed.cloud}[sys.argv[2]](ADDRESS, OPT)
    else:
        {"keystone": keystone, "placement": placement, "glance": glance, "neutron": neutron, "nova": nova}[what]()


if __name__ == "__main__":
    main()
