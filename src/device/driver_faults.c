/* The table of driver faults. An entry says what was seen, by whom (issue, pull request or document), and what the code
 * does today; versions are those of the reports, so that an earlier or later driver may have the fault too. */
#include "device/driver_faults.h"

#include <stdio.h>
#include <string.h>

/* VkDriverId, also of drivers newer than the headers of Debian 12. */
enum {
    AMD_PROPRIETARY = 1,
    AMDVLK = 2,
    RADV = 3,
    NVIDIA = 4,
    INTEL_WINDOWS = 5,
    ANV = 6,
    QUALCOMM = 8,
    ARM = 9,
    LAVAPIPE = 13,
    MOLTENVK = 14,
    TURNIP = 18,
    PANVK = 20,
    DOZEN = 23,
    HONEYKRISP = 26,
};

#define V(...)                                                                                               \
    {                                                                                                        \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#define TRIED "every shader is compared with C when a model is opened"
#define TIMED TRIED "; the fastest of matrix units and dot products is used, as measured"
#define LLAMA "llama.cpp "

static const hth_driver_fault table[] = {
    {.driver = RADV,
     .first = V(25, 0, 7),
     .fixed = V(26, 0, 5),
     .fault = "compiling pipelines may damage the program's memory (Navi 21, Polaris)",
     .hearth = "nothing",
     .remedy = "update Mesa to 26.0.5 or later",
     .sources = LLAMA "issue 22128, Mesa issue 15302"},
    {.driver = RADV,
     .first = V(25, 3),
     .fault = "subgroups of matrix shaders may be of another size than is listed",
     .hearth = "the size is required where the driver can; " TRIED,
     .sources = LLAMA "issue 16339"},
    {.driver = RADV,
     .fault = "host memory for the GPU can be over-committed: a submission then loses the device",
     .hearth = "weights lie in device memory, within its budget",
     .sources = LLAMA "PR 29213"},
    {.driver = RADV,
     .fault = "newer kernels reset a GPU that works on one submission for 2 s",
     .hearth = "submissions of about 50 ms",
     .sources = LLAMA "issue 21724"},
    {.driver = AMD_PROPRIETARY,
     .only_integrated = true,
     .avoided = HTH_FEATURE_COOPMAT,
     .fault = "listing the shapes of matrix units ends the process (2.0.388 on a Radeon 860M)",
     .hearth = "matrix units are not asked for",
     .sources = LLAMA "PR 22750, AMDVLK issue 422"},
    {.driver = AMD_PROPRIETARY,
     .fault =
         "programs with matrix shaders end at their start from Adrenalin 26.5.1 on (RX 7900 XTX, RX 9070 XT)",
     .hearth = "nothing",
     .remedy = "Adrenalin 26.3.1 was reported to work",
     .sources = LLAMA "issue 23508"},
    {.driver = AMD_PROPRIETARY,
     .fault = "matrix units are listed on GPUs without them: prompts may be slow",
     .hearth = TIMED,
     .sources = LLAMA "PR 11074"},
    {.driver = AMDVLK,
     .fault = "matrix units are listed on GPUs without them: prompts may be slow",
     .hearth = TIMED,
     .remedy = "Mesa's RADV drives the same GPUs",
     .sources = LLAMA "PR 11074"},
    {.driver = NVIDIA,
     .fixed = V(615, 71, 9),
     .fault = "matrix shaders of VK_KHR_cooperative_matrix fail now and then (compiler)",
     .hearth = "VK_NV_cooperative_matrix2 is preferred; " TRIED ", which may miss it",
     .remedy = "update to 615.71.09 or later",
     .sources = LLAMA "issue 28659"},
    {.driver = NVIDIA,
     .first = V(610),
     .fixed = V(611),
     .device = "GB10",
     .fault = "takes far too much memory",
     .hearth = "nothing",
     .remedy = "use another branch than 610",
     .sources = LLAMA "issue 28659 (comment of 2026-09-09)"},
    {.driver = NVIDIA,
     .fault = "compares subnormals as zeros, though it keeps them in sums and products",
     .hearth = "shaders compare integers",
     .sources = "docs/gpu.md (driver 580.159.04, H200)"},
    {.driver = INTEL_WINDOWS,
     .fixed = V(101, 8860),
     .device = "Arc",
     .fault = "the device is lost at times (A770, Pro B70)",
     .hearth = "a lost device is left, and the CPU goes on with the same text",
     .remedy = "update to 32.0.101.8860 or later",
     .sources = LLAMA "issue 22034"},
    {.driver = INTEL_WINDOWS,
     .first = V(101, 8805),
     .fixed = V(101, 8864),
     .device = "Arc",
     .only_integrated = true,
     .fault = "products of matrices may end the process (Core Ultra 7 255H, 265H)",
     .hearth = "nothing",
     .remedy = "update to 32.0.101.8864 or later",
     .sources = LLAMA "issue 26769"},
    {.driver = INTEL_WINDOWS,
     .fault = "reports a memory budget above the heap",
     .hearth = "the heap is the limit",
     .sources = LLAMA "issue 29277"},
    {.driver = INTEL_WINDOWS,
     .device = "Arc(TM) A",
     .fault = "matrix units may make prompts far slower (A770)",
     .hearth = TIMED,
     .sources = LLAMA "PR 24404, PR 14001"},
    {.driver = ANV,
     .device = "(DG2)",
     .fault = "matrix units may make prompts far slower (A770)",
     .hearth = TIMED,
     .sources = LLAMA "PR 24404, PR 14001"},
    {.driver = ANV,
     .fixed = V(24, 3, 1),
     .fault = "matrix units are emulated, slowly",
     .hearth = TIMED,
     .remedy = "update Mesa to 24.3.1 or later",
     .sources = LLAMA "PR 10597, PR 10721"},
    {.driver = QUALCOMM,
     .fault = "the device is lost with prompts of more than 32 tokens at once (Adreno 732, 750)",
     .hearth = "a lost device is left, and the CPU goes on with the same text",
     .remedy = "n_batch 32",
     .sources = LLAMA "issues 12139, 8743"},
    {.driver = QUALCOMM,
     .fault = "some shaders do not link (Adreno 690, 740)",
     .hearth = "an error when the model is opened",
     .sources = LLAMA "issues 9452, 19746"},
    {.driver = QUALCOMM,
     .fault = "some shaders are compiled wrongly (Galaxy S23)",
     .hearth = TRIED,
     .sources = LLAMA "issue 5186"},
    {.driver = TURNIP,
     .fault = "wrong text was reported on telephones",
     .hearth = TRIED,
     .sources = "abhay-byte/fluxlinux issue 7"},
    {.driver = ARM,
     .device = "Mali-G720",
     .fault = "products of matrices are wrong",
     .hearth = TRIED,
     .sources = LLAMA "issue 23133"},
    {.driver = PANVK,
     .fault = "slower than the CPU (Mali-G610: 3.6 against 13.2 tokens/s)",
     .hearth = "gpu.device auto takes an integrated GPU only after it was measured to be faster",
     .sources = LLAMA "issue 17783"},
    {.driver = MOLTENVK,
     .device = "Radeon",
     .fault = "wrong text on Macs with a Radeon",
     .hearth = TRIED,
     .sources = LLAMA "issue 20465, MoltenVK issue 2423"},
    {.driver = DOZEN,
     .fault = "translates to Direct3D and is not conformant; may end the process when a device is made (WSL, "
              "GeForce)",
     .hearth = "gpu.device auto does not take it",
     .remedy = "the GPU's own driver, outside WSL",
     .sources = "microsoft/wslg issues 1340, 1492"},
    {.driver = HONEYKRISP,
     .fault = "wrong text of a model with experts (gpt-oss-20b, M2 Pro)",
     .hearth = "layers with experts are computed by the CPU; " TRIED,
     .sources = LLAMA "issue 16188"},
    {.driver = LAVAPIPE,
     .fixed = V(25, 0, 7),
     .fault = "ends the loops of an invocation after 65,535 iterations in all (Mesa 22.3)",
     .hearth = "shaders stay below; long contexts are divided",
     .sources = "docs/gpu.md (22.3.6, 25.0.7 tried)"},
    {.driver = LAVAPIPE,
     .first = V(26, 2),
     .fault = "does not keep subnormals",
     .hearth = "nothing: tests of shaders with subnormals differ",
     .sources = "docs/gpu.md (26.2.6 tried)"},
};

const hth_driver_fault *hth_driver_faults(size_t *n)
{
    *n = sizeof table / sizeof *table;
    return table;
}

/* ---- versions ------------------------------------------------------------------------------------- */

hth_driver_version hth_driver_version_of(const hth_device_info *info)
{
    uint32_t driver = info->driver_id, raw = info->driver_version;
    hth_driver_version mesa = {0};
    const char *name = strstr(info->driver, "Mesa ");
    if (name && sscanf(name, "Mesa %u.%u.%u", &mesa.part[0], &mesa.part[1], &mesa.part[2]) >= 2) return mesa;
    if (driver == NVIDIA)
        return (hth_driver_version)V(raw >> 22, raw >> 14 & 0xff, raw >> 6 & 0xff, raw & 0x3f);
    if (driver == INTEL_WINDOWS) return (hth_driver_version)V(raw >> 14, raw & 0x3fff);
    if (driver == MOLTENVK) return (hth_driver_version)V(raw / 10000, raw / 100 % 100, raw % 100);
    return (hth_driver_version)V(raw >> 22, raw >> 12 & 0x3ff, raw & 0xfff);
}

void hth_driver_version_format(hth_driver_version version, char text[48])
{
    int n = 4;
    while (n > 2 && version.part[n - 1] == 0) n--;
    for (int i = 0, at = 0; i < n; i++)
        at += snprintf(text + at, 48 - (size_t)at, i ? ".%u" : "%u", version.part[i]);
}

static bool is_before(const hth_driver_version *a, const hth_driver_version *b)
{
    int i = 0;
    while (i < 3 && a->part[i] == b->part[i]) i++;
    return a->part[i] < b->part[i];
}

/* ---- faults --------------------------------------------------------------------------------------- */

static bool concerns(const hth_driver_fault *f, const hth_device_info *info)
{
    static const hth_driver_version none;
    hth_driver_version v = hth_driver_version_of(info);
    if (f->driver != info->driver_id || is_before(&v, &f->first)) return false;
    if (is_before(&none, &f->fixed) && !is_before(&v, &f->fixed)) return false;
    if (f->only_integrated && info->kind != HTH_DEVICE_INTEGRATED) return false;
    return !f->device || strstr(info->name, f->device);
}

const hth_driver_fault *hth_driver_fault_next(const hth_device_info *info, const hth_driver_fault *last)
{
    for (const hth_driver_fault *f = last ? last + 1 : table; f < table + sizeof table / sizeof *table; f++)
        if (concerns(f, info)) return f;
    return NULL;
}

uint32_t hth_driver_avoided(const hth_device_info *info)
{
    uint32_t avoided = 0;
    for (const hth_driver_fault *f = NULL; (f = hth_driver_fault_next(info, f));) avoided |= f->avoided;
    return avoided;
}
