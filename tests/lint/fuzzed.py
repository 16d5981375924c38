#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every decoder that the first table of docs/security.md names ("decoded in") has a fuzz target: one that names the file,
or a row below. Or a reason below. Every target has a corpus, and no row is left over. Prints what is wrong; exit 1.
Usage: fuzzed.py [TREE]."""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if len(sys.argv) > 1 else ROOT.parents[2]
INPUTS = 3  # at least, in a corpus

# decoder: the targets that reach it, by what it decodes
TARGETS = {
    "core/model/tags.c": ["tags"],
    "core/model/labels.c": ["tags"],
    "core/base/form.c": ["tags"],
    "core/model/certificate.c": ["certificate"],
    "core/ssh/hostkey.c": ["ssh_config"],
    "core/ssh/client_config.c": ["ssh_config"],
    "core/tree/frame.c": ["tree"],
    "core/tree/take.c": ["tree"],
    "bootstrap/detached.c": ["step_lines"],
    "validate/": ["agent_lines", "gang_lines"],
    "validate/lines.c": ["agent_lines", "gang_lines"],
    "validate/agent/cache/cache_request.c": ["cache_request"],
    "providers/local/proxy/proxy_request.c": ["proxy"],
    "providers/aws/list.c": ["ec2xml"],
    "providers/aws/group.c": ["ec2xml"],
    "providers/aws/images.c": ["ec2xml"],
    "providers/runpod/list.c": ["runpod", "runpod_pod"],
    "providers/runpod/offers.c": ["runpod"],
    "providers/google/list_read.c": ["google"],
    "providers/google/list.c": ["google"],
    "providers/google/call.c": ["google"],
    "providers/google/machines.c": ["google"],
    "providers/google/rules.c": ["google"],
    "providers/google/creds.c": ["google"],
    "providers/google/creds_remote.c": ["google"],
    "providers/azure/list.c": ["azure"],
    "providers/azure/sizes.c": ["azure"],
    "providers/openstack/list.c": ["openstack"],
    "providers/openstack/cloud.c": ["openstack"],
    "providers/alibaba/list.c": ["alibaba"],
    "providers/alibaba/offers.c": ["alibaba"],
    "providers/lambda/list.c": ["lambda"],
    "providers/lambda/offers.c": ["lambda"],
    "providers/shadeform/list.c": ["shadeform"],
    "providers/shadeform/offers.c": ["shadeform"],
    "providers/bucket/bucket.c": ["bucket_key", "bucket_list"],
    "providers/aws/s3/s3.c": ["bucket_list"],
    "providers/google/gcs.c": ["bucket_list"],
    "bootstrap/facts.c": ["step_lines"],
    "bootstrap/output.c": ["step_lines"],
    "validate/gang_session.c": ["gang_lines"],
    "engine/job/job_state.c": ["job_stream"],
    "core/ssh/keyfile.c": ["ssh_keys"],
    "core/ssh/agent.c": ["ssh_keys"],
    "core/base/ini.c": ["ini"],
    "core/journal/columns.c": ["journal_rows"],
    "core/model/report_codec.c": ["report"],
    "core/tree/take_expect.c": ["tree"],
    "engine/plan_file.c": ["plan_file"],
    "providers/local/decode.c": ["local_record"],
    "providers/openstack/config.c": ["clouds_yaml"],
    "providers/openstack/session.c": ["token_replies"],
    "providers/*/creds*.c": ["token_replies"],
    "providers/http_clear.c": ["url"],
    "providers/ssh/hosts_terraform.c": ["terraform"],
}
# decoder: why it has none
REASONS = {
    "providers/aws/offers.c": "reads fields of the tree that fuzz_ec2xml parses; each has its form",
    "providers/aws/rules.c": "compares texts with the rules of the spec; nothing becomes of them",
    "providers/aws/creds_remote.c": "JSON by core/base, and the form of a region; tests/unit/providers/test_aws_creds.c",
    "providers/aws/config.c": "the user's own environment and files",
    "providers/local/proxy/proxy_place.c": "fixed-size addresses of the resolver; tests/unit/providers/test_local_proxy_place.c",
    "engine/run/stack_dir.c": "one form (form_uid), checked again",
    "engine/run/run.c": "one form (form_stack)",
    "engine/certificate/kubernetes.c": "the user's own environment",
    "engine/transfer/bucket_copy.c": "keys of fuzz_bucket_key; sizes: tests/unit/engine/test_bucket_copy.c",
    "engine/transfer/many.c": "a hash of 32 bytes; tests/e2e/jobs/test_transfer_many.py",
    "providers/common/secret_file.c": "any text without NUL; tests/e2e/verbs/test_odd_files.py",
    "core/base/home.c": "the user's own environment",
    "cmd/app.c": "the user's own environment",
    "templates/bootstrap/run/cache.sh": "a script: it compares a SHA-256",
    "templates/slurm/*.sh": "scripts: one quoted word",
}


def named():
    """Files and folders in the column "decoded in"; one without a folder is beside the one before it."""
    text = (ROOT / "docs/security.md").read_text()
    table = text[text.index("| input | who can write it |"):].split("\n\n")[0]
    for row in table.splitlines()[2:]:
        folder = None
        for word in re.findall(r"`([^`]+)`", row.split("|")[3]):
            if "/" in word:
                folder = word.rsplit("/", 1)[0]
                yield word
            elif re.fullmatch(r"\w+\.(c|sh)", word) and folder:
                yield f"{folder}/{word}"


def main():
    wrong = []
    targets = {p.stem[5:]: p.read_text() for p in sorted((ROOT / "tests/fuzz").glob("fuzz_*.c"))}
    decoders = set(named())
    for name in sorted(targets):
        corpus = ROOT / "tests/fuzz/corpus" / name
        if not corpus.is_dir() or sum(1 for _ in corpus.iterdir()) < INPUTS:
            wrong.append(f"tests/fuzz/fuzz_{name}.c: its corpus, tests/fuzz/corpus/{name}, has fewer than {INPUTS} inputs")
    for decoder in sorted(decoders):
        if decoder in REASONS or any(f'"{decoder}"' in text for text in targets.values()):
            continue
        for target in TARGETS.get(decoder) or [None]:
            if target not in targets:
                wrong.append(f"docs/security.md: {decoder} has no fuzz target: write one, or state the reason in "
                             "tests/lint/fuzzed.py")
    for decoder in sorted({*TARGETS, *REASONS} - decoders):
        wrong.append(f"tests/lint/fuzzed.py: {decoder} is not named in docs/security.md: remove its row")
    print("\n".join(wrong + [f"fuzzed: {len(decoders)} decoders, {len(targets)} targets, {len(wrong)} problems"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
