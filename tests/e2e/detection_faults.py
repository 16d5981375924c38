# SPDX-License-Identifier: Apache-2.0
"""The faults of test_detection.py: one row each."""
from dataclasses import dataclass, field, replace


@dataclass
class Fault:
    id: str
    fault: str  # for people
    check: str  # the check that must tell
    verdict: str
    code: str
    named: str  # a pattern that its message must hold: who; its groups, if it has any, stand in the page
    run: dict = field(default_factory=dict)  # of agent_gpu.run, or of a gang: Ranks
    ranks: int = 0  # a gang of so many ranks, one per GPU
    tries: int = 1  # more: the fault begins at a moment of real time, which a busy machine moves out of the load


def row(id, fault, check, verdict, code, named="", checks=None, **run):
    run.setdefault("gpus", 2)
    return Fault(id, fault, check, verdict, code, named, {"checks": checks or check, **run})


def driver():
    words = {34: "the toolkit's stub instead of the driver", 35: "a driver older than its library", 100: "a driver that sees no GPU",
             802: "an NVSwitch fabric that is not up", 803: "a driver of two versions",
             804: "a forward-compatibility library on a GPU that forbids it",
             999: "a driver that starts with 'unknown error'"}
    for code, text in words.items():
        yield row(f"driver-{code}", text, "gpu.presence", "fail", f"cuda_{code}", r"\w+ \(\d+\)", standin=f"init={code}")
    yield row("no-driver", "no driver library", "gpu.presence", "fail", "no_driver", r"libcuda.so.1", libraries="/nonexistent")
    yield row("seven", "7 of 8 GPUs", "gpu.presence", "fail", "gpu_missing", r"7 of 8", gpus=7, bought=8, nodes=7)
    yield row("model", "another model than was bought", "gpu.presence", "fail", "gpu_model", r"gpu 0 is '[^']*' \([^)]*\)",
              more=("--gpu-model", "A100"))
    yield row("differs", "one GPU that differs from the others", "gpu.presence", "degraded", "mixed", r"gpu 1", standin="differs=1")



def one(check, gpu=1, size="", **common):
    """Rows of one check whose fault is one GPU's. size: of the stand-in's memory."""
    def make(id, text, verdict, code, standin="", nvml="", named=rf"gpu {gpu}\b", check=check, **run):
        only = {"standin": f"gpu={gpu},{size}{standin}" if standin else "", "nvml": f"gpu={gpu},{nvml}" if nvml else ""}
        return row(f"{check}-{id}", text, check, verdict, code, named, **{**only, **common, **run})
    return make


def inventory():
    f = one("gpu.presence")
    yield f("mode", "a compute mode that lets no process in", "fail", "compute_mode", nvml="compute_mode=2")
    yield f("mig", "a GPU cut into MIG instances", "fail", "mig", nvml="mig=1")
    yield f("ecc", "memory that runs without ECC", "degraded", "ecc_off", nvml="ecc_mode=0")
    yield f("memory", "half of the model's memory", "fail", "memory_size", nvml="memory_mib=40000")
    yield f("fabric", "a GPU that has not joined the NVSwitch fabric", "fail", "fabric", nvml="fabric=2")
    yield f("versions", "NVML and driver of two versions", "fail", "nvml_mismatch", nvml="driver=570.1", named=r"570\.1")
    yield f("busy", "another process holds a GPU that only one may use", "fail", "cuda_46", standin="context=46",
            check="gpu.bandwidth")


def health():
    f = one("gpu.health")
    for n, text in enumerate(["a GPU reset is due", "a reboot is due", "its peer-to-peer must be drained",
                              "it must be drained and reset"], 1):
        yield f(f"recovery-{n}", f"NVML: {text}", "fail", "recovery_action", nvml=f"recovery={n}")
    yield f("ecc", "an uncorrectable ECC error since boot", "fail", "ecc_uncorrected", nvml="ecc=1")
    yield f("sram", "uncorrectable SRAM errors in its past", "degraded", "sram_scars", nvml="ecc_old=2,sram=1")
    yield f("pending", "a row remap that waits for a reset", "fail", "remap_pending", nvml="remap_pending=1")
    yield f("unmapped", "a row that could not be remapped", "fail", "remap_failed", nvml="remap_failed=1")
    yield f("remaps", "512 remapped rows", "fail", "remapped_rows", nvml="remap=512")
    yield f("pages", "63 retired pages", "fail", "retired_pages", nvml="retired=63")
    yield f("link", "an NVLink that is down", "fail", "nvlink_down", nvml="link_down=3", named=r"(gpu 1)\b.*(down: 3)")
    yield f("hot", "a GPU at its slowdown temperature", "fail", "hot", nvml="temperature=92")
    yield f("gone", "a GPU that has fallen off the bus", "fail", "gpu_lost", nvml="lost=1,after=0")
    moved = "while a check runs: "
    yield f("new-ecc", moved + "an uncorrectable ECC error", "fail", "ecc_uncorrected", nvml="after=2,ecc=1")
    yield f("storm", moved + "thousands of corrected ECC errors", "degraded", "ecc_storm", nvml="after=2,corrected=5000")
    yield f("sram-storm", moved + "hundreds of corrected ECC errors in SRAM", "degraded", "ecc_storm",
            nvml="after=2,corrected=300,sram=1")
    yield f("ber", "an NVLink 5 with a symbol bit error rate of 3e-13", "degraded", "nvlink_ber", nvml="symbol_ber=0x30d",
            named=r"(gpu 1)\b.*(NVLink 3)")
    yield f("new-ber", moved + "an effective bit error rate of 2e-11 on an NVLink 5", "fail", "nvlink_ber",
            nvml="after=2,effective_ber=0x20b", named=r"(gpu 1)\b.*(NVLink 3)")
    yield f("new-remap", moved + "a row is remapped", "fail", "remapped", nvml="after=2,remap=1")
    yield f("new-link", moved + "an NVLink goes down", "fail", "nvlink_down", nvml="after=2,link_down=7")
    yield f("new-replay", moved + "NVLink replays", "fail", "nvlink_errors", nvml="after=2,link_error=0,link_errors=1")
    yield f("pcie", moved + "more PCIe replays than its lanes may have", "degraded", "pcie_replays", nvml="after=2,replays=32")
    yield f("slowdown", moved + "hardware slowdown", "fail", "hw_slowdown", nvml="after=2,slow_ns=60000000000")
    yield f("xid", moved + "an Xid event", "fail", "xid_79", nvml="after=2,xid=79")
    yield f("xid-line", "an Xid line in the kernel log", "fail", "xid_48",
            kmsg="4,7,1000,-;NVRM: Xid (PCI:0000:02:00): 48, pid=1, DBE\n SUBSYSTEM=pci\n")
    yield f("sxid-line", "an SXid line of an NVSwitch", "fail", "sxid_20034", named=r"nvswitch3",
            kmsg="4,7,1000,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30\n SUBSYSTEM=pci\n")
    yield f("nvml-hangs", "a call of NVML that never returns", "fail", "overrun", nvml="hang=1,after=0", seconds=4)
    yield f("nvml-gone", "no NVML", "error", "nvml", nvml="init=9", named="")


def everywhere(check, **common):
    """What any check of a GPU may meet."""
    f = one(check, **common)
    yield f("lost", "the GPU falls off the bus in the middle", "fail", "cuda_999", standin="lost_after=9")
    yield f("hang", "work on the GPU never ends", "fail", "gpu_hang", standin="hang_after=12", seconds=4)
    yield f("crash", "a GPU with an uncorrectable error under a kernel", "fail", "cuda_214", standin="query=214")
    yield f("died", "the worker is killed", "error", "crashed", standin="die=1")


def memory():
    f = one("gpu.memory", size="memory_mib=16,")
    yield f("stuck", "a stuck bit in memory", "fail", "memory_wrong", standin="flip=12345,bit=7", named=r"(gpu 1)\b.*(bits 0x80)")
    yield f("flip", "a bit in memory that flips once", "fail", "memory_wrong", standin="flip=12345,bit=7,stuck=0",
            named=r"(gpu 1)\b.*(bits 0x80)")
    yield f("marginal", "a bit in memory that flips only after much use (--time 20m)", "fail", "memory_wrong",
            standin="flip=12345,bit=7,flip_after=200", seconds=1200)
    yield f("little", "another process holds half of the memory", "degraded", "low_tested", standin="held_mib=8")
    yield f("none", "another process holds all memory", "error", "no_memory", standin="held_mib=13")
    yield from everywhere("gpu.memory", size="memory_mib=16,")


def bandwidth():
    f = one("gpu.bandwidth")
    for kind, figure, text in [("copy", "copy", "memory"), ("h2d", "h2d", "the way from the host"), ("d2h", "d2h", "the way to the host")]:
        yield f(f"slow-{kind}", f"{text} at half the rate", "fail", f"low_{figure}", standin=f"slow_{kind}=50")
    yield f("dull", "memory at 85 % of what its model reads", "degraded", "low_read", standin="slow_copy=92")
    yield f("channel", "memory at 70 % of what its model reads", "fail", "low_copy", standin="slow_copy=76")
    yield f("h2d-bit", "a wrong bit on the way from the host", "fail", "h2d_wrong", standin="h2d_bit=2", named=r"(gpu 1)\b.*(bits 0x4)")
    yield f("d2h-bit", "a wrong bit on the way to the host", "fail", "d2h_wrong", standin="d2h_bit=5", named=r"(gpu 1)\b.*(bits 0x20)")
    yield from everywhere("gpu.bandwidth")


def p2p():
    f = one("gpu.p2p", gpus=3, size="memory_mib=32,")
    yield f("slow", "a GPU whose links to others run at half the rate", "fail", "slow_pair", standin="slow_peer=50")
    yield f("indirect", "GPUs with NVLink that cannot reach each other", "fail", "p2p_not_direct", standin="peer=0",
            named=r"gpu \d.*gpu \d")
    yield f("bit", "a link between GPUs that flips a bit", "fail", "p2p_wrong", standin="peer_bit=3",
            named=r"(gpu 1)\b.*(bits 0x8)")


def together():
    f = one("gpu.together", gpus=4, size="memory_mib=32,")
    yield f("uplink", "two GPUs on one uplink, while the others have their own", "degraded", "starved_link", standin="uplink=2",
            named=r"gpu [01]\b", gpus=8)
    yield f("crowd", "a GPU whose links carry one pair, not all pairs at once", "fail", "slow_together", standin="crowd=40")
    yield f("bit", "a bit that flips on the way to another GPU", "fail", "together_wrong", standin="peer_bit=3")
    large = one("gpu.together", gpus=3, size="memory_mib=512,")
    yield large("h2d", "a bit that flips on the way from the host, while all GPUs copy", "fail", "together_wrong", standin="h2d_bit=3")
    yield large("d2h", "a bit that flips on the way to the host, while all GPUs copy", "fail", "together_wrong", standin="d2h_bit=3")
    yield from list(everywhere("gpu.together", gpus=3, size="memory_mib=32,"))[:2]


def gemm():
    f = one("gpu.gemm")
    yield f("half", "products at half the rate", "fail", "low_fp32", standin="slow_gemm=50")
    yield f("dull", "products at 85 %", "degraded", "low_bf16", standin="slow_gemm=85,noise=0")
    yield f("cap", "products that fall to half when a power cap settles, after the first ones", "fail", "low_fp32",
            standin="cap=50,cap_after_ns=6000")
    yield f("nan", "NaN in a product", "fail", "gemm_nan", standin="gemm_nan=1")
    yield f("blas-nan", "a library that spoils its result", "fail", "gemm_nan", env={"GPUPROV_STANDIN_CUBLASLT": "nan=1,gpu=1"})
    yield from everywhere("gpu.gemm")


def sdc():
    f = one("gpu.sdc")
    tile = r"(gpu 1)\b.*(tile \(\d+, \d+\))"
    yield f("mantissa", "the last bit of one element of each product", "fail", "sdc_wrong", standin="gemm_bit=0", named=tile)
    yield f("sign", "the sign of one element of each product", "fail", "sdc_wrong", standin="gemm_bit=31", named=tile)
    yield f("seldom", "one bit in every second product", "fail", "sdc_wrong", standin="gemm_bit=3,gemm_every=2", named=tile)
    yield f("nan", "NaN in a product", "fail", "sdc_wrong", standin="gemm_nan=1")
    yield f("tile", "a wrong tile of the library's", "fail", "sdc_wrong", named=tile, env={"GPUPROV_STANDIN_CUBLASLT": "tile=1,gpu=1"})
    yield f("sm", "one multiprocessor that computes wrong", "fail", "sdc_wrong", standin="sm=17,sm_bit=30",
            named=r"(gpu 1)\b.*(multiprocessor 17 of 132)")
    yield f("lazy", "kernels that do nothing", "fail", "sdc_wrong", standin="lazy=1")
    yield from list(everywhere("gpu.sdc"))[:3]


def stress():
    f = one("gpu.stress")
    yield f("fades", "a GPU that slows down under a lasting load", "fail", "low_decay", standin="fade=40")
    yield replace(f("late", "a GPU that slows down by a sixth late in a load", "degraded", "low_decay|high_late_fall",
                    standin="memory_mib=1024,onset=84,onset_ms=3050"), tries=3)
    yield f("dull", "a load at 70 % of what its model reaches", "fail", "low_settled", standin="slow_gemm=66")
    yield f("thermal", "hardware thermal slowdown under load", "fail", "hw_slowdown", nvml="reasons=0x48,temperature=93")
    yield f("brake", "the power brake under load", "fail", "hw_brake", nvml="reasons=0x88")
    yield f("software", "software thermal slowdown under load", "degraded", "sw_thermal", nvml="reasons=0x20")
    yield f("nan", "NaN in a product under load", "fail", "odd_values", standin="gemm_nan=1")
    yield from list(everywhere("gpu.stress"))[:2]


def gang(id, ranks, text, check, verdict, code, named, checks=None, **run):
    return Fault(f"{check}-{id}", f"{text} ({ranks} ranks)", check, verdict, code, named, {"checks": checks or check, **run}, ranks)


def nccl():
    def f(id, ranks, text, code, nccl="", named=r"rank (\d+) \([^)]*\)", check="nccl.values", verdict="fail", **run):
        return gang(id, ranks, text, check, verdict, code, named, nccl=nccl, **run)
    for ranks in (2, 4):
        yield f(f"mantissa-{ranks}", ranks, "a rank that sends a flipped mantissa bit", "wrong_values", "rank=1,bit=20")
        yield f(f"sign-{ranks}", ranks, "a rank that sends a flipped sign", "wrong_values", "rank=1,sign=1")
    yield f("nan", 4, "a rank that sends NaN", "wrong_values", "rank=2,nan=1")
    yield f("sums", 4, "a rank whose sums alone are wrong", "wrong_values", "rank=1,sums=1,bit=20")
    yield f("late", 4, "one wrong element late in the sweep", "wrong_values", "rank=3,from=100,bit=12")
    yield f("never", 4, "a GPU that never comes to a collective", "nccl_failed|rank_lost", "hang=2", stall="6s")
    yield f("start", 3, "a rank that does not come to NCCL's start", "nccl_start", "init_hang=1", stall="4s")
    yield f("async", 3, "an error of NCCL's own", "nccl_failed|rank_lost", "async_rank=1,async=2,from=4")
    yield f("dies", 3, "a rank that is killed", "rank_lost", "die=2,die_from=9")
    yield f("bus", 4, "a GPU that falls off the bus in a collective", "nccl_failed|rank_lost", standin="gpu=1,lost_after=90")
    yield f("slow-rank", 4, "a rank at a quarter of its rate", "uneven", "rank=2,slow=25", check="nccl.bandwidth", verdict="degraded")
    yield f("slow-link", 4, "a slow link between two GPUs", "uneven", "link_a=1,link_b=2,slow=25", check="nccl.bandwidth",
            verdict="degraded", named=r"the link between [^:;,]*")


def train():
    def f(id, ranks, text, code, named, **run):
        return gang(id, ranks, text, "train.ddp", "fail", code, named, more=["--steps", "20"], **run)
    for ranks, rank in ((2, 1), (4, 2)):
        yield f(f"mantissa-{ranks}", ranks, "training: a GPU that flips a mantissa bit in its products", "wrong_gradient",
                rf"rank {rank}\b", standin=f"gpu={rank},gemm_bit=13")
        yield f(f"sign-{ranks}", ranks, "training: a GPU that flips a sign in its products", "wrong_gradient",
                rf"rank {rank}\b", standin=f"gpu={rank},gemm_bit=31")
    yield f("nan", 2, "training: NaN in the products of one GPU", "bad_gradient", r"rank 1\b", standin="gpu=1,gemm_nan=1")


FAULTS = [*driver(), *inventory(), *health(), *memory(), *bandwidth(), *p2p(), *together(), *gemm(), *sdc(), *stress(), *nccl(), *train()]
