# SPDX-License-Identifier: Apache-2.0
"""gpuprov check: GPU software that cannot work is refused by every verb that loads a spec; --explain prints the set."""
import pytest

SPEC = "name: t\ngpu: {gpu}\noffers: [{{provider: aws}}]\nimage: {{os: {os}}}\nbootstrap: {{{keys}}}\n"


@pytest.fixture
def spec(tmp_path):
    def write(gpu="H100:8", os="ubuntu-24.04", keys="driver: auto"):
        path = tmp_path / "gpuprov.yaml"
        path.write_text(SPEC.format(gpu=gpu, os=os, keys=keys), encoding="utf-8")
        return path
    return write


def values(gpuprov, path):
    (one,) = gpuprov.json("check", path, "--explain")["software"]
    return one


@pytest.mark.parametrize("verb", ["check", "plan", "up"])
def test_an_impossible_wish_is_refused_by_every_verb(gpuprov, spec, verb):
    path = spec(gpu="V100", keys="cuda: 13.0")
    result = gpuprov(verb, path, code=1)
    assert f"{path}:5:19: error: GPU V100 (Volta, sm_70) and CUDA 13.0: " in result.err
    assert "the nearest set that works: driver 580, proprietary kernel modules, CUDA 12.9" in result.err
    assert not gpuprov.state.exists() or not list(gpuprov.state.glob("**/*.db-wal")), "nothing was begun"


def test_errors_in_json_have_their_place(gpuprov, spec):
    error = gpuprov.json("check", spec(keys="driver: 535, cuda: 13.0"), code=1)["error"]
    (problem,) = error["problems"]
    assert (problem["line"], problem["column"]) == (5, 21)
    assert problem["message"].startswith("driver 535 and CUDA 13.0: CUDA 13 needs driver 580.65.06")


def test_explain_prints_the_set_and_why(gpuprov, spec):
    text = gpuprov("check", spec(gpu="V100", os="ubuntu-22.04"), "--explain").out
    assert "aws, V100, ubuntu-22.04:\n" in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert rows["driver"].split()[1] == "580" and "because branch 580 is the last one" in rows["driver"]
    assert rows["flavour"].split()[1] == "proprietary"
    assert rows["cuda"].split()[1] == "12.9" and "not CUDA 13.0, because" in rows["cuda"]
    assert rows["torch"].split()[1].endswith("+cu126")


def test_explain_in_json(gpuprov, spec):
    one = values(gpuprov, spec(keys="driver: 580, cuda: none"))
    assert (one["provider"], one["gpu"], one["os"], one["left_alone"]) == ("aws", "H100", "ubuntu-24.04", False)
    assert one["values"]["driver"] == {"value": "580", "why": "the spec has it"}
    assert one["values"]["cuda"]["value"] == ""
    assert one["driver_minimum"] == "580.65.06"
    assert all(v["why"] for v in one["values"].values())
    assert "software" not in gpuprov.json("check", spec())


def test_explain_tells_what_is_installed(gpuprov, spec):
    text = gpuprov("check", spec(keys="driver: 580.95.05, cuda: {runtime: [13.0, 12.9]}"), "--explain").out
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line.startswith("  ")]
    assert rows[0] == ["driver", "580.95.05", "the spec has it"]
    assert [r[1] for r in rows if r[0] == "cuda"] == ["13.0", "12.9"]
    assert len([r for r in rows if r[0] == "cudnn"]) == 1, "one cuDNN is installed, for the first CUDA"
    assert rows[6][2].startswith("not installed, because the spec has no bootstrap.python.torch; the newest")
    assert "container toolkit 1.18.0                  not installed, because the spec has no bootstrap.container" in text
    one = values(gpuprov, spec(keys="python: {torch: '3.0'}, container: {engine: podman}"))["values"]
    assert one["torch"]["value"] == "3.0" and one["torch"]["why"].startswith("the spec has it; it is in no table")
    assert one["container_toolkit"]["why"].startswith("the first")


def test_explain_names_every_provider_of_a_set(gpuprov, tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("name: t\ngpu: H100:8\nlimits: {unattended: accept}\nbootstrap: {cuda: 13.0}\noffers: [{provider: aws}, "
                    "{provider: lambda}, {provider: aws, market: spot}, {provider: runpod}]\n", encoding="utf-8")
    text = gpuprov("check", path, "--explain").out
    assert "\naws, lambda, H100, an image that the provider chooses:\n" in text, text
    assert "\nrunpod, H100, the system that is there:\n" in text, text
    sets = gpuprov.json("check", path, "--explain")["software"]
    assert [(s["provider"], s["providers"]) for s in sets] == [("aws", ["aws", "lambda"]), ("runpod", ["runpod"])]


def test_explain_names_the_mirror(gpuprov, spec):
    path = spec(keys="driver: {branch: 580, source: 'https://mirror.example/nvidia'}")
    source = values(gpuprov, path)["values"]["source"]
    assert source == {"value": "mirror", "why": "the spec has it: https://mirror.example/nvidia"}


def test_an_image_with_a_driver_keeps_it(gpuprov, tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("name: t\ngpu: H100\noffers: [{provider: aws}]\n", encoding="utf-8")
    assert "  note: an image that has a working driver keeps its driver and CUDA\n" in gpuprov(
        "check", path, "--explain").out
    path.write_text("name: t\ngpu: H100\noffers: [{provider: aws}]\nbootstrap: {driver: 580}\n", encoding="utf-8")
    assert "keeps its driver" not in gpuprov("check", path, "--explain").out


def test_machines_that_existed_before_are_left_alone(gpuprov, tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("name: t\ngpu: H100\noffers: [{provider: local}]\n", encoding="utf-8")
    assert values(gpuprov, path)["left_alone"]
    assert "is left as it is" in gpuprov("check", path, "--explain").out
    path.write_text("name: t\ngpu: H100\noffers: [{provider: local}]\nbootstrap: {driver: 580}\n", encoding="utf-8")
    one = values(gpuprov, path)
    assert not one["left_alone"] and one["values"]["driver"]["value"] == "580"
    assert one["values"]["cuda"]["value"] == ""


def test_an_image_whose_cuda_cannot_run_is_refused(gpuprov, spec):
    """dstack #4007: a container of CUDA 13 on an older driver needs cuda-compat; on a V100 nothing helps."""
    path = spec(gpu="V100", keys="container: {engine: docker, images: ['nvidia/cuda:13.0.1-base-ubuntu24.04']}")
    refused = gpuprov("check", path, code=1).err
    assert (f"{path}:5:50: error: GPU V100, driver 580 and image 'nvidia/cuda:13.0.1-base-ubuntu24.04': CUDA 13 has no code for "
            "Volta GPUs (sm_70); choose an image of another CUDA") in refused
    path = spec(keys="driver: 570, container: {engine: docker, images: ['nvidia/cuda:13.0.1-base-ubuntu24.04']}")
    text = gpuprov("check", path, "--explain").out
    assert "  note: image 'nvidia/cuda:13.0.1-base-ubuntu24.04': CUDA 13 needs driver 580.65.06 or later; on driver 570." in text
    assert "works only if the image has cuda-compat" in text


def test_the_table_is_printed(gpuprov):
    page = gpuprov("checks", "--software").out
    assert page.startswith("# GPU software that fits together\n") and "| 7.0 | 590 | no version |" in page
    assert gpuprov.json("checks", "--software")["markdown"] == page
    assert "a page is printed whole" in gpuprov("checks", "gpu.gemm", "--software", code=1).err
