#!/usr/bin/env python3
"""What Mesa's RADV compiles of the shaders for Radeons that are not here (RADV_FORCE_FAMILY): the pipelines of real
runs (tests/device/radv_models.c) keep their limits of registers, spill none, use instructions for dot products where a
family has them, compute floats by the operations of docs/arithmetic.md alone, and load the weights of one token, and
states, some at a time (isa.py).

    tests/device/test_compiler.py build/tests/radv_stats            with HEARTH_LONG=1, as make test-long has it
    tests/device/test_compiler.py build/tests/radv_stats --table    the tables of docs/gpu.md
    tests/device/test_compiler.py build/tests/radv_stats --excess   what is above the limits, as rows of EXCEPTIONS
    tests/device/test_compiler.py build/tests/radv_stats --loads    bytes of loads, and how many are on their way

HEARTH_RADV_ICD: the driver's description, instead of Debian's."""
import functools
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from cases import Skip, case, run_cases  # noqa: E402
from isa import instructions, loads_of, registers  # noqa: E402

PROGRAM = sys.argv[1]

# Names in RADV_FORCE_FAMILY, the first that the driver knows; whether it multiplies four bytes by an instruction.
FAMILIES = {
    "polaris10": (["polaris10"], False),
    "vega10": (["vega10"], False),
    "navi10": (["navi10"], False),
    "navi21": (["navi21"], True),
    "navi31": (["navi31", "gfx1100"], True),
    "gfx1201": (["gfx1201", "navi48"], True),
}

# ---- limits ------------------------------------------------------------------------------

# Registers of an invocation: with 128, a SIMD of Vega holds two waves, of RDNA eight.
OF_A_TOKEN, OF_TILES = 128, 168
A_TOKEN = {"token", "head"}  # steps of one token; the others are of several
NONE = ("Spilled VGPRs", "Spilled SGPRs", "Scratch size")

# By series of Mesa (of others the last): (shader and constants, families): the most of each figure that is above its
# limit. Such a pipeline is slower than it could be, not wrong; docs/gpu.md (Compiled for Radeons) says what is known.
FLOATS = r"mul_mat_vec_f(_acc)? 64,8,4,[01],8,1"       # four rows of halves by eight tokens
ONE_OF_256 = r"mul_mat_vec_q\w* 64,8,1,\d+,8,256,.*"  # a row of blocks of 256 by eight tokens
TWO_OF_256 = r"mul_mat_vec_q(_acc|_sliced)? 64,8,2,\d+,8,256,.*"
FOUR_OF_32 = r"mul_mat_vec_q(_acc|_sliced)? 64,8,4,\d+,8,32,.*"
# Several tokens and heads share keys, of which what comes next is loaded ahead.
ATTENTION = r"attn (128,4,[0-2],0,256,4|128,8,0,0,256,2|576,16,0,0,256,1)(,\d+)*"
WIDE_ATTENTION = r"attn (64,8,0,0,128|256,8,0,0,256),2(,\d+)*"
EXCEPTIONS = {
    "22.3": {  # its compiler for navi31 uses 128 registers at most, and spills the others
        (FLOATS, "polaris10 vega10"): {"VGPRs": 232},
        (FLOATS, "navi31"): {"Spilled VGPRs": 4, "Scratch size": 1024},
        (ONE_OF_256, "navi21"): {"VGPRs": 256},
        (ONE_OF_256, "navi31"): {"Spilled VGPRs": 25, "Scratch size": 7168},
        (TWO_OF_256, "navi21"): {"VGPRs": 192},
        (TWO_OF_256, "navi31"): {"Spilled VGPRs": 42, "Scratch size": 11264},
        (FOUR_OF_32, "navi21"): {"VGPRs": 184},
        (FOUR_OF_32, "navi31"): {"Spilled VGPRs": 9, "Scratch size": 3072},
    },
    "25.0": {  # it takes registers that are free to load ahead
        (FLOATS, "navi31 gfx1201"): {"VGPRs": 252},
        (ONE_OF_256, "polaris10 vega10 navi10 navi21"): {"VGPRs": 256},
        (ONE_OF_256, "navi31 gfx1201"): {"VGPRs": 252},
        (TWO_OF_256, "navi21 gfx1201"): {"VGPRs": 256},
        (FOUR_OF_32, "gfx1201"): {"VGPRs": 192},
        (FOUR_OF_32, "navi21"): {"VGPRs": 256},
        (ATTENTION, "navi31 gfx1201"): {"VGPRs": 192},
        (WIDE_ATTENTION, "polaris10 vega10 navi31 gfx1201"): {"VGPRs": 256},
    },
}

# Pipelines that no synthetic model has: experts of Q8_0, and recurrences.
NAMED = ["mul_mat_vec_q_sliced 64,1,1,1,32,32,8,0,0,0,0,0,0", "mul_mat_vec_q_sliced 64,1,1,1,8,32,8,0,0,0,0,0,0",
         "kda 128,32", "ssm_scan 0,64", "ssm_scan 1,64"]

# The rows of one token, and scans, load 16 bytes at a time, four or more times before they wait: pipelines and the
# binding of the weights or states. Families in which stores are not counted with loads.
LOADED = {r"mul_mat_vec_q(_acc|_sparse|_sliced)? 64,1,1,.*": 1, r"(kda|ssm_scan) .*": 6, r"(delta_net|conv) .*": 4}
LOADS_OF = ("navi21", "navi31", "gfx1201")
LEAST_BYTES, LEAST_LOADS = 16, 4
NARROW = {  # the least bytes and loads of what does less; docs/gpu.md (Compiled for Radeons) says why
    r"delta_net .*": (4, 9),
    r"conv .*": (4, 16),
}

# Bits of floats are the same on all devices as long as each operation is rounded by itself, to nearest. Of instructions
# on floats these do that, or are exact; all others are refused by name, and so is what changes the mode of floats.
ROUNDED = re.compile(r"[vs]_(?:add|sub|subrev|mul)_f32|v_cvt_f32_(?:i32|f16)|[vs]_cmp\w*_f32|v_cmp\w*_class_f(?:16|32)")
# The two of a division of integers by a variable, which the compiler computes by a reciprocal and mends afterwards.
OF_DIVISION = {"v_cvt_f32_u32", "v_cvt_u32_f32"}
RECIPROCAL = {"v_rcp_f32", "v_rcp_iflag_f32"}
TO_NORMAL = {"0x4b800000", "1.0"}  # 2^24 or 1: what it is multiplied by before
EXACT_FACTORS = {"1.0", "2.0", "4.0", "-1.0", "-2.0", "-4.0"}
MODES = re.compile(r"s_(?:setreg|round_mode|denorm_mode)")
OF_HALVES = r"attn \d+,\d+,0,"  # with a cache of F16, what multiplies its halves has 13 bits


def is_product_with_half(name, operands, halves):
    """A product of a float and a half, to which something is added. In v_fma_mix_f32, op_sel_hi marks halves."""
    if name == "v_fma_mix_f32":
        m = re.search(r"op_sel_hi:\[(\d), ?(\d), ?\d\]", ", ".join(operands))
        return m is not None and int(m.group(1)) + int(m.group(2)) == 1
    return name in ("v_fma_f32", "v_fmac_f32") and sum(x in halves for x in operands[1:3]) == 1


def inexact(text, exact_halves=False):
    """Instructions that may give other bits than docs/arithmetic.md says. A product by 2 or 4 is exact, so adding to it
    in the same instruction rounds once, as two would. So are products with halves where what they multiply is rounded
    to 13 bits (exact_halves); registers keep halves across labels, because loops load ahead. A reciprocal is one of
    integers if its operand was converted from one since the last label, at most multiplied by a power of two on the
    way."""
    wrong, integers, powers, halves = [], set(), set(), set()
    for name, operands in instructions(text):
        if name is None:
            integers, powers = set(), set()
            continue
        to, sources = (operands[0], operands[1:]) if operands else ("", [])
        keeps = name == "v_mul_f32" and len(sources) == 2 and \
            any((a in TO_NORMAL or a in powers) and b in integers for a, b in (sources, sources[::-1]))
        by_reciprocal = name in RECIPROCAL and sources and sources[0] in integers
        exact_fma = name == "v_fma_f32" and len(sources) == 3 and any(x in EXACT_FACTORS for x in sources[:2])
        # A product, one of whose factors is a half: -0 added changes nothing.
        is_product = name == "v_fma_mix_f32" and len(sources) >= 3 and re.match(r"neg\(0\)(?:$| )", sources[2])
        is_float = re.search(r"_f(?:16|32|64)", name) or MODES.match(name)
        scaled = re.search(r"\b(?:mul:|div:|clamp\b)", " ".join(operands)) and re.search(r"_f\d\d", name)
        of_half = exact_halves and is_product_with_half(name, operands, halves)
        is_exact = by_reciprocal or exact_fma or is_product or of_half
        if scaled or (is_float and not (ROUNDED.fullmatch(name) or name in OF_DIVISION or is_exact)):
            wrong.append(f"{name} {', '.join(operands)}")
        chooses = {"v_cndmask_b32": sources[:2], "v_mov_b32": sources, "s_mov_b32": sources}.get(name)
        is_half = name == "v_cvt_f32_f16" or (name == "v_mov_b32" and sources[0] in halves)
        is_power = chooses and set(chooses) <= TO_NORMAL | powers
        for known in (integers, powers, halves):
            known.difference_update(registers(to))
        if name == "v_cvt_f32_u32" or keeps:
            integers.add(to)
        if is_power:
            powers.add(to)
        if is_half:
            halves.add(to)
    return wrong


def n_dot(text):
    return sum(1 for name, _ in instructions(text) if name and re.match(r"v_dot4c?_i32_i(?:8|u8)", name))


# ---- what is compiled ---------------------------------------------------------------------

def drivers():
    named = os.environ.get("HEARTH_RADV_ICD")
    return [named] if named else sorted(glob.glob("/usr/share/vulkan/icd.d/radeon_icd*.json"))


def parse(output, folder):
    """The driver, uses and pipelines of radv_stats."""
    found = {"uses": [], "pipelines": {}}
    for line in output.splitlines():
        kind, *f = line.split("\t")
        if kind == "device":
            found["driver"] = f[1]
        elif kind == "use":
            found["uses"].append((f[0], f[1], f[2], int(f[3])))
        elif kind == "pipeline":
            with open(os.path.join(folder, f[0] + ".s"), encoding="utf-8") as text:
                found["pipelines"][f[0]] = {"name": f"{f[1]} {f[2]}".strip(), "text": text.read(), "steps": set(),
                                            **{k: int(v) for k, v in (x.split("=") for x in f[3:])}}
    for _, step, number, _ in found["uses"]:
        found["pipelines"][number]["steps"].add(step)
    return found


@functools.cache
def compiled(family, *named):
    """Pipelines of the models, or these, by the first driver and name that work; a reason where none does."""
    reason = "no RADV (Debian: mesa-vulkan-drivers)"
    for driver in drivers():
        for name in FAMILIES[family][0]:
            with tempfile.TemporaryDirectory() as folder:
                env = {**os.environ, "RADV_FORCE_FAMILY": name, "VK_ICD_FILENAMES": driver, "VK_DRIVER_FILES": driver,
                       "MESA_SHADER_CACHE_DISABLE": "true", "VK_LOADER_DRIVERS_SELECT": "*"}
                r = subprocess.run([PROGRAM, folder, *" ".join(named).split()], env=env, capture_output=True, text=True,
                                   check=False)
                if r.returncode == 0:
                    return parse(r.stdout, folder)
                reason = f"{os.path.basename(driver)} with {name}: {' '.join(r.stderr.split())}"
                # Mesa 25.0 calls a function that its device without hardware lacks when memory of gfx1201 is asked for.
                before_any_device = r.returncode == -signal.SIGSEGV and not r.stdout
                if not before_any_device and "nknown family" not in r.stderr:
                    raise AssertionError(reason)
    return reason


def result_of(family, *named):
    if len(sys.argv) == 2 and not os.environ.get("HEARTH_LONG"):
        raise Skip("some minutes: with HEARTH_LONG only")
    result = compiled(family, *named)
    if isinstance(result, str):
        raise Skip(result)
    return result


def pipelines_of(family):
    """Those of the models, and the named ones, which count as a token's."""
    named = result_of(family, *NAMED)["pipelines"]
    return {**result_of(family)["pipelines"], **{f"named {k}": {**p, "steps": {"token"}} for k, p in named.items()}}


def excess(pipeline):
    """Figures above the limits."""
    limit = OF_A_TOKEN if pipeline["steps"] & A_TOKEN else OF_TILES
    above = {k: pipeline[k] for k in NONE if pipeline.get(k, 0) > 0}
    return {**above, **({"VGPRs": pipeline["VGPRs"]} if pipeline["VGPRs"] > limit else {})}


def exceptions_for(driver, family):
    """{pattern: figures}"""
    series = re.search(r"Mesa (\d+\.\d+)", driver).group(1)
    of_series = EXCEPTIONS.get(series, EXCEPTIONS[max(EXCEPTIONS)])
    return {pattern: figures for (pattern, families), figures in of_series.items() if family in families.split()}


def above_limits(pipelines, exceptions):
    wrong = []
    for p in pipelines.values():
        most = {k: n for pattern, figures in exceptions.items() if re.fullmatch(pattern, p["name"])
                for k, n in figures.items()}
        wrong += [f"{p['name']}: {k} {n}" for k, n in excess(p).items() if n > most.get(k, 0)]
    return wrong


def without_dots(pipelines):
    """Quantised rows of which not even the products of sixteen weights use the instruction: four for each output."""
    wrong = []
    for p in pipelines.values():
        m = re.match(r"mul_mat_vec_q\w* \d+,(\d+),(\d+),", p["name"])
        if m and n_dot(p["text"]) < 4 * int(m.group(1)) * int(m.group(2)):
            wrong.append(f"{p['name']}: {n_dot(p['text'])} dot products")
    return wrong


def loads_ahead(pipelines):
    """{name: (bytes of a load, loads before the first wait)} of the listed ones."""
    return {p["name"]: loads_of(p["text"], binding) for p in pipelines.values() for pattern, binding in LOADED.items()
            if re.fullmatch(pattern, p["name"])}


def few_ahead(loads, exceptions):
    """Fewer or narrower loads than the least, and exceptions that are none."""
    wrong, used = [], set()
    for name, (n_byte, n) in loads.items():
        if n_byte >= LEAST_BYTES and n >= LEAST_LOADS:
            continue
        known = [x for x in exceptions if re.fullmatch(x, name)]
        used.update(known)
        if not any(n_byte >= exceptions[x][0] and n >= exceptions[x][1] for x in known):
            wrong.append(f"{name}: {n} loads of {n_byte} bytes before the first wait")
    return wrong + [f"no longer below the least: {x}" for x in exceptions if x not in used]


# ---- cases ---------------------------------------------------------------------------------

def none(wrong):
    assert not wrong, "\n".join([f"{len(wrong)}:"] + wrong[:40])


@case
def instructions_that_round_otherwise_are_found():
    fine = """BB1:
        v_mul_f32_e32 v5, v4, v3      ; 100a
        v_add_f32_e64 v5, -v5, |v3|   ; d501
        v_fma_f32 v8, 2.0, -v8, 1.0   ; d54b
        v_cvt_f32_u32_e32 v4, v3      ; 7e08
        v_mul_f32_e32 v6, 0x4b800000, v4
        v_rcp_f32_e32 v6, v6
        v_rcp_f32_e32 v4, v4
        v_cvt_u32_f32_e32 v4, v4
        v_mul_lo_u32 v5, v3, v4
        v_cvt_f32_u32_e32 v3, v2
        v_cndmask_b32_e64 v4, 1.0, 0x4b800000, s[16:17]
        v_mul_f32_e32 v3, v4, v3
        v_rcp_f32_e32 v3, v3
        v_cvt_f32_f16_e32 v1, v2
        v_fma_mix_f32 v27, v29, v27, neg(0) op_sel:[0, 1, 0] op_sel_hi:[0, 1, 0]
        v_mad_u32_u24 v1, v2, v3, v4
        v_cmp_gt_f32_e64 s[2:3], v1, v2
        v_dual_mul_f32 v0, v1, v2 :: v_dual_add_f32 v3, v4, v5
        global_load_b32 v1, v2, s[0:1]"""
    none(inexact(fine))
    for line in ("v_fma_f32 v8, v1, -v8, 1.0", "v_mac_f32_e32 v1, v2, v3", "v_fmac_f32_e32 v1, v2, v3",
                 "v_exp_f32_e32 v1, v2", "v_rsq_f32_e32 v1, v2", "v_sqrt_f32_e32 v1, v2",
                 "v_rcp_f32_e32 v4, v9", "v_mad_f32 v1, v2, v3, v4",
                 "v_fma_mix_f32 v1, v2, v3, v4", "v_fma_mix_f32 v1, v2, v3, 0 op_sel_hi:[0, 1, 0]",
                 "v_mul_f32_e64 v1, v2, v3 mul:2", "v_cvt_f16_f32_e32 v1, v2",
                 "v_dual_mul_f32 v0, v1, v2 :: v_dual_fmac_f32 v3, v4, v5", "s_fmac_f32 s1, s2, s3",
                 "BB2:\n v_rcp_f32_e32 v4, v4", "v_mov_b32_e32 v4, v9\n v_rcp_f32_e32 v4, v4",
                 "v_mul_f32_e32 v4, v9, v4\n v_rcp_f32_e32 v4, v4",
                 "s_denorm_mode 0", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 8), 3"):
        assert len(inexact("v_cvt_f32_u32_e32 v4, v3\n" + line)) == 1, line


@case
def a_product_with_a_half_may_be_fused_where_it_is_exact():
    half = "v_cvt_f32_f16_e32 v1, v2\n"
    for line in (half + "BB1:\nv_fma_f32 v3, v1, v4, v3", half + "v_fmac_f32_e32 v3, v4, v1",
                 half + "v_mov_b32_e32 v6, v1\nv_fma_f32 v3, v6, v4, v3",
                 "v_fma_mix_f32 v1, v2, v3, v4 op_sel_hi:[0, 1, 0]"):
        none(inexact(line, True))
        assert len(inexact(line)) == 1, line
    for line in ("v_fma_f32 v3, v1, v4, v3", half + "v_fma_f32 v3, v4, v4, v1", half + "v_mad_f32 v3, v1, v4, v3",
                 half + "global_load_dwordx2 v[0:1], v5, s[0:1]\nv_fma_f32 v3, v1, v4, v3",
                 half + "v_mov_b32 v1, v5\nv_fma_f32 v3, v1, v4, v3", "v_fma_mix_f32 v1, v2, v3, v4",
                 "v_fma_mix_f32 v1, v2, v3, v4 op_sel_hi:[1, 1, 0]"):
        assert len(inexact(line, True)) == 1, line


@case
def loads_before_the_first_wait_are_counted():
    head = "BB0:\n s_load_dwordx4 s[8:11], s[2:3], 0x10\n s_load_dwordx8 s[12:19], s[2:3], 0x20\n"
    load, narrow, other = (f" buffer_load_{x}, 0 offen\n" for x in ("dwordx4 v[4:7], v1, s[8:11]", "b32 v4, v1, s[8:11]",
                                                                   "dwordx4 v[4:7], v1, s[16:19]"))

    def loop(body):
        return head + load * 9 + "BB1:\n s_cbranch_scc1 BB9\n" + body + " s_branch BB1\nBB9:\n s_endpgm\n"
    wait, choice = " s_waitcnt vmcnt({})\n".format, " s_cbranch_scc0 BB3\n{} s_branch BB4\nBB3:\n{}BB4:\n".format
    for body, binding, expected in (
            (load * 4 + wait(3) + load + wait(0), 1, (16, 4)), (load * 4 + wait(0), 2, (0, 0)),
            (load + wait(0) + load * 8 + wait(0), 1, (16, 1)), (other * 3 + load * 2 + wait(2) + wait(1), 1, (16, 3)),
            (other + load * 2 + wait(1), 3, (16, 1)), (narrow * 3 + load * 2 + wait(0), 1, (16, 2)),
            (narrow * 3 + wait(1), 1, (4, 4)), (load + wait(1), 1, (16, 2)),
            (choice(load * 2, wait(0)) + wait(0), 1, (16, 2)),
            (choice(load + wait(0), load * 3), 1, (16, 1)), (load.replace("x4 v[4:7]", " v4") + wait(0), 1, (4, 1)),
            (load * 3 + " s_wait_loadcnt_dscnt 0x201\n", 1, (16, 5)), (load * 5 + " s_wait_loadcnt 0x1\n", 1, (16, 6))):
        assert loads_of(loop(body), binding) == expected, (body, loads_of(loop(body), binding))
    assert loads_of(head + load * 3 + wait(1), 1) == (16, 3)
    of = {"kda 1": (16, 4), "kda 2": (16, 3), "kda 3": (8, 9), "conv 1": (4, 8), "conv 2": (4, 7), "conv 3": (2, 9)}
    found = few_ahead(of, {"conv .": (4, 8), "kda 1": (4, 8)})
    assert [x[:6] for x in found] == ["kda 2:", "kda 3:", "conv 2", "conv 3", "no lon"], found


@case
def figures_above_limits_are_found():
    def one(**more):
        return {"1": {"name": "attn 1", "steps": {"token"}, "VGPRs": 128, "Spilled VGPRs": 0, **more}}
    none(above_limits(one(), {}))
    none(above_limits(one(VGPRs=168, steps={"prompt"}), {}))
    none(above_limits(one(VGPRs=256), {"attn .": {"VGPRs": 256}}))
    for more in ({"VGPRs": 129}, {"VGPRs": 169, "steps": {"few"}}, {"Spilled VGPRs": 1}, {"Scratch size": 1024},
                 {"VGPRs": 168, "steps": {"few", "head"}}):
        assert len(above_limits(one(**more), {"attn 2": {"VGPRs": 256}, "attn 1": {"LDS": 9}})) == 1, more
    two = above_limits(one(VGPRs=200, **{"Spilled VGPRs": 3}), {"attn 1": {"VGPRs": 192, "Spilled VGPRs": 2}})
    assert len(two) == 2, two
    rows = {"1": {"name": "mul_mat_vec_q_acc 64,8,2,0", "text": "v_dot4c_i32_i8_e32 v1, v2, v3\n" * 64}}
    none(without_dots(rows))
    rows["1"]["text"] = "v_dot4_i32_i8 v1, v2, v3, v4\n" * 63 + "v_mad_i32_i24 v1, v2, v3, v4\n" * 64
    assert len(without_dots(rows)) == 1


def add_case(family):
    def compiles():
        pipelines, exceptions = pipelines_of(family), exceptions_for(result_of(family)["driver"], family)
        assert len(pipelines) > 50, f"only {len(pipelines)} pipelines"
        wrong = above_limits(pipelines, exceptions)
        if FAMILIES[family][1]:
            wrong += without_dots(pipelines)
        for p in pipelines.values():
            assert p["text"].count("\n") > 10, f"{p['name']} has no instructions"
            wrong += [f"{p['name']}: {x}" for x in inexact(p["text"], re.match(OF_HALVES, p["name"]))]
        above = [p["name"] for p in pipelines.values() if excess(p)]
        unused = [x for x in exceptions if not any(re.fullmatch(x, name) for name in above)]
        none(wrong + [f"no longer above its limit: {x}" for x in unused])
    compiles.__name__ = f"shaders_keep_registers_and_bits_on_{family}"
    case(compiles)


def add_case_of_loads(family):
    def loads():
        found = loads_ahead(pipelines_of(family))
        assert len(found) > 25, f"only {len(found)} pipelines"
        none(few_ahead(found, NARROW))
    loads.__name__ = f"rows_of_one_token_and_scans_load_ahead_on_{family}"
    case(loads)


for each in FAMILIES:
    add_case(each)
for each in LOADS_OF:
    add_case_of_loads(each)


# ---- tables --------------------------------------------------------------------------------

def figure(p):
    spilled = f", {p['Spilled VGPRs']} spilled" if p["Spilled VGPRs"] else ""
    return f"{p['VGPRs']}, {p['Latency'] / 1000:.1f}{spilled}"


def rows_of_table(results):
    """{name: ({step: dispatches}, {family: pipeline})} of Q4_0 and Q4_K. Families may use different ones; what adds
    to y is left out where what sets it has the same constants."""
    rows = {}
    for family, result in results.items():
        for model, step, number, n in result["uses"]:
            if model in ("q4_0", "q4_k") and step in ("token", "prompt"):
                p = result["pipelines"][number]
                steps, by_family = rows.setdefault(p["name"], ({}, {}))
                steps[f"{model} {step}"], by_family[family] = n, p
    return {name: row for name, row in rows.items() if "_acc" not in name or name.replace("_acc", "") not in rows}


def print_programs(results):
    print("| shader, constants | a layer | LDS | " + " | ".join(results) + " |\n|---|---|---|" + "---|" * len(results))
    for name, (steps, by_family) in sorted(rows_of_table(results).items()):
        used = ", ".join(f"{step}: {n}" for step, n in steps.items())
        lds = max(p["LDS size"] for p in by_family.values())
        print(f"| {name} | {used} | {lds} | " +
              " | ".join(figure(by_family[f]) if f in by_family else "-" for f in results) + " |")


def cycles(result, model, step):
    return sum(n * result["pipelines"][i]["Latency"] for of, when, i, n in result["uses"]
               if (of, when) == (model, step))


def print_cycles(results):
    """Of a model of 32 layers: a token, and a step of 512 tokens, by the programs' cycles alone."""
    steps = [(m, s, h) for m in ("q4_0", "q4_k") for s, h in (("token", "head"), ("prompt", "heads"))]
    print("\n| family | " + " | ".join(f"{m} {s}" for m, s, _ in steps) + " |\n|---|" + "---|" * len(steps))
    for family, result in results.items():
        sums = [32 * cycles(result, m, s) + cycles(result, m, h) for m, s, h in steps]
        print(f"| {family} | " + " | ".join(f"{n / 1e6:.2f}" for n in sums) + " |")


def print_excess(results):
    for family, result in results.items():
        for p in sorted(result["pipelines"].values(), key=lambda p: p["name"]):
            if excess(p):
                print(family, p["name"], excess(p))


def print_loads(families):
    """Of what sets y: bytes of a load x loads before the first wait."""
    found = {f: loads_ahead(pipelines_of(f)) for f in families}
    print("| shader, constants | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
    for name in sorted({n for of in found.values() for n in of if not re.search("_acc|_sparse", n)}):
        print(f"| {name} | " + " | ".join("{0} x {1}".format(*of[name]) if name in of else "-" for of in found.values())
              + " |")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        known = {f: r for f, r in ((f, compiled(f)) for f in FAMILIES) if not isinstance(r, str)}
        print("; ".join(sorted({r["driver"] for r in known.values()})), file=sys.stderr)
        if sys.argv[2] == "--excess":
            print_excess(known)
        elif sys.argv[2] == "--loads":
            print_loads([f for f in LOADS_OF if f in known])
        else:
            print_programs(known)
            print_cycles(known)
    else:
        run_cases(__file__)
