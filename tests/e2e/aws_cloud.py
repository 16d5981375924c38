# SPDX-License-Identifier: Apache-2.0
"""Fixtures: moto, and moto behind the fault proxy with the provider to drive through it."""
import ec2
import faultproxy
import pytest


@pytest.fixture(name="moto", scope="module")
def moto_fixture():
    server = ec2.Moto()
    yield server
    server.close()


@pytest.fixture(name="cloud")
def cloud_fixture(moto, tmp_path):
    """A fresh moto behind a fresh proxy; .drive(VERB) runs the provider through it."""
    moto.reset()
    proxy = faultproxy.FaultProxy(moto.url).start()

    class Cloud:
        pass

    c = Cloud()
    c.moto, c.proxy, c.tmp = moto, proxy, tmp_path
    c.spec = ec2.spec(tmp_path, moto.image())
    (tmp_path / "state").mkdir()
    c.env = ec2.environment(proxy.url, tmp_path / "state")
    c.drive = lambda *words, **more: ec2.Drive(dict(c.env, **more), c.spec, *words)
    yield c
    proxy.close()
