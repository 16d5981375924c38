# SPDX-License-Identifier: Apache-2.0
"""Reports in every form, made by the program itself and, for fleets that no test machine is, by the same
writers through report_driver; each read by a reader that is not ours."""
import html.parser
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("B", ROOT / "build"))
DRIVER = BUILD / "tests" / "drivers" / "report_driver"
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text())


@pytest.fixture(scope="module")
def fleet():
    made = subprocess.run([sys.executable, ROOT / "tests" / "reports" / "make.py"], capture_output=True, check=True)
    return json.loads(made.stdout)


def write(report, form, *style, locale="C.UTF-8"):
    env = {"PATH": os.environ["PATH"], "LC_ALL": locale}
    done = subprocess.run([DRIVER, form, *style], input=json.dumps(report).encode(), capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def valid(report):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft202012Validator)


# --- the program's own, of this machine ---

def test_every_form_of_a_real_run(gpuprov, tmp_path):
    forms = {"text": "r.txt", "json": "r.json", "junit": "r.xml", "prometheus": "r.prom", "html": "r.html"}
    options = [x for form, name in forms.items() for x in ("--report", f"{form}={tmp_path / name}")]
    told = gpuprov("validate", "--local", "--time", "20s", *options)
    assert "local: 1 of 1 node ready" in told.out and "local/0  READY" in (tmp_path / "r.txt").read_text()
    report = json.loads((tmp_path / "r.json").read_text())
    valid(report)
    assert report["ready"] and re.fullmatch("[0-9a-f-]{36}", report["nodes"][0]["boot_id"])
    suite = ET.parse(tmp_path / "r.xml").getroot().find("testsuite")
    assert int(suite.get("tests")) == len(report["nodes"][0]["checks"]) and suite.get("failures") == "0"
    assert samples((tmp_path / "r.prom").read_text())["gpuprov_node_ready"]
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    # readers of a folder never see a half-written file, and everybody may read it
    assert sorted(p.name for p in tmp_path.glob("r.*")) == sorted(forms.values())
    assert (tmp_path / "r.prom").stat().st_mode & 0o777 == 0o644


def test_validates_against_the_schema_that_is_printed(gpuprov):
    assert gpuprov.json("schema", "--report") == SCHEMA
    out = gpuprov("validate", "--local", "--time", "5s", "--json").json
    valid(out)
    broken = json.loads(json.dumps(out))
    broken["nodes"][0]["checks"][0]["verdict"] = "passed"
    with pytest.raises(jsonschema.ValidationError):
        valid(broken)


@pytest.mark.parametrize("options,said", [
    (["--report", "pdf=x"], "--report takes one of text|json|junit|prometheus|html, not 'pdf'"),
    (["--report", "html"], "--report html: the file is missing"),
    (["--report", "html=/nowhere/x.html"], "'/nowhere/x.html' cannot be written"),
    (["--certificate", "/proc/x"], "--certificate: could not create the folder '/proc/x'"),
    (["--certificate", "/dev/null"], "--certificate: '/dev/null' cannot be written: Not a directory"),
    (["--certificate-ttl", "1h"], "--certificate-ttl requires --certificate"),
])
def test_refused_before_anything_runs(gpuprov, options, said):
    done = gpuprov("validate", "--local", *options, code=1)
    assert said in done.err and "host.cores" not in done.err


def test_a_report_that_cannot_be_written_is_told(gpuprov, tmp_path):
    (tmp_path / "taken").mkdir()
    done = gpuprov("validate", "--local", "--time", "5s", "--report", f"json={tmp_path / 'taken'}", code=1)
    assert "could not write" in done.err and list((tmp_path / "taken").iterdir()) == []


# --- text ---

def test_text_fits_and_falls_back(fleet):
    for width in (80, 140):
        for line in write(fleet, "text", str(width)).splitlines():
            assert len(line) <= width, line
    unicode = write(fleet, "text", "140")
    plain = write(fleet, "text", "140", locale="C")
    assert "━" in unicode and plain.isascii() and "==#" in plain
    # which side of its mark a bar ends on is the verdict
    good, slow = [line for line in plain.splitlines() if re.search(r" copy +\d+ GB/s ", line)]
    assert re.search(r" =+#=+-* ", good) and re.search(r" =+-+\|-* ", slow), (good, slow)
    assert re.search(r"rate +\d+ GB/s .*unrated: no reference", plain)


def test_text_cannot_steer_a_terminal(fleet):
    bad = json.loads(json.dumps(fleet))
    bad["nodes"][0]["checks"][0]["message"] = "x\u001b[2Jy\u202ez"
    out = write(bad, "text", "100")
    assert "\x1b" not in out and "\u202e" not in out and "x?[2Jy?z" in out


# --- JUnit ---

def test_junit(fleet):
    root = ET.fromstring(write(fleet, "junit"))
    first, second, gang = root.findall("testsuite")
    assert (first.get("name"), gang.get("name")) == ("ip-10-0-0-7", "llm together")
    for suite in (first, second, gang):
        cases = suite.findall("testcase")
        counted = {kind: sum(c.find(kind) is not None for c in cases) for kind in ("failure", "error", "skipped")}
        assert len(cases) == int(suite.get("tests"))
        assert counted == {"failure": int(suite.get("failures")), "error": int(suite.get("errors")),
                           "skipped": int(suite.get("skipped"))}
    uuid = "GPU-00000001-0000-4000-8000-000000000005"
    failed = [c for c in second.findall("testcase") if c.find("failure") is not None]
    assert [(c.get("classname"), c.get("name")) for c in failed] == [(uuid, "gpu.bandwidth")]
    fail = failed[0].find("failure")
    assert fail.get("type") == "gpu.bandwidth.slow" and "at least 2320" in fail.get("message")
    assert "serial number" in fail.text
    error = [c for c in second.findall("testcase") if c.find("error") is not None]
    assert [(c.get("classname"), c.get("name")) for c in error] == [("llm/1", "gpu.sdc")]


def test_junit_never_shows_green_what_did_not_run(fleet):
    bad = json.loads(json.dumps(fleet))
    kernlog = next(c for c in bad["nodes"][0]["checks"] if c["check"] == "host.kernlog")
    kernlog["required"] = True
    bad["strict"] = True
    root = ET.fromstring(write(bad, "junit"))
    case = next(c for c in root[0].findall("testcase") if c.get("name") == "host.kernlog")
    assert case.find("error") is not None
    stress = [c for c in root[1].findall("testcase") if c.get("name") == "gpu.stress" and c.find("failure") is not None]
    assert stress, "degraded fails where strict"
    bad["nodes"][0]["checks"][0]["message"] = "<&\"'>\u0001\ud83d\ude00"
    assert "<&\"'>\ufffd" in ET.fromstring(write(bad, "junit"))[0].find("testcase/system-out").text


# --- Prometheus ---

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_][a-zA-Z0-9_]*=\"(?:[^\"\\\n]|\\[\\\"n])*\",?)*)\} (\S+)$")
LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\]|\\.)*)\"")


def samples(text):
    """The text format 0.0.4, strictly: families whole and together, HELP and TYPE first, no sample twice."""
    families, current, seen = {}, None, set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split()[2]
            assert current not in families, f"{current} comes in two pieces"
            families[current] = []
        elif line.startswith("# TYPE "):
            assert line.split()[2:] == [current, "gauge"] and families[current] == []
        else:
            m = SAMPLE.match(line)
            assert m and m.group(1) == current, line
            labels = dict(LABEL.findall(m.group(2)))
            assert (current, m.group(2)) not in seen, line
            seen.add((current, m.group(2)))
            families[current].append((labels, float(m.group(3))))
    return families


def test_prometheus(fleet):
    text = write(fleet, "prometheus")
    found = samples(text)
    assert list(found) == ["gpuprov_check_status", "gpuprov_check_value", "gpuprov_check_limit",
                           "gpuprov_check_last_run_timestamp_seconds", "gpuprov_node_ready"]

    def of(family, **want):
        return [v for labels, v in found[family] if all(labels.get(k, "") == x for k, x in want.items())]
    assert of("gpuprov_check_status", node="1", check="gpu.bandwidth", gpu="5") == [2]
    assert of("gpuprov_check_status", node="1", check="gpu.bandwidth", gpu="4") == [0]
    assert of("gpuprov_check_status", node="1", check="gpu.sdc") == [3]
    assert of("gpuprov_check_status", node="0", check="host.kernlog") == [4]
    assert of("gpuprov_check_limit", node="1", check="gpu.bandwidth", metric="copy", bound="floor") == [2320]
    assert len(of("gpuprov_check_value", node="0", check="gpu.gemm", metric="bf16")) == 9  # 8 GPUs and the worst
    assert math.isnan(of("gpuprov_check_value", node="1", check="gpu.sdc")[0])
    assert of("gpuprov_check_last_run_timestamp_seconds", node="0", check="host.kernlog") == []
    assert of("gpuprov_node_ready", node="0") == [1] and of("gpuprov_node_ready", node="1") == [0]
    uuids = {labels["uuid"] for labels, _ in found["gpuprov_check_status"] if labels.get("gpu") == "3"}
    assert uuids == {f"GPU-0000000{n}-0000-4000-8000-000000000003" for n in (0, 1)}
    # and as Prometheus's own client reads it
    theirs = list(text_string_to_metric_families(text))
    assert [(f.name, f.type, len(f.samples)) for f in theirs] == [(name, "gauge", len(rows)) for name, rows in found.items()]
    assert all(f.documentation for f in theirs)
    assert [(s.labels, s.value) for f in theirs for s in f.samples if f.name != "gpuprov_check_value"] == [
        row for name, rows in found.items() for row in rows if name != "gpuprov_check_value"]  # has NaN


def test_prometheus_escapes(fleet):
    bad = json.loads(json.dumps(fleet))
    bad["nodes"][0]["host"] = 'a"b\\c\nd'
    text = write(bad, "prometheus")
    assert any(labels.get("host") == 'a\\"b\\\\c d' for labels, _ in samples(text)["gpuprov_node_ready"])
    ready = next(f for f in text_string_to_metric_families(text) if f.name == "gpuprov_node_ready")
    assert 'a"b\\c d' in [s.labels.get("host") for s in ready.samples]


# --- HTML ---

class Page(html.parser.HTMLParser):
    """Elements properly closed, nothing fetched."""
    VOID = {"meta", "path", "circle", "rect", "br"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.captions = [], [], "", []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data):
        self.text += data
        if "figcaption" in self.open:
            self.captions.append(data)


def test_html_stands_alone(fleet):
    text = write(fleet, "html")
    page = Page(text)
    for tag, attrs in page.tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "base"}, tag
        assert not {"src", "href", "srcset", "onload", "onclick"} & set(attrs), (tag, attrs)
    assert "url(" not in text and "@import" not in text and "http" not in text.replace("http-equiv", "")
    csp = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    assert csp == "default-src 'none'; style-src 'unsafe-inline'"
    assert "prefers-color-scheme:dark" in text


def test_html_has_the_plots(fleet):
    page = Page(write(fleet, "html"))
    captions = " | ".join(page.captions)
    for wanted in ("gpu.bandwidth: copy", "this model reaches 2900", "nccl.bandwidth: all_reduce", "train.ddp: loss",
                   "median gradient time per rank", "spread of the time per step", "rate per rank",
                   "gpu.stress on node 0: temperature", "unrated"):
        assert wanted in captions, wanted
    assert "8 GiB" in page.text and "Checks that did not pass" in page.text
    bars = [a for t, a in page.tags if t == "rect"]
    assert [a["class"] for a in bars].count("bar bad") == 2 and len(bars) > 16 * 9
    numbers = re.findall(r"-?(?:nan|inf)", " ".join(a.get("d", "") for t, a in page.tags if t == "path"), re.I)
    assert numbers == []


def test_html_escapes_and_survives_odd_data(fleet):
    bad = json.loads(json.dumps(fleet))
    bad["stack"] = "<script>alert(1)</script>"
    node = bad["nodes"][0]
    node["checks"][5]["data"] = {"gpus": [{"gpu": "x", "verdict": 3, "metrics": []}, 7, None]}
    node["checks"][7]["data"] = {"gpus": [{"samples": {"a": 1}}]}
    bad["gang"][0]["data"] = {"sizes": [{"op": "x"}, 3, {"op": "all_reduce", "type": None, "bytes": -1, "busbw": 0}]}
    bad["gang"][1]["data"] = {"loss_curve": ["a", None, 1e308], "loss_curve_stride": 0, "gradient_ms_per_rank": []}
    for form in ("html", "junit", "prometheus", "text"):
        out = write(bad, form)
        assert form != "html" or "<script>" not in out
    Page(write(bad, "html"))


def test_html_in_a_browser(fleet, tmp_path):
    """A browser lays it out without a complaint and every plot has a size."""
    page = tmp_path / "r.html"
    page.write_text(write(fleet, "html"))
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'c'}",
                           "--enable-logging=stderr", "--dump-dom", f"file://{page}"], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0 and done.stdout.count("<svg") == page.read_text().count("<svg")
    assert "CONSOLE" not in done.stderr, done.stderr
