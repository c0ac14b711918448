/* Opening a GPU from a text, by way of a scratch file. */
#include "support/device/sim_gpu.h"

#include "support/test.h"

hearth_status sim_gpu_open(const char *text, uint64_t memory, hth_shader_ref_fn *const *functions, hth_device **d,
                        hearth_error *err)
{
    char name[1100];
    const char *path = test_scratch("described.sim");
    snprintf(name, sizeof name, "sim:%s", path);
    CHECK(test_write_file(path, text, strlen(text)));
    hth_device_spec spec = {.name = name, .memory = memory, .shader_refs = functions};
    hearth_status st = hth_device_open(&spec, d, err);
    unlink(path);
    return st;
}
